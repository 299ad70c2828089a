"""What keeps a failing endpoint from being hammered: a circuit breaker and a retry budget."""

import time
from collections.abc import Callable
from dataclasses import dataclass

PROBE_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class Call:
    """One call as its caller sees it: a request and its retries.

    Attributes:
        began: Failures that were counted before it began.
    """

    began: int


class Breaker:
    """Refuses calls for a while after too many failures in a row, then lets one probe through.

    ``begin`` each call, ``admit`` each request of it, and report each admitted one: ``succeeded``,
    ``failed``, or ``undecided`` where it says nothing about the endpoint (it was cancelled, or had
    too little time). Of calls that overlap, and of the retries of one, only the first failure is
    counted: one hiccup fails them all.
    """

    def __init__(
        self,
        *,
        failures: int = 5,
        open_seconds: float = 2.0,
        longest_open_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start closed.

        Args:
            failures: Failures in a row that open it, 1 or more.
            open_seconds: How long it then refuses; twice as long after each probe that fails.
            longest_open_seconds: The most that this grows to.
            clock: Seconds that never go back.
        """
        self._limit = failures
        self._first_seconds = min(open_seconds, longest_open_seconds)
        self._longest_seconds = longest_open_seconds
        self._open_seconds = self._first_seconds
        self._clock = clock
        self._failures = 0
        self._counted = 0
        self._open_until: float | None = None
        self._probe: Call | None = None

    @property
    def refuses_for(self) -> float:
        """Seconds for which a call would be refused; 0 where it would be admitted."""
        if self._open_until is None:
            return 0.0
        left = self._open_until - self._clock()
        if left > 0:
            return left
        return PROBE_WAIT_S if self._probe is not None else 0.0

    def begin(self) -> Call:
        """Return a new call."""
        return Call(self._counted)

    def admit(self, call: Call) -> bool:
        """Return whether a request may be sent now; an admitted one must be reported."""
        if self.refuses_for:
            return False
        if self._open_until is not None:
            self._probe = call
        return True

    def succeeded(self) -> None:
        """Report that the endpoint answered: close."""
        self._failures = 0
        self._open_seconds = self._first_seconds
        self._open_until = None
        self._probe = None

    def failed(self, call: Call) -> None:
        """Report that it did not: open after too many, or for longer after a failed probe."""
        if call is self._probe:
            self._probe = None
            self._open_for(min(2 * self._open_seconds, self._longest_seconds))
        elif self._open_until is None and call.began == self._counted:
            self._failures += 1
            self._counted += 1
            if self._failures >= self._limit:
                self._open_for(self._first_seconds)

    def undecided(self, call: Call) -> None:
        """Report a request that says nothing: where it was the probe, the next one is."""
        if call is self._probe:
            self._probe = None

    def _open_for(self, seconds: float) -> None:
        self._open_seconds = seconds
        self._open_until = self._clock() + seconds


class RetryBudget:
    """Allows retries as a share of calls, so that they never multiply the load of a sick endpoint.

    A token bucket: every call pays ``share`` in, every retry takes 1 out.
    """

    def __init__(self, *, share: float = 0.1, capacity: float = 64.0) -> None:
        """Start full.

        Args:
            share: Retries a call, in the long run.
            capacity: Retries that may be saved up: those of a server that restarts under load.
        """
        self._share = share
        self._capacity = capacity
        self._saved = capacity

    def earn(self) -> None:
        """Count one call that is no retry."""
        self._saved = min(self._capacity, self._saved + self._share)

    def spend(self) -> bool:
        """Take one retry out; False where none is left."""
        if self._saved < 1.0:
            return False
        self._saved -= 1.0
        return True
