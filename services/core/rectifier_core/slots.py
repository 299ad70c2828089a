"""Bounded concurrency with an honest queue: who cannot be served in time is told at once."""

import asyncio
import time

RECENT_SHARE = 0.2  # weight of the newest call in the mean duration


class NoSlotError(Exception):
    """No slot will be free in time.

    Attributes:
        wait: Seconds after which one is expected.
    """

    def __init__(self, wait: float) -> None:
        super().__init__("no slot in time")
        self.wait = wait


class Slots:
    """A fixed number of slots, given out in order of arrival."""

    def __init__(self, size: int) -> None:
        """Start with all slots free.

        Args:
            size: How many, 1 or more.
        """
        self._size = size
        self._semaphore = asyncio.Semaphore(size)
        self._waiting = 0
        self._mean_seconds = 0.0

    @property
    def expected_wait(self) -> float:
        """Seconds until a newcomer has a slot, by the mean duration of recent holders."""
        if not self._semaphore.locked():
            return 0.0
        return (self._waiting + 1) * self._mean_seconds / self._size

    async def take(self, *, within: float) -> float:
        """Wait for a slot that leaves time to use it; return the seconds waited.

        A free slot is given out however little time there is.

        Args:
            within: Seconds for the wait and for what the slot is held for.

        Raises:
            NoSlotError: Waiting and holding take longer than that, by the mean duration; told at
                once, or when the wait turned out to be longer.
            TimeoutError: The wait alone took longer.
        """
        if not self._semaphore.locked():
            await self._semaphore.acquire()
            return 0.0
        expected = self.expected_wait
        if expected + self._mean_seconds > within:
            raise NoSlotError(expected)
        started = time.monotonic()
        await self._acquire(within)
        waited = time.monotonic() - started
        if waited + self._mean_seconds > within:
            self._semaphore.release()
            raise NoSlotError(max(self.expected_wait, self._mean_seconds))
        return waited

    async def _acquire(self, within: float) -> None:
        self._waiting += 1
        try:
            async with asyncio.timeout(within):
                await self._semaphore.acquire()
        finally:
            self._waiting -= 1

    def give_back(self, seconds: float) -> None:
        """Free a slot that was held for ``seconds``."""
        share = RECENT_SHARE if self._mean_seconds else 1.0
        self._mean_seconds += share * (seconds - self._mean_seconds)
        self._semaphore.release()
