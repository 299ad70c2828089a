"""What keeps a failing endpoint from being hammered: a circuit breaker and a retry budget."""

import time
from collections.abc import Callable

PROBE_WAIT_S = 1.0


class Breaker:
    """Refuses calls for a while after too many failures in a row, then lets one probe through.

    ``admit`` each call, and report each admitted one: ``succeeded``, ``failed``, or ``undecided``
    where it says nothing about the endpoint (it was cancelled, or had too little time).
    """

    def __init__(
        self,
        *,
        failures: int = 5,
        open_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start closed.

        Args:
            failures: Failures in a row that open it, 1 or more.
            open_seconds: How long it then refuses.
            clock: Seconds that never go back.
        """
        self._limit = failures
        self._open_seconds = open_seconds
        self._clock = clock
        self._failures = 0
        self._open_until: float | None = None
        self._is_probed = False

    @property
    def refuses_for(self) -> float:
        """Seconds for which a call would be refused; 0 where it would be admitted."""
        if self._open_until is None:
            return 0.0
        left = self._open_until - self._clock()
        if left > 0:
            return left
        return PROBE_WAIT_S if self._is_probed else 0.0

    def admit(self) -> bool:
        """Return whether a call may be made now; an admitted one must be reported."""
        if self.refuses_for:
            return False
        self._is_probed = self._open_until is not None
        return True

    def succeeded(self) -> None:
        """Report that the endpoint answered: close."""
        self._failures = 0
        self._open_until = None
        self._is_probed = False

    def failed(self) -> None:
        """Report that it did not: open after too many, or again after a failed probe."""
        self._failures += 1
        is_open = self._open_until is not None
        if self._is_probed or (not is_open and self._failures >= self._limit):
            self._open_until = self._clock() + self._open_seconds
        self._is_probed = False

    def undecided(self) -> None:
        """Report a call that says nothing: where it was the probe, the next one is."""
        self._is_probed = False


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
