"""The gate decides from counts, exactly."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rectifier.gate import gate
from rectifier.verdict import Reason, Verdict

TAUS = st.integers(0, 100).map(lambda hundredths: hundredths / 100)


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int, int]:
    asked = draw(st.integers(0, 25))
    violated = draw(st.integers(0, asked))
    return asked, violated, draw(st.integers(0, asked - violated))


@given(counts(), TAUS)
def test_a_pass_needs_a_verdict_on_every_indicator(
    numbers: tuple[int, int, int], tau: float
) -> None:
    asked, violated, undecided = numbers
    verdict, reason = gate(asked=asked, violated=violated, undecided=undecided, tau=tau)
    if verdict is Verdict.PASS:
        assert asked > 0
        assert undecided == 0
        assert Fraction(asked - violated, asked) >= Fraction(str(tau))
        assert reason is (Reason.TOLERATED if violated else Reason.CLEAN)


@given(counts(), TAUS)
def test_a_fail_holds_whatever_the_missing_verdicts_say(
    numbers: tuple[int, int, int], tau: float
) -> None:
    asked, violated, undecided = numbers
    verdict, _ = gate(asked=asked, violated=violated, undecided=undecided, tau=tau)
    if verdict is Verdict.FAIL:
        for more in range(undecided + 1):
            settled, _ = gate(asked=asked, violated=violated + more, undecided=0, tau=tau)
            assert settled is Verdict.FAIL


@given(counts(), TAUS)
def test_another_violation_never_helps(numbers: tuple[int, int, int], tau: float) -> None:
    asked, violated, _ = numbers
    if violated < asked:
        before, _ = gate(asked=asked, violated=violated, undecided=0, tau=tau)
        after, _ = gate(asked=asked, violated=violated + 1, undecided=0, tau=tau)
        assert (before, after) != (Verdict.FAIL, Verdict.PASS)


def test_three_fifths_is_exact() -> None:
    assert gate(asked=5, violated=2, undecided=0, tau=0.6) == (Verdict.PASS, Reason.TOLERATED)
    assert gate(asked=5, violated=3, undecided=0, tau=0.6) == (Verdict.FAIL, Reason.VIOLATED)


def test_nothing_asked_is_no_verdict() -> None:
    assert gate(asked=0, violated=0, undecided=0, tau=0.0)[0] is Verdict.INDETERMINATE


def test_counts_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="parts of asked"):
        gate(asked=1, violated=1, undecided=1, tau=1.0)
