"""A client that hangs up: its work is cancelled, the judge call with it."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

T = TypeVar("T")


async def until_hang_up(request: Request, work: Awaitable[T]) -> T:
    """Return what ``work`` returns, unless the client hangs up first.

    The request's body must have been read.

    Raises:
        ClientDisconnect: The client hung up; the work was cancelled and has cleaned up.
    """
    caller = asyncio.current_task()
    assert caller is not None  # noqa: S101 - a coroutine runs in a task
    has_hung_up = False

    async def watch() -> None:
        nonlocal has_hung_up
        while (await request.receive())["type"] != "http.disconnect":
            pass
        has_hung_up = True
        caller.cancel()

    watcher = asyncio.create_task(watch())
    try:
        return await work
    except asyncio.CancelledError:
        if has_hung_up and caller.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher
