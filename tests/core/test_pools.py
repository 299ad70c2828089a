"""Pools: changes in the store and on record, over a real engine and a real valkey-server."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from rectifier_core import pools as module
from rectifier_core.adapters.edge_store import EdgeStore
from rectifier_core.embedding import Vectors
from rectifier_core.errors import (
    ConflictError,
    EmbeddingError,
    InputError,
    NotFoundError,
    StateError,
    StoreError,
)
from rectifier_core.indicator import Example, Indicator, IndicatorId, Mode, Status, indicator_id
from rectifier_core.limits import EXAMPLES_LIMIT, NAME_LIMIT, TEXT_LIMIT
from rectifier_core.pools import PoolKey, Pools, PoolSummary
from rectifier_core.testing.embedding import HashedEmbedder
from tests.support.redis import redis, redis_url  # noqa: F401  # fixtures
from tests.support.stores import an_indicator, numbered

HERE: Any = {"tenant": "default", "pool": "math"}  # keyword arguments
MATH = PoolKey("default", "math")


class CountingEmbedder(HashedEmbedder):
    """Keeps the texts that it was sent."""

    def __init__(self) -> None:
        super().__init__(16)
        self.texts: list[str] = []

    async def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts += texts
        return await super().embed(texts)


class Crash(BaseException):
    """The process is gone."""


class CrashingStore(EdgeStore):
    """Ends the caller after or before a write, when told to."""

    crash: str = ""

    async def upsert(self, stored: Any) -> None:
        if self.crash == "before":
            raise Crash
        await super().upsert(stored)
        if self.crash == "after":
            raise Crash

    async def delete(self, ids: Any, *, tenant: str, pool: str) -> None:
        await super().delete(ids, tenant=tenant, pool=pool)
        if self.crash == "after":
            raise Crash


@dataclass(frozen=True, slots=True)
class Room:
    """The parts of a test."""

    pools: Pools
    store: CrashingStore
    embedder: CountingEmbedder
    redis: Redis

    async def stored(self) -> list[Indicator]:
        return [entry.indicator async for entry in self.store.scan()]

    async def ops(self, pool: str = "math") -> list[tuple[str, str]]:
        changes = await self.pools.changes(tenant="default", pool=pool)
        return [(change.op, change.id) for change in changes]


@pytest.fixture
async def room(
    redis: Redis,  # noqa: F811  # the fixture
    tmp_path: Path,
) -> AsyncIterator[Room]:
    store, embedder = CrashingStore(tmp_path), CountingEmbedder()
    await store.open(model=embedder.model, dimension=embedder.dimension)
    yield Room(Pools(store, embedder, redis), store, embedder, redis)
    await store.close()
    assert [key async for key in redis.scan_iter(match="*:lease")] == []


@pytest.fixture
def cases(shared: Path) -> dict[str, Any]:
    lines = (shared / "cases" / "cases.jsonl").read_text("utf-8").splitlines()
    return {case["id"]: case["input"] for case in map(json.loads, lines)}


def mined(fields: dict[str, str]) -> Indicator:
    texts: Any = {key: fields[key] for key in ("name", "definition", "trigger_condition")}
    return Indicator(id=indicator_id(**HERE, **texts), pool="math", **texts)


# Putting


async def test_a_put_is_stored_and_recorded(room: Room) -> None:
    result = await room.pools.put([an_indicator(1), an_indicator(2)])
    assert (result.created, result.updated, result.unchanged) == (
        (numbered(1), numbered(2)),
        (),
        (),
    )
    assert await room.stored() == [an_indicator(1), an_indicator(2)]
    first, second = await room.pools.changes(**HERE)
    assert (first.op, first.id, first.before, first.after) == (
        "put",
        numbered(1),
        None,
        an_indicator(1),
    )
    assert (first.seq, second.seq) == (1, 2)
    assert await room.pools.seqs() == {MATH: 2}
    assert await room.pools.versions() == {MATH: second.version}
    assert second.version.startswith("2-")


async def test_an_unchanged_indicator_is_neither_written_nor_recorded(room: Room) -> None:
    await room.pools.put([an_indicator(1), an_indicator(2)])
    version, texts = await room.pools.versions(), list(room.embedder.texts)
    room.store.crash = "before"  # a write would be noticed
    with pytest.raises(Crash):
        await room.pools.put([an_indicator(3)])
    room.embedder.texts[:] = texts
    room.store.crash = ""
    result = await room.pools.put([an_indicator(1), an_indicator(2)])
    assert result.unchanged == (numbered(1), numbered(2))
    assert result.created == result.updated == ()
    assert await room.pools.versions() == version
    assert room.embedder.texts == texts


async def test_an_update_embeds_only_the_text_that_changed(room: Room) -> None:
    old = an_indicator(1, trigger_condition="When a.", risk_alert="x")
    await room.pools.put([old])
    (before,) = await room.store.get([old.id], **HERE)
    room.embedder.texts.clear()
    assert (await room.pools.put([replace(old, risk_alert="y", status=Status.RETIRED)])).updated
    assert room.embedder.texts == []
    new = replace(old, definition="Another definition.")
    await room.pools.put([new])
    assert room.embedder.texts == [new.definition_text]
    (after,) = await room.store.get([old.id], **HERE)
    np.testing.assert_allclose(after.trigger, before.trigger, atol=1e-6)
    assert not np.allclose(after.definition, before.definition)
    change = (await room.pools.changes(**HERE))[-1]
    assert change.before is not None
    assert (change.before.definition, change.after) == (old.definition, new)


async def test_an_empty_trigger_is_embedded_as_its_definition(
    room: Room, cases: dict[str, Any]
) -> None:
    indicators = [mined(fields) for fields in cases["H14"]["indicators"]]
    await room.pools.put(indicators)
    assert all(text.strip() for text in room.embedder.texts)
    for stored in await room.store.get([one.id for one in indicators], **HERE):
        trigger, definition = await HashedEmbedder(16).embed(
            [stored.indicator.trigger_text, stored.indicator.definition_text]
        )
        np.testing.assert_allclose(stored.trigger, trigger, atol=1e-6)
        np.testing.assert_allclose(stored.definition, definition, atol=1e-6)


@pytest.mark.parametrize("blank", ["", " ", "\n\t\r", "\u200b", "\u3000\ufeff", "\0\x1f"])
async def test_a_trigger_that_shows_nothing_counts_as_none(room: Room, blank: str) -> None:
    await room.pools.put([an_indicator(n, trigger_condition=blank) for n in (1, 2, 3)])
    for stored in await room.store.get([numbered(n) for n in (3, 1, 2)], **HERE):
        assert stored.indicator.trigger_condition == ""
        np.testing.assert_allclose(stored.trigger, stored.definition, atol=1e-6)
    assert all(text.strip() for text in room.embedder.texts)


async def test_equal_names_with_different_meanings_are_two(
    room: Room, cases: dict[str, Any]
) -> None:
    case = cases["H16"]
    (old,), (new,) = map(mined, case["existing"]), map(mined, case["new"])
    await room.pools.put([old])
    await room.pools.put([new])
    assert {one.definition for one in await room.stored()} == {old.definition, new.definition}
    (vector,) = await room.embedder.embed(["Fence posts are counted as gaps."])
    near = await room.store.nearest(vector, **HERE, statuses=[Status.ACTIVE], limit=1)
    assert near[0].indicator == new


async def test_ten_parallel_adds_are_ten(room: Room, cases: dict[str, Any]) -> None:
    _, count, fields = cases["H17"]["indicators"]["$range"]
    indicators = [
        mined({key: text.replace("{i}", str(i)) for key, text in fields.items()})
        for i in range(count)
    ]
    await asyncio.gather(*(room.pools.put([one]) for one in indicators))
    assert {one.id for one in await room.stored()} == {one.id for one in indicators}
    assert (await room.pools.pool(**HERE)).active == 10
    assert [change.seq for change in await room.pools.changes(**HERE)] == list(range(1, 11))


async def test_parallel_puts_of_one_indicator_from_two_processes_agree(room: Room) -> None:
    other = Pools(room.store, CountingEmbedder(), room.redis)
    await asyncio.gather(
        *(
            pools.put([an_indicator(1, risk_alert=f"{n}")])
            for n in range(5)
            for pools in (room.pools, other)
        )
    )
    (stored,) = await room.stored()
    changes = await room.pools.changes(**HERE)
    assert changes[-1].after == stored
    for earlier, later in itertools.pairwise(changes):
        assert later.before == earlier.after


async def test_of_equal_ids_in_one_call_the_last_counts(room: Room) -> None:
    result = await room.pools.put([an_indicator(1, source="a"), an_indicator(1, source="b")])
    assert result.created == (numbered(1),)
    assert await room.stored() == [an_indicator(1, source="b")]


async def test_more_than_a_batch_goes_through(room: Room) -> None:
    count = 2 * module.CHANGE_BATCH + 1
    result = await room.pools.put(an_indicator(n, pool=f"pool-{n % 2}") for n in range(2 * count))
    assert len(result.created) == 2 * count
    assert await room.pools.seqs() == {
        PoolKey("default", "pool-0"): count,
        PoolKey("default", "pool-1"): count,
    }


async def test_an_id_of_another_pool_cannot_be_taken(room: Room) -> None:
    await room.pools.put([an_indicator(1)])
    for elsewhere in ({"pool": "code"}, {"tenant": "b"}):
        with pytest.raises(ConflictError):
            await room.pools.put([an_indicator(1, **elsewhere)])
    assert await room.stored() == [an_indicator(1)]
    assert await room.pools.seqs() == {MATH: 1}


async def test_a_pool_is_made_by_the_first_put_unless_told_otherwise(room: Room) -> None:
    with pytest.raises(NotFoundError):
        await room.pools.put([an_indicator(1)], create=False)
    assert await room.stored() == []
    await room.pools.create_pool(**HERE)
    await room.pools.put([an_indicator(1)], create=False)
    assert await room.stored() == [an_indicator(1)]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "\u200b "}, "name"),
        ({"name": "n" * (NAME_LIMIT + 1)}, "name"),
        ({"definition": " \n"}, "definition"),
        ({"definition": "d" * (TEXT_LIMIT + 1)}, "definition"),
        ({"trigger_condition": "t" * (TEXT_LIMIT + 1)}, "trigger_condition"),
        ({"risk_alert": "r" * (TEXT_LIMIT + 1)}, "risk_alert"),
        ({"definition": "a\udfff"}, "definition"),
        ({"pool": "Math"}, "pool"),
        ({"pool": ""}, "pool"),
        ({"tenant": ""}, "tenant"),
        ({"id": IndicatorId("7")}, "id"),
        ({"examples": (Example("t", "m", violated=True),) * (EXAMPLES_LIMIT + 1)}, "examples"),
        (
            {"examples": (Example("t", "m" * (TEXT_LIMIT + 1), violated=True),)},
            "examples.0.message",
        ),
    ],
)
async def test_what_is_over_the_limits_is_refused_whole(
    room: Room, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(InputError) as caught:
        await room.pools.put([an_indicator(1), an_indicator(2, **fields)])
    assert caught.value.field == field
    assert await room.stored() == []
    assert room.embedder.texts == []


async def test_what_is_at_the_limits_is_taken(room: Room) -> None:
    largest = an_indicator(
        1,
        name="n" * NAME_LIMIT,
        definition="d" * TEXT_LIMIT,
        trigger_condition="t" * TEXT_LIMIT,
        risk_alert="r" * TEXT_LIMIT,
        examples=(Example("t" * TEXT_LIMIT, "m" * TEXT_LIMIT, violated=True),) * EXAMPLES_LIMIT,
    )
    await room.pools.put([largest])
    assert await room.stored() == [largest]
    assert (await room.pools.changes(**HERE))[0].after == largest


# Crashes


@pytest.mark.parametrize("crash", ["before", "after"])
async def test_a_repeated_put_heals_a_crash(room: Room, crash: str) -> None:
    await room.pools.put([an_indicator(1)])
    room.store.crash = crash
    newer = [an_indicator(1, risk_alert="new"), an_indicator(2)]
    with pytest.raises(Crash):
        await room.pools.put(newer)
    assert await room.pools.seqs() == {MATH: 1}
    room.store.crash = ""
    result = await room.pools.put(newer)
    assert (result.created, result.updated) == ((numbered(2),), (numbered(1),))
    assert await room.ops() == [("put", numbered(1)), ("put", numbered(1)), ("put", numbered(2))]
    assert (await room.pools.put(newer)).unchanged == (numbered(1), numbered(2))


async def test_a_repeated_delete_heals_a_crash(room: Room) -> None:
    await room.pools.put([an_indicator(1), an_indicator(2)])
    room.store.crash = "after"
    with pytest.raises(Crash):
        await room.pools.delete([numbered(1)], **HERE)
    assert await room.stored() == [an_indicator(2)]
    room.store.crash = ""
    assert await room.pools.delete([numbered(1)], **HERE) == 1
    assert await room.pools.delete([numbered(1)], **HERE) == 0
    assert (await room.ops())[2:] == [("delete", numbered(1))]


async def test_a_start_records_what_a_crash_left_unrecorded(room: Room) -> None:
    await room.pools.put([an_indicator(1), an_indicator(2)])
    room.store.crash = "after"
    for attempt in (
        room.pools.put([an_indicator(1, risk_alert="new"), an_indicator(3)]),
        room.pools.delete([numbered(2)], **HERE),
    ):
        with pytest.raises(Crash):
            await attempt
    room.store.crash = ""
    assert await room.pools.reconcile() == 3
    assert await room.pools.reconcile() == 0
    assert sorted((await room.ops())[2:]) == [
        ("delete", numbered(2)),
        ("put", numbered(1)),
        ("put", numbered(3)),
    ]
    assert (await room.pools.pool(**HERE)).active == 2


async def test_a_start_takes_over_a_store_whose_redis_lost_everything(room: Room) -> None:
    await room.pools.put([an_indicator(1), an_indicator(2, pool="code", tenant="b:c")])
    await room.redis.flushall()
    assert await room.pools.versions() == {}
    await room.pools.reconcile()
    assert await room.pools.seqs() == {MATH: 1, PoolKey("b:c", "code"): 1}
    assert (await room.pools.seed([an_indicator(1, source="starter")])).created == ()
    assert (await room.pools.put([an_indicator(1)])).unchanged


async def test_an_indicator_missing_from_the_store_is_written_again_and_seen(room: Room) -> None:
    await room.pools.put([an_indicator(1)])
    await room.store.delete([numbered(1)], **HERE)
    assert (await room.pools.put([an_indicator(1)])).updated == (numbered(1),)
    assert await room.stored() == [an_indicator(1)]
    assert await room.pools.seqs() == {MATH: 2}


async def test_a_cancelled_put_is_recorded_where_it_is_stored(room: Room) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    class SlowStore(CrashingStore):
        async def upsert(self, stored: Any) -> None:
            await room.store.upsert(stored)
            begun.set()
            await go_on.wait()

        def __getattribute__(self, name: str) -> Any:
            own = {"upsert", "__class__"}
            return super().__getattribute__(name) if name in own else getattr(room.store, name)

    pools = Pools(SlowStore(Path()), room.embedder, room.redis)
    put = asyncio.create_task(pools.put([an_indicator(1)]))
    await begun.wait()
    put.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await put
    assert await room.ops() == [("put", numbered(1))]


async def test_a_client_that_does_not_decode_answers_does_as_well(
    room: Room,
    redis_url: str,  # noqa: F811  # the fixture
) -> None:
    client = Redis.from_url(redis_url, decode_responses=False)
    pools = Pools(room.store, room.embedder, client)
    await pools.put([an_indicator(1), an_indicator(2)])
    await pools.patch(numbered(1), **HERE, status=Status.RETIRED)
    await pools.delete([numbered(2)], **HERE)
    assert (await pools.seed([an_indicator(n) for n in (1, 2, 3)])).created == (numbered(3),)
    assert await pools.ids(**HERE) == {numbered(1), numbered(3)}
    for read in (pools, room.pools):
        assert await read.seqs() == {MATH: 5}
        assert await read.pools("default") == [await room.pools.pool(**HERE)]
    assert await pools.changes(**HERE) == await room.pools.changes(**HERE)
    assert await pools.reconcile() == 0
    await client.aclose()


# Patching and deleting


async def test_patches_at_the_same_time_both_count(room: Room) -> None:
    await room.pools.put([an_indicator(1)])
    room.embedder.texts.clear()
    await asyncio.gather(
        room.pools.patch(numbered(1), **HERE, status=Status.RETIRED),
        room.pools.patch(numbered(1), **HERE, mode=Mode.SHADOW),
    )
    wanted = an_indicator(1, status=Status.RETIRED, mode=Mode.SHADOW)
    assert await room.pools.get(numbered(1), **HERE) == wanted
    assert room.embedder.texts == []
    assert await room.pools.seqs() == {MATH: 3}
    assert await room.pools.patch(numbered(1), **HERE, mode=Mode.SHADOW) == wanted
    assert await room.pools.seqs() == {MATH: 3}


async def test_what_is_not_in_the_pool_is_not_found(room: Room) -> None:
    await room.pools.put([an_indicator(1)])
    places: Any = [{"tenant": "b", "pool": "math"}, {"tenant": "default", "pool": "code"}]
    for elsewhere in places:
        with pytest.raises(NotFoundError):
            await room.pools.get(numbered(1), **elsewhere)
        with pytest.raises(NotFoundError):
            await room.pools.patch(numbered(1), **elsewhere, status=Status.RETIRED)
        with pytest.raises(NotFoundError):
            await room.pools.page(**elsewhere)
        with pytest.raises(NotFoundError):
            await room.pools.pool(**elsewhere)
        assert await room.pools.delete([numbered(1)], **elsewhere) == 0
        assert await room.pools.changes(**elsewhere) == []
    assert await room.stored() == [an_indicator(1)]
    assert await room.pools.get(numbered(1), **HERE) == an_indicator(1)


async def test_a_deleted_indicator_is_gone_and_the_change_holds_it(room: Room) -> None:
    await room.pools.put([an_indicator(n) for n in (1, 2, 3)])
    assert (
        await room.pools.delete([numbered(1), numbered(1), numbered(3), numbered(9)], **HERE) == 2
    )
    assert await room.stored() == [an_indicator(2)]
    last = (await room.pools.changes(**HERE, since=4))[0]
    assert (last.op, last.before, last.after) == ("delete", an_indicator(3), None)
    assert await room.pools.ids(**HERE) == {numbered(2)}


# Whole pools


async def test_pools_are_listed_with_versions_and_counts(room: Room) -> None:
    statuses = [Status.ACTIVE, Status.ACTIVE, Status.CANDIDATE, Status.RETIRED]
    await room.pools.put([an_indicator(n, status=one) for n, one in enumerate(statuses)])
    await room.pools.patch(numbered(0), **HERE, status=Status.RETIRED)
    await room.pools.delete([numbered(2)], **HERE)
    await room.pools.create_pool(tenant="default", pool="empty")
    await room.pools.create_pool(tenant="other", pool="theirs")
    versions = {key.pool: version for key, version in (await room.pools.versions()).items()}
    assert await room.pools.pools("default") == [
        PoolSummary("empty", versions["empty"]),
        PoolSummary("math", versions["math"], active=1, candidate=0, retired=2),
    ]
    assert await room.pools.pool(**HERE) == PoolSummary("math", versions["math"], 1, 0, 2)
    assert await room.pools.pools("nobody") == []


async def test_a_pool_is_made_once(room: Room) -> None:
    assert await room.pools.create_pool(**HERE) is True
    assert await room.pools.create_pool(**HERE) is False
    assert await room.pools.page(**HERE) == []
    assert await room.ops() == [("create", "")]
    with pytest.raises(InputError):
        await room.pools.create_pool(tenant="default", pool="a b")


async def test_a_dropped_pool_is_gone_and_its_numbers_go_on(room: Room) -> None:
    await room.pools.put([an_indicator(n) for n in range(module.CHANGE_BATCH + 5)])
    await room.pools.put([an_indicator(999, pool="code")])
    (old,) = [await room.pools.versions()]
    assert await room.pools.delete_pool(**HERE) is True
    assert await room.pools.delete_pool(**HERE) is False
    assert [one.pool for one in await room.stored()] == ["code"]
    assert [one.pool for one in await room.pools.pools("default")] == ["code"]
    assert await room.pools.ids(**HERE) == frozenset()
    await room.pools.put([an_indicator(1)])
    assert (await room.pools.seqs())[MATH] > 2 * module.CHANGE_BATCH
    assert (await room.pools.versions())[MATH] != old[MATH]
    assert (await room.pools.pool(**HERE)).active == 1


async def test_equal_changes_lead_to_equal_versions_and_others_do_not(room: Room) -> None:
    async def version(pool: str, *indicators: Indicator) -> str:
        for one in indicators:
            await room.pools.put([one])
        return (await room.pools.pool(tenant="default", pool=pool)).version

    first = await version("math", an_indicator(1), an_indicator(2))
    await room.redis.flushall()
    await room.store.delete([numbered(1), numbered(2)], **HERE)
    assert await version("math", an_indicator(1), an_indicator(2)) == first
    await room.redis.flushall()
    await room.store.delete([numbered(1), numbered(2)], **HERE)
    assert await version("math", an_indicator(2), an_indicator(1)) != first


async def test_pages_of_a_pool_follow_one_another(room: Room) -> None:
    await room.pools.put(
        [an_indicator(n, status=Status.ACTIVE if n % 2 else Status.RETIRED) for n in range(7)]
    )
    first = await room.pools.page(**HERE, limit=3)
    second = await room.pools.page(**HERE, limit=9, after=first[-1].id)
    assert [one.id for one in first + second] == [numbered(n) for n in range(7)]
    active = await room.pools.page(**HERE, status=Status.ACTIVE)
    assert [one.id for one in active] == [numbered(n) for n in (1, 3, 5)]
    assert await room.pools.page(**HERE, after=numbered(6)) == []


async def test_changes_are_read_from_any_number_on(room: Room) -> None:
    await room.pools.put([an_indicator(n) for n in range(5)])
    assert [one.seq for one in await room.pools.changes(**HERE, since=3)] == [4, 5]
    assert [one.seq for one in await room.pools.changes(**HERE, limit=2)] == [1, 2]
    assert await room.pools.changes(**HERE, since=5) == []


async def test_all_numbers_come_in_one_round_trip(room: Room) -> None:
    for n in range(20):
        await room.pools.create_pool(tenant=f"t{n}", pool="math")
    before = (await room.redis.info("stats"))["total_commands_processed"]
    assert len(await room.pools.seqs()) == 20
    after = (await room.redis.info("stats"))["total_commands_processed"]
    assert after - before == 2  # it, and the question


# Starter pools


async def test_a_starter_pool_is_loaded_on_the_first_start_only(room: Room) -> None:
    starter = [an_indicator(n, source="starter") for n in range(4)]
    assert len((await room.pools.seed(starter)).created) == 4
    await room.pools.put([replace(starter[0], definition="Mended by a user.")])
    await room.pools.patch(starter[1].id, **HERE, status=Status.RETIRED)
    await room.pools.delete([starter[2].id], **HERE)
    now, version = await room.stored(), await room.pools.versions()
    room.embedder.texts.clear()
    again = await room.pools.seed(starter)
    assert (again.created, again.updated) == ((), ())
    assert (await room.stored(), await room.pools.versions()) == (now, version)
    assert room.embedder.texts == []
    assert (await room.pools.seed([*starter, an_indicator(9)])).created == (numbered(9),)


async def test_a_starter_does_not_touch_what_a_user_had_before(room: Room) -> None:
    await room.pools.put([an_indicator(1, source="import")])
    await room.pools.put([an_indicator(2, source="import")])
    await room.pools.delete([numbered(2)], **HERE)
    await room.pools.seed([an_indicator(n, source="starter") for n in (1, 2, 3)])
    assert await room.stored() == [
        an_indicator(1, source="import"),
        an_indicator(3, source="starter"),
    ]


async def test_a_dropped_starter_pool_does_not_come_back(room: Room) -> None:
    starter = [an_indicator(n) for n in range(3)]
    await room.pools.seed(starter)
    await room.pools.delete_pool(**HERE)
    await room.pools.seed(starter)
    assert await room.stored() == []
    assert await room.pools.versions() == {}


async def test_a_broken_off_first_start_is_completed(room: Room) -> None:
    starter = [an_indicator(n) for n in range(3)]
    room.store.crash = "after"
    with pytest.raises(Crash):
        await room.pools.seed(starter)
    room.store.crash = ""
    assert len((await room.pools.seed(starter)).created) == 3
    assert (await room.pools.pool(**HERE)).active == 3


async def test_starters_that_the_store_lost_come_back(room: Room) -> None:
    starter = [an_indicator(n) for n in range(4)]
    await room.pools.seed(starter)
    await room.pools.put([replace(starter[0], risk_alert="A user's."), an_indicator(7)])
    await room.pools.delete([numbered(1)], **HERE)
    await room.store.delete([numbered(n) for n in (0, 2, 3, 7)], **HERE)  # a new folder
    await room.pools.seed(starter)
    assert await room.pools.reconcile() == 2
    assert await room.stored() == starter[2:]
    assert (await room.pools.pool(**HERE)).active == 2


async def test_a_redis_that_lost_its_data_does_not_undo_what_users_changed(room: Room) -> None:
    starter = [an_indicator(n) for n in range(3)]
    await room.pools.seed(starter)
    await room.pools.put([replace(starter[0], risk_alert="A user's.")])
    before = await room.stored()
    await room.redis.flushall()
    await room.pools.seed(starter)
    await room.pools.reconcile()
    assert await room.stored() == before
    assert (await room.pools.pool(**HERE)).active == 3
    assert await room.pools.reconcile() == 0


async def test_two_processes_that_start_at_once_seed_once(room: Room) -> None:
    other = Pools(room.store, CountingEmbedder(), room.redis)
    starter = [an_indicator(n) for n in range(5)]
    results = await asyncio.gather(*(pools.seed(starter) for pools in (room.pools, other)))
    assert sorted(len(result.created) for result in results) == [0, 5]
    assert await room.pools.seqs() == {MATH: 5}


# Failures


async def test_an_absent_redis_is_a_state_error(room: Room, tmp_path: Path) -> None:
    gone = Redis(unix_socket_path=str(tmp_path / "gone"), retry=Retry(NoBackoff(), 0))
    pools = Pools(room.store, room.embedder, gone)
    for attempt in (
        pools.put([an_indicator(1)]),
        pools.seed([an_indicator(1)]),
        pools.delete([numbered(1)], **HERE),
        pools.create_pool(**HERE),
        pools.delete_pool(**HERE),
        pools.versions(),
        pools.pools("default"),
        pools.changes(**HERE),
        pools.ids(**HERE),
        pools.reconcile(),
    ):
        with pytest.raises(StateError) as caught:
            await attempt
        assert caught.value.__cause__ is not None
    await gone.aclose()
    assert await room.stored() == []


async def test_a_failing_embedder_leaves_everything_as_it_was(room: Room) -> None:
    room.embedder.error = EmbeddingError("away")
    with pytest.raises(EmbeddingError):
        await room.pools.put([an_indicator(1)])
    assert await room.stored() == []
    assert await room.pools.versions() == {}


async def test_a_closed_store_is_a_store_error_and_nothing_is_recorded(room: Room) -> None:
    await room.store.close()
    with pytest.raises(StoreError):
        await room.pools.put([an_indicator(1)])
    assert await room.pools.versions() == {}


async def test_a_lease_that_is_held_too_long_is_a_state_error(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEASE_WAIT_S", 0.1)
    lease = "rectifier:{pools}:default:math:lease"
    await room.redis.set(lease, "another", px=60_000)
    with pytest.raises(StateError) as caught:
        await room.pools.put([an_indicator(1)])
    assert caught.value.retry_after is not None
    assert await room.redis.exists(lease)  # it was not given back for its holder
    assert await room.stored() == []
    await room.redis.delete(lease)


async def test_a_record_whose_answer_was_lost_counts_once(room: Room) -> None:
    once: Any = room.pools._append

    async def twice(*arguments: Any) -> Any:  # as the client does where an answer is lost
        await once(*arguments)
        return await once(*arguments)

    room.pools._append = twice  # type: ignore[assignment]
    await room.pools.put([an_indicator(1), an_indicator(2)])
    await room.pools.put([an_indicator(1, risk_alert="new")])
    await room.pools.delete([numbered(2)], **HERE)
    assert [op for op, _ in await room.ops()] == ["put", "put", "put", "delete"]
    assert (await room.pools.pool(**HERE)).active == 1


async def test_a_lease_whose_answer_was_lost_is_held(room: Room) -> None:
    lease = "rectifier:{pools}:default:math:lease"
    for _ in range(2):
        await room.pools._take(lease, "mine")
    assert await room.redis.get(lease) == "mine"
    await room.redis.delete(lease)


async def test_a_change_that_came_between_is_not_overwritten_on_record(room: Room) -> None:
    await room.pools.put([an_indicator(1)])

    class Overtaken(CrashingStore):
        """Its lease ran out: another process changes the indicator during the write."""

        async def upsert(self, stored: Any) -> None:
            await room.store.upsert(stored)
            await room.redis.delete("rectifier:{pools}:default:math:lease")
            await room.pools.put([an_indicator(1, source="other")])

        def __getattribute__(self, name: str) -> Any:
            own = {"upsert", "__class__"}
            return super().__getattribute__(name) if name in own else getattr(room.store, name)

    late = Pools(Overtaken(Path()), room.embedder, room.redis)
    with pytest.raises(StateError, match="came between"):
        await late.put([an_indicator(1, source="late")])
    assert (await room.pools.changes(**HERE))[-1].after == an_indicator(1, source="other")
    assert await room.stored() == [an_indicator(1, source="other")]


def test_the_tenant_of_a_pool_may_hold_colons() -> None:
    key = PoolKey("a:b:{c}", "math")
    assert module._key_of(module._field(key)) == key
