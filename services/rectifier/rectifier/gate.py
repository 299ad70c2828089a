"""The gate: from findings to a verdict.

Source: AgentDropoutV2, arXiv 2602.23258, section 3.3: a message passes where the share of its
active indicators that it does not violate, p = (k - v) / k, is at least tau.
"""

from fractions import Fraction

from rectifier.verdict import Reason, Verdict


def gate(*, asked: int, violated: int, undecided: int, tau: float) -> tuple[Verdict, Reason]:
    """Decide from counts, exactly.

    A fail needs no complete set of verdicts: (asked - violated) is the most that can still be clean.
    A pass needs all of them.

    Args:
        asked: Active indicators k, 0 or more.
        violated: Of these, v violated.
        undecided: Of these, u without a verdict; v + u is at most k.
        tau: Pass threshold in [0, 1], as the decimal that was written (0.6 is three fifths).

    Returns:
        The verdict and its reason; ``indeterminate`` where nothing was asked.
    """
    if violated + undecided > asked or min(asked, violated, undecided) < 0:
        raise ValueError("violated and undecided are parts of asked")
    if asked == 0:
        return Verdict.INDETERMINATE, Reason.INDETERMINATE
    if asked - violated < Fraction(str(tau)) * asked:
        return Verdict.FAIL, Reason.VIOLATED
    if undecided:
        return Verdict.INDETERMINATE, Reason.INDETERMINATE
    return Verdict.PASS, Reason.TOLERATED if violated else Reason.CLEAN
