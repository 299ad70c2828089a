"""Slots: bounded, fair, and honest about the wait."""

import asyncio

import pytest

from rectifier_core.slots import NoSlotError, Slots


async def test_free_slot_is_taken_without_waiting() -> None:
    slots = Slots(2)
    await slots.take(within=0.001)
    await slots.take(within=0.001)
    assert slots.expected_wait == 0  # nothing is known of durations yet


async def test_wait_is_bounded() -> None:
    slots = Slots(1)
    await slots.take(within=1)
    with pytest.raises(TimeoutError):
        await slots.take(within=0.01)


async def test_wait_that_cannot_fit_is_told_at_once() -> None:
    slots = Slots(2)
    await slots.take(within=1)
    await slots.take(within=1)
    slots.give_back(8.0)
    await slots.take(within=1)
    with pytest.raises(NoSlotError) as caught:
        await slots.take(within=3)
    assert caught.value.wait == 4


async def test_slot_that_comes_too_late_to_be_used_goes_to_the_next() -> None:
    slots = Slots(1)
    await slots.take(within=1)
    hurried = asyncio.create_task(slots.take(within=2))
    patient = asyncio.create_task(slots.take(within=60))
    await asyncio.sleep(0)
    slots.give_back(4.0)  # nobody knew that it takes so long
    with pytest.raises(NoSlotError) as caught:
        await hurried
    assert caught.value.wait >= 4
    assert await asyncio.wait_for(patient, timeout=5) < 5


async def test_free_slot_is_given_out_in_any_hurry() -> None:
    slots = Slots(1)
    await slots.take(within=1)
    slots.give_back(8.0)
    assert await slots.take(within=0.1) == 0


async def test_those_who_waited_longest_come_first() -> None:
    slots = Slots(1)
    served: list[int] = []

    async def hold(name: int) -> None:
        await slots.take(within=5)
        served.append(name)
        slots.give_back(0.0)

    await slots.take(within=1)
    waiting = [asyncio.create_task(hold(name)) for name in range(5)]
    await asyncio.sleep(0)
    slots.give_back(0.0)
    await asyncio.gather(*waiting)
    assert served == [0, 1, 2, 3, 4]


async def test_cancelled_wait_leaves_the_queue() -> None:
    slots = Slots(1)
    await slots.take(within=1)
    waiting = asyncio.create_task(slots.take(within=5))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    slots.give_back(1.0)
    assert slots.expected_wait == 0
    await slots.take(within=0.01)
