"""Work that is not left half done, whoever stops waiting for it."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Return what short ``work`` returns; a caller that is cancelled meanwhile waits for its end.

    A cancellation is passed on afterwards, however often it came.
    """
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    with suppress(Exception):
        task.result()
    raise cancelled
