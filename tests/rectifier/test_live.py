"""The live snapshot: it follows the store, and carries on without it."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from redis.asyncio import Redis

from rectifier.live import LiveSnapshot
from rectifier.settings import Settings
from rectifier_core.adapters.qdrant_store import QdrantStore
from rectifier_core.errors import StoreError
from rectifier_core.pools import Pools
from rectifier_core.testing.embedding import HashedEmbedder
from rectifier_core.testing.qdrant_http import QdrantHttp
from tests.support.service import Service, running
from tests.support.stores import an_indicator

WITHIN_S = 5.0
POLL_S = 0.02

BODY = {"name": "FERRY_COUNT", "definition": "Ferries are counted twice over a tide."}
SEARCH = "/pools/team/indicators/search?q=ferries+tide&by=words"


@pytest.fixture
def qdrant(tmp_path: Path) -> Iterator[QdrantHttp]:
    with QdrantHttp(tmp_path) as server:
        yield server


@pytest.fixture
async def pair(
    qdrant: QdrantHttp, redis_url: str, redis: Redis
) -> AsyncIterator[tuple[Service, Service]]:
    """Two instances over one store and one Redis."""
    settings = Settings(redis_url=redis_url, qdrant_url=qdrant.url)
    async with running(settings) as one, running(settings) as other:
        yield one, other


@asynccontextmanager
async def _snapshot(
    qdrant: QdrantHttp, redis: Redis, *, stale_after_s: float = 60.0
) -> AsyncIterator[tuple[LiveSnapshot, Pools]]:
    embedder = HashedEmbedder()
    store = QdrantStore(qdrant.url)
    await store.open(model=embedder.model, dimension=embedder.dimension)
    try:
        pools = Pools(store, embedder, redis)
        yield (
            LiveSnapshot(
                store,
                pools,
                dimension=embedder.dimension,
                poll_interval_s=POLL_S,
                stale_after_s=stale_after_s,
            ),
            pools,
        )
    finally:
        await store.close()


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(round(WITHIN_S / POLL_S)):
        if await condition():
            return
        await asyncio.sleep(POLL_S)
    raise AssertionError("it did not come true in time")


async def _is(state: bool) -> bool:
    return state


async def _finds(service: Service, names: list[str]) -> bool:
    return await _found(service) == names


async def _found(service: Service) -> list[str]:
    answer = await service.client.get(SEARCH)
    return [hit["name"] for hit in answer.json()["items"]]


async def test_another_instance_sees_a_change_within_5_seconds(
    pair: tuple[Service, Service],
) -> None:
    one, other = pair
    made = await one.post("/pools/team/indicators", BODY)
    assert await _found(one) == ["FERRY_COUNT"]
    await _until(partial(_finds, other, ["FERRY_COUNT"]))
    await other.client.patch(
        f"/pools/team/indicators/{made.json()['id']}", json={"status": "retired"}
    )
    await _until(partial(_finds, one, []))


async def test_audits_go_on_while_the_store_is_away(
    pair: tuple[Service, Service], qdrant: QdrantHttp
) -> None:
    service, _ = pair
    qdrant.fault = 500
    answer = await service.audit("17 * 23 = 381")
    ready = await service.client.get("/readyz")
    qdrant.fault = None
    assert answer["verdict"] == "fail"
    assert answer["retrieval"]["candidates"]
    assert ready.status_code == 503
    assert ready.json()["dependencies"] == {"store": "StoreError", "redis": "ok"}
    assert ready.json()["indicators"] > 0
    assert (await service.client.get("/readyz")).status_code == 200


async def test_snapshot_stays_as_it_was_while_the_store_is_away(
    qdrant: QdrantHttp, redis: Redis
) -> None:
    async with _snapshot(qdrant, redis) as (live, pools):
        await pools.put([an_indicator(1)])
        assert await live.refresh()
        confirmed = time.monotonic()
        await pools.put([an_indicator(2)])
        qdrant.fault = 500
        with pytest.raises(StoreError):
            await live.refresh()
        assert len(live.current) == 1
        assert live.age_s >= time.monotonic() - confirmed
        qdrant.fault = None
        assert await live.refresh()
        assert len(live.current) == 2


async def test_follower_recovers_by_itself(qdrant: QdrantHttp, redis: Redis) -> None:
    async with _snapshot(qdrant, redis) as (live, pools):
        await pools.put([an_indicator(1)])
        qdrant.fault = 500
        requests = len(qdrant.requests)
        follower = asyncio.create_task(live.follow())
        try:
            await _until(lambda: _is(len(qdrant.requests) > requests))
            qdrant.fault = None
            await _until(lambda: _is(len(live.current) == 1))
        finally:
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)


async def test_snapshot_that_nobody_confirmed_is_stale(qdrant: QdrantHttp, redis: Redis) -> None:
    async with _snapshot(qdrant, redis, stale_after_s=60.0) as (live, pools):
        before = live.is_stale
        await pools.create_pool(tenant="default", pool="team")
        await live.refresh()
        assert (before, live.is_stale) == (True, False)
    async with _snapshot(qdrant, redis, stale_after_s=0.0) as (live, _):
        await live.refresh()
        await _until(lambda: _is(live.is_stale))


async def test_nothing_is_built_anew_where_nothing_changed(
    qdrant: QdrantHttp, redis: Redis
) -> None:
    async with _snapshot(qdrant, redis) as (live, pools):
        await pools.put([an_indicator(1)])
        assert await live.refresh()
        held = live.current
        assert not await live.refresh()
        assert live.current is held
