"""The decision: what becomes of a message, given the verdict and the attempts it has used."""

from dataclasses import dataclass
from enum import StrEnum

from rectifier.policy import Policy
from rectifier.verdict import Reason, Verdict
from rectifier_core.errors import UnavailableError


class Decision(StrEnum):
    """What the host is to do: broadcast, ask the agent again, or prune."""

    PASS = "pass"  # noqa: S105 - a word, not a password
    RETRY = "retry"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Ruling:
    """A decision and why.

    Attributes:
        decision: What the host is to do.
        reason: Why.
        would_be: In shadow, what it would have been: pass or retry. Also retry where a message
            passes only because the indicators that it violates are in shadow. Else None.
    """

    decision: Decision
    reason: Reason
    would_be: Decision | None = None


def decide(
    verdict: Verdict,
    reason: Reason,
    *,
    attempt: int,
    policy: Policy,
    in_shadow: bool,
    would_fail: bool = False,
) -> Ruling:
    """Decide on one attempt.

    Args:
        verdict: The audit's verdict.
        reason: The audit's reason.
        attempt: From 0; at ``policy.max_retries`` a failed message is pruned.
        policy: The effective policy.
        in_shadow: True where decisions are recorded and not enforced.
        would_fail: Whether the verdict would be fail if the indicators in shadow counted.

    Raises:
        UnavailableError: There is no verdict, and the policy asks for an error then.

    Source: AgentDropoutV2, arXiv 2602.23258, section 3.3, rectify-or-reject.
    """
    if in_shadow:
        fails = would_fail or verdict is Verdict.FAIL or reason is Reason.EMPTY_MESSAGE
        return Ruling(Decision.PASS, Reason.SHADOW, Decision.RETRY if fails else Decision.PASS)
    has_retry = attempt < policy.max_retries
    match verdict:
        case Verdict.PASS:
            return Ruling(Decision.PASS, reason, Decision.RETRY if would_fail else None)
        case Verdict.FAIL:
            if has_retry:
                return Ruling(Decision.RETRY, Reason.VIOLATED)
            return Ruling(Decision.REJECT, Reason.BUDGET_SPENT)
        case Verdict.INDETERMINATE if reason is Reason.EMPTY_MESSAGE:
            return Ruling(Decision.RETRY if has_retry else Decision.REJECT, reason)
        case Verdict.INDETERMINATE:
            if policy.on_indeterminate == "error":
                raise UnavailableError("the message has no verdict: the judge did not give one")
            return Ruling(Decision(policy.on_indeterminate), Reason.INDETERMINATE)
