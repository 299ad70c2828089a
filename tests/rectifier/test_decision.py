"""The decision on one attempt."""

import pytest

from rectifier.decision import Decision, Ruling, decide
from rectifier.policy import Policy
from rectifier.verdict import Reason, Verdict
from rectifier_core.errors import UnavailableError

POLICY = Policy("fast", max_retries=3)


def ruled(
    verdict: Verdict, reason: Reason, *, attempt: int = 0, in_shadow: bool = False, **fields: object
) -> Ruling:
    policy = Policy("fast", **{"max_retries": 3, **fields})  # type: ignore[arg-type]
    return decide(verdict, reason, attempt=attempt, policy=policy, in_shadow=in_shadow)


def test_violated_message_is_retried_until_the_budget_is_spent() -> None:
    rulings = [ruled(Verdict.FAIL, Reason.VIOLATED, attempt=attempt) for attempt in range(4)]
    assert [ruling.decision for ruling in rulings] == ["retry", "retry", "retry", "reject"]
    assert [ruling.reason for ruling in rulings] == ["violated"] * 3 + ["budget_spent"]


def test_no_retries_means_reject_at_once() -> None:
    assert ruled(Verdict.FAIL, Reason.VIOLATED, max_retries=0).decision is Decision.REJECT


@pytest.mark.parametrize("reason", [Reason.CLEAN, Reason.TOLERATED, Reason.NO_JUDGE])
def test_pass_keeps_its_reason(reason: Reason) -> None:
    assert ruled(Verdict.PASS, reason) == Ruling(Decision.PASS, reason)


@pytest.mark.parametrize(("wanted", "decision"), [("pass", "pass"), ("reject", "reject")])
def test_message_without_verdict_becomes_what_the_policy_says(wanted: str, decision: str) -> None:
    ruling = ruled(Verdict.INDETERMINATE, Reason.INDETERMINATE, on_indeterminate=wanted)
    assert (ruling.decision, ruling.reason) == (decision, "indeterminate")


def test_message_without_verdict_can_be_an_error() -> None:
    with pytest.raises(UnavailableError):
        ruled(Verdict.INDETERMINATE, Reason.INDETERMINATE, on_indeterminate="error")


def test_empty_message_is_retried_and_rejected_at_the_end() -> None:
    first = ruled(Verdict.INDETERMINATE, Reason.EMPTY_MESSAGE)
    last = ruled(Verdict.INDETERMINATE, Reason.EMPTY_MESSAGE, attempt=3)
    assert (first.decision, last.decision) == (Decision.RETRY, Decision.REJECT)
    assert last.reason is Reason.EMPTY_MESSAGE


def test_shadow_passes_and_says_what_would_have_been() -> None:
    failed = ruled(Verdict.FAIL, Reason.VIOLATED, attempt=3, in_shadow=True)
    assert failed == Ruling(Decision.PASS, Reason.SHADOW, Decision.RETRY)
    passed = ruled(Verdict.PASS, Reason.CLEAN, in_shadow=True)
    assert passed == Ruling(Decision.PASS, Reason.SHADOW, Decision.PASS)
