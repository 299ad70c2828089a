"""A deadline: the one moment by which a request must be answered."""

import time
from dataclasses import dataclass

from rectifier_core.errors import DeadlineError


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock.

    Attributes:
        at: Seconds on ``time.monotonic``.
    """

    at: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Return the deadline ``seconds`` from now."""
        return cls(time.monotonic() + seconds)

    def left(self, *, at_most: float | None = None) -> float:
        """Return the seconds left, cut to ``at_most``: the timeout of the next call.

        Raises:
            DeadlineError: None are left.
        """
        left = self.at - time.monotonic()
        if left <= 0:
            raise DeadlineError("the deadline passed")
        return left if at_most is None else min(left, at_most)
