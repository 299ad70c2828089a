"""Idempotency keys, on a real valkey-server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from rectifier.idempotency import KEY_LIMIT, Idempotency
from rectifier_core.adapters.redis_client import open_redis
from rectifier_core.deadline import Deadline
from rectifier_core.errors import ChatError, DeadlineError, InputError, StateError

SCOPE = ("tenant", "/rectify", "run")
DAY_S = 24 * 3600


class Work:
    """Counts how often it is done; waits where it is told to."""

    def __init__(self, *failures: Exception, is_open: bool = True) -> None:
        self.done = 0
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self._failures = list(failures)
        if is_open:
            self.gate.set()

    async def __call__(self) -> bytes:
        self.done += 1
        self.begun.set()
        await self.gate.wait()
        if self._failures:
            raise self._failures.pop(0)
        return f"answer ü {self.done}".encode()


@pytest.fixture
async def keys(redis: Redis) -> Idempotency:
    return Idempotency(redis)


@pytest.fixture
async def elsewhere(redis: Redis, redis_url: str) -> AsyncIterator[Idempotency]:
    """The keys as another process sees them."""
    async with open_redis(redis_url) as client:
        yield Idempotency(client)


async def once(
    keys: Idempotency,
    work: Callable[[], Awaitable[bytes]],
    *,
    key: str = "k",
    body: bytes = b"{}",
    scope: tuple[str, ...] = SCOPE,
    within: float = 30.0,
) -> bytes:
    return await keys.once(work, scope=scope, key=key, body=body, deadline=Deadline.after(within))


async def test_repeated_request_gets_the_first_answer(
    keys: Idempotency, elsewhere: Idempotency, redis: Redis
) -> None:
    work = Work()
    answers = [await once(side, work) for side in (keys, elsewhere, keys)]
    assert answers == ["answer ü 1".encode()] * 3
    assert work.done == 1
    (name,) = [key async for key in redis.scan_iter()]
    assert DAY_S - 60 < await redis.ttl(name) <= DAY_S


async def test_same_requests_at_once_do_the_work_once(
    keys: Idempotency, elsewhere: Idempotency
) -> None:
    work = Work(is_open=False)
    posts = [asyncio.create_task(once(side, work)) for side in (keys, elsewhere) * 32]
    await work.begun.wait()
    work.gate.set()
    assert set(await asyncio.gather(*posts)) == {"answer ü 1".encode()}
    assert work.done == 1


async def test_another_body_is_refused_whether_the_first_is_done_or_not(
    keys: Idempotency, elsewhere: Idempotency
) -> None:
    work = Work(is_open=False)
    first = asyncio.create_task(once(keys, work))
    await work.begun.wait()
    for _ in range(2):
        with pytest.raises(InputError) as caught:
            await once(elsewhere, work, body=b'{"other": 1}')
        assert caught.value.field == "Idempotency-Key"
        work.gate.set()
        await first
    assert work.done == 1


@pytest.mark.parametrize(
    "other",
    [
        {"key": "K"},
        {"scope": ("other", "/rectify", "run")},
        {"scope": ("tenant", "/audit", "run")},
        {"scope": ("tenant", "/rectify", "")},
        {"scope": ("tenant", "/rectify"), "key": "run"},
        {"scope": ("tenant/rectify", "run", "")},
    ],
)
async def test_key_elsewhere_is_another_key(keys: Idempotency, other: dict[str, Any]) -> None:
    work = Work()
    await once(keys, work)
    await once(keys, work, **other)
    assert work.done == 2


async def test_failed_work_is_not_kept(keys: Idempotency, redis: Redis) -> None:
    work = Work(ChatError("away"))
    with pytest.raises(ChatError):
        await once(keys, work)
    assert await redis.dbsize() == 0
    assert await once(keys, work) == "answer ü 2".encode()


async def test_failure_hands_the_work_to_one_who_waits(
    keys: Idempotency, elsewhere: Idempotency
) -> None:
    work = Work(ChatError("away"), is_open=False)
    first = asyncio.create_task(once(keys, work))
    await work.begun.wait()
    others = [asyncio.create_task(once(side, work)) for side in (keys, elsewhere) * 4]
    work.gate.set()
    with pytest.raises(ChatError):
        await first
    assert set(await asyncio.gather(*others)) == {"answer ü 2".encode()}
    assert work.done == 2


async def test_cancelled_work_frees_the_key(keys: Idempotency, redis: Redis) -> None:
    work = Work(is_open=False)
    first = asyncio.create_task(once(keys, work))
    await work.begun.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await redis.dbsize() == 0


async def test_waiting_ends_with_the_deadline(keys: Idempotency, elsewhere: Idempotency) -> None:
    work = Work(is_open=False)
    first = asyncio.create_task(once(keys, work))
    await work.begun.wait()
    for side in (keys, elsewhere):
        with pytest.raises(DeadlineError):
            await once(side, work, within=0.05)
    work.gate.set()
    await first


async def test_key_of_a_dead_holder_expires_with_its_deadline(
    keys: Idempotency, elsewhere: Idempotency, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = Work(is_open=False)
    with monkeypatch.context() as patched:
        patched.setattr("rectifier.idempotency.LEASE_MARGIN_S", -29.5)
        first = asyncio.create_task(once(keys, dead))
        await dead.begun.wait()
    work = Work()
    assert await once(elsewhere, work) == "answer ü 1".encode()
    dead.gate.set()
    await first  # too late: the heir's answer stays
    assert await once(keys, dead) == "answer ü 1".encode()
    assert (work.done, dead.done) == (1, 1)


@pytest.mark.parametrize("key", ["", "k" * (KEY_LIMIT + 1)])
async def test_key_of_wrong_length_is_refused(keys: Idempotency, key: str) -> None:
    with pytest.raises(InputError):
        await once(keys, Work(), key=key)


async def test_redis_away_is_a_state_error_and_no_work_is_done(tmp_path: Path) -> None:
    async with open_redis(f"unix://{tmp_path}/none.sock") as client:
        work = Work()
        with pytest.raises(StateError):
            await once(Idempotency(client), work)
        assert work.done == 0


async def test_answer_is_returned_where_it_cannot_be_kept(keys: Idempotency, redis: Redis) -> None:
    async def work() -> bytes:
        await redis.config_set("maxmemory", 1)
        return b"done"

    try:
        assert await once(keys, work) == b"done"
    finally:
        await redis.config_set("maxmemory", 0)
