"""What an audit concludes: findings, a verdict, and what was missing on the way to it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from rectifier_core.chat import Usage

EvidenceIn = Literal["message", "task"]
Source = Literal["judge", "check"]


class Verdict(StrEnum):
    """What is said of one message."""

    PASS = "pass"  # noqa: S105 - a word, not a password
    FAIL = "fail"
    INDETERMINATE = "indeterminate"


class Reason(StrEnum):
    """Why a verdict or a decision is what it is."""

    CLEAN = "clean"
    TOLERATED = "tolerated"
    VIOLATED = "violated"
    BUDGET_SPENT = "budget_spent"
    NO_PROGRESS = "no_progress"
    EMPTY_MESSAGE = "empty_message"
    INDETERMINATE = "indeterminate"
    NO_JUDGE = "no_judge"
    SHADOW = "shadow"


class Degraded(StrEnum):
    """What was missing or cut: a closed set, also a metric label."""

    NO_JUDGE = "no_judge"
    JUDGE_UNAVAILABLE = "judge_unavailable"
    JUDGE_UNREADABLE = "judge_unreadable"
    JUDGE_INCOMPLETE = "judge_incomplete"
    KEYWORDS_UNREADABLE = "keywords_unreadable"
    RERANK_UNREADABLE = "rerank_unreadable"
    EMBEDDING_UNAVAILABLE = "embedding_unavailable"
    STORE_STALE = "store_stale"
    QUERY_CUT = "query_cut"
    CONTEXT_CUT = "context_cut"
    CHECKS_CUT = "checks_cut"
    LANGUAGE = "language"


@dataclass(frozen=True, slots=True)
class Finding:
    """The judgement of one active indicator, or of one check.

    Attributes:
        indicator_id: The indicator's id, or ``check:arithmetic``, ``check:python``, ``check:schema``.
        name: The indicator's name.
        violated: True where the message shows the error.
        evidence: A verbatim quote; empty where nothing is violated.
        evidence_in: Where the quote stands.
        rationale: Why it matters: what it changes in the conclusion.
        suggestion: The concrete correction.
        source: Who judged.
        in_shadow: The indicator is asked and recorded, but does not count.
    """

    indicator_id: str
    name: str
    violated: bool
    evidence: str = ""
    evidence_in: EvidenceIn = "message"
    rationale: str = ""
    suggestion: str = ""
    source: Source = "judge"
    in_shadow: bool = False


@dataclass(frozen=True, slots=True)
class Unsupported:
    """An accusation that does not count, and why.

    Attributes:
        indicator_id: The accused indicator.
        name: Its name.
        evidence: What the judge quoted.
        problem: What the accusation lacks.
    """

    indicator_id: str
    name: str
    evidence: str
    problem: Literal["no_quote", "not_a_quote", "no_correction", "no_impact"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the judge model said of one message, after reading and checking.

    Every indicator that was asked is in exactly one of ``findings`` (a verdict) or
    ``undecided`` (none). ``unsupported`` explains some of the undecided.

    Attributes:
        findings: One for each indicator with a verdict.
        undecided: Ids of the indicators asked that have no verdict.
        unsupported: Accusations that do not count.
        usage: Cost of all calls.
        model: The model that answered, empty where none did.
        degraded: What was missing.
    """

    findings: tuple[Finding, ...] = ()
    undecided: tuple[str, ...] = ()
    unsupported: tuple[Unsupported, ...] = ()
    usage: Usage = Usage()
    model: str = ""
    degraded: tuple[Degraded, ...] = ()
