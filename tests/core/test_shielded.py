"""Work that is brought to its end whoever stops waiting."""

import asyncio

import pytest

from rectifier_core.shielded import to_its_end


async def test_result_is_returned() -> None:
    async def work() -> int:
        return 3

    assert await to_its_end(work()) == 3


async def test_error_is_raised() -> None:
    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await to_its_end(work())


async def test_two_cancellations_do_not_cut_the_work_short() -> None:
    began, go, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        began.set()
        await go.wait()
        done.set()

    task = asyncio.create_task(to_its_end(work()))
    await began.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done.is_set()
