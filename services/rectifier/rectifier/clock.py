"""A clock for the stages of one request."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

MS = 1_000


@dataclass(slots=True)
class Clock:
    """Adds up the milliseconds spent in each stage.

    Attributes:
        spent: Milliseconds, by stage.
        began: When the request did, on ``time.perf_counter``.
    """

    spent: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the block as stage ``name``."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.spent[name] = round((time.perf_counter() - began) * MS, 3)

    def total(self) -> dict[str, float]:
        """Return the stages so far, and ``total`` since the beginning."""
        return {**self.spent, "total": round((time.perf_counter() - self.began) * MS, 3)}
