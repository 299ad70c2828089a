"""Waits for what another request is doing: one probe for all who wait for the same thing."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass

from rectifier_core.deadline import Deadline
from rectifier_core.errors import DeadlineError, StateError

POLL_S = 0.02  # before the first probe
SLOWEST_POLL_S = 0.25


@dataclass(slots=True)
class _Wait:
    task: asyncio.Task[None]
    woken: asyncio.Event
    waiters: int = 0


class Waits:
    """Who waits for what in this process.

    What ends in this process is told by `wake`; what ends in another one, the probe finds.
    """

    def __init__(self) -> None:
        self._waits: dict[Hashable, _Wait] = {}

    async def until_over(
        self,
        name: Hashable,
        is_pending: Callable[[], Awaitable[bool]],
        *,
        deadline: Deadline,
        at_most: float,
    ) -> None:
        """Return when ``name`` is no longer pending, or after ``at_most`` seconds.

        Args:
            name: What is waited for; those who name the same share the first one's probe.
            is_pending: The probe.
            deadline: Of the one who waits.
            at_most: Seconds after which it is over at any rate.

        Raises:
            DeadlineError: It was still pending at the deadline.
            StateError: The probe raised it.
        """
        wait = self._waits.get(name)
        if wait is None:
            woken = asyncio.Event()
            task = asyncio.create_task(_watch(is_pending, woken, at_most))
            wait = self._waits[name] = _Wait(task, woken)
        wait.waiters += 1
        try:
            async with asyncio.timeout(deadline.left()):
                await asyncio.shield(wait.task)
        except TimeoutError as exc:
            raise DeadlineError("the same request was still under way at the deadline") from exc
        finally:
            wait.waiters -= 1
            if wait.task.done() or not wait.waiters:
                self._forget(name, wait)
            if not wait.waiters:
                wait.task.cancel()
                with suppress(asyncio.CancelledError, StateError):
                    await wait.task

    def wake(self, name: Hashable) -> None:
        """Tell all who wait for ``name`` that it is over."""
        if name in self._waits:
            self._waits[name].woken.set()

    def _forget(self, name: Hashable, wait: _Wait) -> None:
        if self._waits.get(name) is wait:
            del self._waits[name]


async def _watch(
    is_pending: Callable[[], Awaitable[bool]], woken: asyncio.Event, at_most: float
) -> None:
    until, pause = time.monotonic() + at_most, POLL_S
    while not woken.is_set() and (left := until - time.monotonic()) > 0:
        with suppress(TimeoutError):
            async with asyncio.timeout(min(pause, left)):
                await woken.wait()
        if not woken.is_set() and not await is_pending():
            return
        pause = min(pause * 1.5, SLOWEST_POLL_S)
