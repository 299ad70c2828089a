"""History: what changes come to, and the way back, over a real engine and a real valkey-server."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from rectifier_core import pools as module
from rectifier_core.adapters.edge_store import EdgeStore
from rectifier_core.embedding import Vectors
from rectifier_core.errors import ConflictError, EmbeddingError, NotFoundError, StateError
from rectifier_core.history import Change, Edit, Stretch, mark
from rectifier_core.indicator import Indicator, IndicatorId, Mode, Status
from rectifier_core.pools import Pools
from rectifier_core.testing.embedding import HashedEmbedder
from tests.support.redis import redis, redis_url  # noqa: F401  # fixtures
from tests.support.stores import an_indicator, numbered

HERE: Any = {"tenant": "default", "pool": "math"}  # keyword arguments
LEASE = "rectifier:{pools}:default:math:lease"


class Interrupted(HashedEmbedder):
    """Lets something happen before it answers, once."""

    def __init__(self) -> None:
        super().__init__(16)
        self.first: Callable[[], Awaitable[object]] | None = None

    async def embed(self, texts: Sequence[str]) -> Vectors:
        first, self.first = self.first, None
        if first:
            await first()
        return await super().embed(texts)


class Crash(BaseException):
    """The process is gone."""


class CrashingStore(EdgeStore):
    """Ends the caller after so many more writes and deletions."""

    left: int | None = None

    async def upsert(self, stored: Any) -> None:
        await super().upsert(stored)
        self._count()

    async def delete(self, ids: Any, *, tenant: str, pool: str) -> None:
        await super().delete(ids, tenant=tenant, pool=pool)
        self._count()

    def _count(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise Crash


class Room:
    """The parts of a test."""

    def __init__(self, store: CrashingStore, redis: Redis) -> None:  # noqa: F811
        self.store, self.embedder, self.redis = store, Interrupted(), redis
        self.pools = Pools(store, self.embedder, redis)

    async def held(self) -> list[Indicator]:
        return [entry.indicator async for entry in self.store.scan(**HERE)]

    async def seq(self) -> int:
        return int((await self.pools.pool(**HERE)).version.partition("-")[0])

    async def back(self, version: str | int) -> None:
        await self.pools.rollback(version, **HERE)


@pytest.fixture
async def room(
    redis: Redis,  # noqa: F811  # the fixture
    tmp_path: Path,
) -> AsyncIterator[Room]:
    store = CrashingStore(tmp_path)
    made = Room(store, redis)
    await store.open(model=made.embedder.model, dimension=made.embedder.dimension)
    yield made
    await store.close()
    assert [key async for key in redis.scan_iter(match="*:lease")] == []


def a_change(seq: int, before: Indicator | None, after: Indicator | None) -> Change:
    """Return a change whose ``before`` is on record as it is."""
    one = before or after
    assert one
    was = mark(before) if before else ""
    return Change(seq, f"{seq}-", "put" if after else "delete", one.id, before, after, was)


ONE, TWO = an_indicator(1), an_indicator(2)
ONE_RETIRED = replace(ONE, status=Status.RETIRED)


def test_what_ends_as_it_began_is_no_edit() -> None:
    stretch = Stretch(4)
    stretch.take([a_change(5, ONE, ONE_RETIRED), a_change(6, None, TWO)])
    stretch.take([a_change(7, ONE_RETIRED, ONE)])
    assert stretch.edits() == (Edit(TWO.id, None, TWO),)
    assert stretch.edits()[0].reverse == Edit(TWO.id, TWO, None)


def test_changes_of_the_pool_itself_are_no_edits() -> None:
    stretch = Stretch(0)
    stretch.take([Change(1, "1-", "create", IndicatorId(""), None, None, "")])
    assert stretch.edits() == ()
    assert stretch.newest == 1


@pytest.mark.parametrize("seqs", [(2,), (1, 3), (1, 1), (0,)])
def test_changes_that_do_not_follow_are_refused(seqs: tuple[int, ...]) -> None:
    with pytest.raises(ConflictError, match="lost"):
        Stretch(0).take(a_change(seq, None, ONE) for seq in seqs)


def test_hidden_indicator_is_found_by_its_record_alone() -> None:
    stretch = Stretch(5)
    stretch.take([replace(a_change(6, ONE, ONE_RETIRED), before=None)])
    assert stretch.hidden() == {ONE.id}
    stretch.search([a_change(2, None, ONE_RETIRED), a_change(3, None, replace(ONE, id=TWO.id))])
    with pytest.raises(ConflictError, match=ONE.id):
        stretch.edits()
    stretch.search([a_change(1, None, ONE)])
    assert stretch.edits() == (Edit(ONE.id, ONE, ONE_RETIRED),)


def test_entry_that_does_not_say_what_was_is_not_guessed() -> None:
    stretch = Stretch(0)
    stretch.take([replace(a_change(1, None, ONE), was=None)])
    with pytest.raises(ConflictError, match=ONE.id):
        stretch.edits()


@pytest.mark.parametrize("seed", range(2))
async def test_random_histories_come_back_and_forth(room: Room, seed: int) -> None:
    draw = random.Random(seed)
    await room.pools.create_pool(**HERE)
    kept = {await room.seq(): await room.held()}

    async def change() -> None:
        number = draw.randrange(1, 5)
        match draw.randrange(5):
            case 0:
                await room.pools.delete([numbered(number)], **HERE)
            case 1 if any(one.id == numbered(number) for one in kept[max(kept)]):
                status, mode = draw.choice(list(Status)), draw.choice(list(Mode))
                await room.pools.patch(numbered(number), **HERE, status=status, mode=mode)
            case 2:
                await room.back(draw.choice(list(kept)))
            case _:
                text = f"Error {draw.randrange(3)} is made."
                await room.pools.put([an_indicator(number, definition=text)])

    for _ in range(25):
        await change()
        kept[await room.seq()] = await room.held()
    for version in draw.sample(sorted(kept), len(kept)):
        await room.back(version)
        assert await room.held() == kept[version]
    for start, end in ((1, max(kept)), (max(kept), 1)):
        edits = (await room.pools.diff(start, end, **HERE)).edits
        old, new = ({one.id: one for one in kept[version]} for version in (start, end))
        assert edits == tuple(
            Edit(one, old.get(one), new.get(one))
            for one in sorted(old.keys() | new.keys())
            if old.get(one) != new.get(one)
        )


async def _forty(room: Room) -> list[Indicator]:
    """Retire 20 of 40 indicators, delete the others and add 10, all after version 40."""
    await room.pools.put([an_indicator(n) for n in range(40)])
    held = await room.held()
    await room.pools.put([replace(one, status=Status.RETIRED) for one in held[:20]])
    await room.pools.delete([one.id for one in held[20:]], **HERE)
    await room.pools.put([an_indicator(n) for n in range(50, 60)])
    return held


@pytest.mark.parametrize("writes", [0, 2, 4, 9])
async def test_rollback_that_crashed_is_ended_by_another(
    room: Room, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = await _forty(room)
    monkeypatch.setattr(module, "CHANGE_BATCH", 10)
    room.store.left = writes
    if writes < 5:  # 4 batches come back, 1 goes
        with pytest.raises(Crash):
            await room.back(40)
        await room.redis.delete(LEASE)
    await room.back(40)
    assert await room.held() == held
    room.store.left = None
    assert await room.pools.reconcile() == 0


async def test_cancelled_rollback_goes_to_its_end(room: Room) -> None:
    held = await _forty(room)

    class Cancelled(Pools):
        async def _undo(self, *arguments: Any) -> Any:
            task.cancel()
            return await super()._undo(*arguments)

    pools = Cancelled(room.store, room.embedder, room.redis)
    task = asyncio.create_task(pools.rollback(40, **HERE))
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert await room.held() == held


async def test_change_while_the_model_takes_its_time_is_undone_too(room: Room) -> None:
    await room.pools.put([an_indicator(n) for n in (1, 2)])
    held = await room.held()
    await room.pools.delete([numbered(1)], **HERE)
    # Its text, too, must be embedded anew: the rollback starts once more.
    room.embedder.first = lambda: room.pools.delete([numbered(2)], **HERE)
    await room.back(2)
    assert await room.held() == held


async def test_put_that_waits_for_the_rollback_is_kept(room: Room) -> None:
    await room.pools.put([an_indicator(1), an_indicator(2)])
    await room.pools.delete([numbered(1)], **HERE)
    await room.redis.set(LEASE, "another's", px=60_000)
    room.embedder.first = lambda: room.redis.delete(LEASE)
    await asyncio.gather(room.pools.rollback(1, **HERE), room.pools.put([an_indicator(3)]))
    changes = await room.pools.changes(**HERE)
    is_undone = any(one.op == "delete" and one.id == numbered(3) for one in changes)
    assert await room.held() == [an_indicator(1)] + ([] if is_undone else [an_indicator(3)])


async def test_rollback_that_lost_its_lease_writes_nothing_more(room: Room) -> None:
    await _forty(room)
    held = await room.held()

    class Late(Pools):
        async def _undo(self, *arguments: Any) -> Any:
            await room.redis.set(LEASE, "another's", px=60_000)
            return await super()._undo(*arguments)

    with pytest.raises(StateError, match="too long"):
        await Late(room.store, room.embedder, room.redis).rollback(40, **HERE)
    assert await room.redis.get(LEASE) == "another's"
    await room.redis.delete(LEASE)
    assert await room.held() == held


async def test_model_that_does_not_answer_leaves_the_pool_as_it_is(room: Room) -> None:
    await room.pools.put([ONE, TWO])
    await room.pools.delete([ONE.id], **HERE)
    version = await room.pools.versions()
    room.embedder.error = EmbeddingError("away")
    with pytest.raises(EmbeddingError):
        await room.back(2)
    assert await room.held() == [TWO]
    assert await room.pools.versions() == version


async def test_id_that_another_pool_took_is_a_conflict(room: Room) -> None:
    await room.pools.put([ONE])
    await room.pools.put([TWO])
    await room.pools.delete([ONE.id], **HERE)
    await room.pools.put([replace(ONE, pool="code")])
    with pytest.raises(ConflictError) as raised:
        await room.back(2)
    assert raised.value.kind == "id_taken"
    assert await room.held() == [TWO]


async def test_other_pools_and_tenants_stay_as_they_are(room: Room) -> None:
    others = [an_indicator(7, pool="code"), an_indicator(8, tenant="b")]
    await room.pools.put([ONE, *others])
    await room.pools.put([TWO])
    await room.back(1)
    assert [entry.indicator async for entry in room.store.scan()] == [ONE, *others]
    with pytest.raises(NotFoundError):
        await room.pools.rollback(1, tenant="c", pool="math")


async def test_what_a_store_lost_is_on_record_when_its_pool_is_deleted(room: Room) -> None:
    await room.pools.put([ONE, TWO])
    await room.store.delete([ONE.id], **HERE)  # with nobody's doing
    await room.pools.delete_pool(**HERE)
    await room.pools.create_pool(**HERE)
    await room.back(2)
    assert await room.held() == [ONE, TWO]
