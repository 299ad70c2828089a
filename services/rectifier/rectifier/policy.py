"""A policy: how a message is audited and gated. Presets are named; fields override them."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from rectifier_core.errors import InputError

Query = Literal["message", "keywords", "none"]
Retrieval = Literal["hybrid", "trigger", "random", "general"]
Select = Literal["same_call", "rerank", "none"]
AuditMode = Literal["select", "batch", "single", "applies", "none"]
OnIndeterminate = Literal["pass", "reject", "error"]
PolicyMode = Literal["enforce", "shadow"]


@dataclass(frozen=True, slots=True)
class Policy:
    """How a message is audited and gated.

    Attributes:
        preset: The preset it started from.
        query: What is searched with: the task and the message, keywords that the judge model
            extracts, or nothing.
        retrieval: How candidates are found: ``hybrid`` (trigger, definition, words), ``trigger``
            (cosine with the trigger vectors alone), ``random`` or ``general`` (the general
            indicator).
        k_cand: Candidates retrieved, 0 to 100.
        mmr_k: Candidates that diversification keeps; 0 keeps all.
        select: How active indicators are chosen: by the judge in the same call, by a rerank call,
            or not.
        k_act: Active indicators audited at most, 0 to 20.
        audit: How the judge is asked: selecting and judging in one call, a batch, one call an
            indicator, a batch that first asks whether each applies, or not at all.
        tau: Pass threshold in [0, 1].
        max_retries: Retries T_max after attempt 0, 0 to 10.
        gamma: Fallback is due below this many retained messages, 0 to 1,000.
        on_indeterminate: What becomes of a message without a verdict.
        mode: Whether decisions count, or are only recorded.

    Source: AgentDropoutV2, arXiv 2602.23258, section 4.1 (v1) and section 4 (v2).
    """

    preset: str
    query: Query = "message"
    retrieval: Retrieval = "hybrid"
    k_cand: int = 20
    mmr_k: int = 0
    select: Select = "none"
    k_act: int = 5
    audit: AuditMode = "batch"
    tau: float = 1.0
    max_retries: int = 3
    gamma: int = 2
    on_indeterminate: OnIndeterminate = "pass"
    mode: PolicyMode = "enforce"

    @property
    def hash(self) -> str:
        """First 16 hex digits of the SHA-256 over its fields."""
        canonical = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]


PRESETS: Mapping[str, Policy] = {
    policy.preset: policy
    for policy in (
        Policy("fast", mmr_k=10, select="same_call", audit="select", tau=0.6),
        Policy("paper-v2", query="keywords", retrieval="trigger", select="rerank", tau=0.6),
        Policy("paper-v1", query="keywords", retrieval="trigger", k_cand=5),
        Policy("code", query="keywords", retrieval="trigger", k_cand=3, k_act=3),
        Policy("reference", query="keywords", retrieval="trigger", k_cand=5, audit="single"),
        Policy("random", query="none", retrieval="random", k_cand=5, audit="applies"),
        Policy("generic", query="none", retrieval="general", k_cand=0, k_act=1),
        Policy("checks", k_cand=5, k_act=0, audit="none"),
    )
}

_BOUNDS: Mapping[str, tuple[float, float]] = {
    "k_cand": (0, 100),
    "mmr_k": (0, 100),
    "k_act": (0, 20),
    "tau": (0, 1),
    "max_retries": (0, 10),
    "gamma": (0, 1_000),
}


def resolve(
    requested: str | Mapping[str, Any] | None,
    *,
    default: str,
    presets: Mapping[str, Policy] = PRESETS,
    pool_defaults: Mapping[str, Any] | None = None,
) -> Policy:
    """Return the effective policy: the request over the pool's defaults over the preset.

    Args:
        requested: A preset's name, or single fields (``preset`` among them), or None.
        default: The preset where the request names none.
        presets: What can be named.
        pool_defaults: Fields that the pool sets.

    Raises:
        InputError: An unknown preset or field, or a value outside its range.
    """
    overrides = {"preset": requested} if isinstance(requested, str) else dict(requested or {})
    name = overrides.pop("preset", None) or default
    if name not in presets:
        known = ", ".join(sorted(presets))
        raise InputError(f"there is no preset {name!r}; there are {known}", field="policy.preset")
    return checked(overridden(presets[name], {**(pool_defaults or {}), **overrides}))


def checked(policy: Policy) -> Policy:
    """Return ``policy`` where its values make sense together.

    Raises:
        InputError: A value is outside its range, or two of them contradict each other.
    """
    for field, (low, high) in _BOUNDS.items():
        if not low <= getattr(policy, field) <= high:
            raise InputError(f"{field} is {low:g} to {high:g}", field=f"policy.{field}")
    for field, is_wrong, detail in _contradictions(policy):
        if is_wrong:
            raise InputError(detail, field=f"policy.{field}")
    return policy


def _contradictions(policy: Policy) -> Sequence[tuple[str, bool, str]]:
    searches = policy.retrieval in {"hybrid", "trigger"}
    in_same_call = policy.select == "same_call"
    return (
        (
            "k_act",
            policy.select != "none" and policy.k_act > policy.k_cand,
            "k_act is at most k_cand where the judge selects",
        ),
        (
            "k_act",
            policy.k_act == 0 and policy.audit != "none",
            "k_act is at least 1 where the judge is asked",
        ),
        (
            "audit",
            (policy.audit == "select") != in_same_call,
            "audit select and select same_call go together",
        ),
        (
            "query",
            searches and policy.query == "none",
            f"retrieval {policy.retrieval} needs a query",
        ),
    )


def overridden(policy: Policy, overrides: Mapping[str, Any]) -> Policy:
    """Return ``policy`` with these fields; K_cand follows K_act where it did and nothing selects.

    Raises:
        InputError: There is no such field.
    """
    known = {field.name for field in fields(Policy)} - {"preset"}
    unknown = sorted(set(overrides) - known)
    if unknown:
        raise InputError("there is no such field", field=f"policy.{unknown[0]}")
    changed = replace(policy, **overrides)
    if policy.select == "none" and "k_cand" not in overrides and policy.k_cand == policy.k_act:
        return replace(changed, k_cand=changed.k_act)
    return changed
