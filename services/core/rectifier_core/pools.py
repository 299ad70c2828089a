"""Pools: every change of an indicator goes through here, into the store and then on record.

What is on record in Redis, all of it under one hash tag so that one script can write it:

- ``versions``: pool to version, which every process polls; a pool exists while it is in there.
- ``<pool>:changes``: a stream with one entry a change, its id the change's number.
- ``<pool>:recorded``: id to status and content hash, as the newest change left them.
- ``<pool>:counts``: indicators by status.
- ``ever``: every id that was ever recorded; a starter pool brings none of them back.

A change is a store write and then the record. A crash between the two leaves the record behind the
store: the next `Pools.put` of the same indicator sees that, and so does `Pools.reconcile`.
"""

import asyncio
import json
import uuid
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.exceptions import RedisError

from rectifier_core.embedding import Embedder
from rectifier_core.errors import ConflictError, NotFoundError, StateError
from rectifier_core.history import Change, Difference, Edit, Operation, Rollback, Stretch, mark
from rectifier_core.indicator import Indicator, IndicatorId, Mode, Status, check_pool_name
from rectifier_core.limits import checked_indicator
from rectifier_core.payload import indicator_of, payload_of
from rectifier_core.shielded import to_its_end
from rectifier_core.store import IndicatorStore, StoredIndicator
from rectifier_core.vectors import EMBED_TIMEOUT_S, with_vectors

CHANGES_KEPT = 10_000  # of each pool, about
CHANGE_BATCH = 100  # indicators that are written at once
CHANGES_READ = 500  # at once
ROLLBACK_TRIES = 5
LEASE_S = 60.0  # seconds: far longer than writing a batch takes
LEASE_WAIT_S = 15.0
LEASE_POLL_S = 0.02

T = TypeVar("T")

_TAG = "rectifier:{pools}"
_VERSIONS = f"{_TAG}:versions"
_EVER = f"{_TAG}:ever"

# KEYS: versions, ever, recorded, changes, counts.
# ARGV: pool, number of changes kept, then for each change: op, id, what must be recorded now, what
# is recorded then, indicator before, indicator after.
# Answers with the ids whose record another change had altered; nothing is done about those.
_RECORD = """
local versions, ever, recorded, changes, counts = unpack(KEYS)
local pool, kept = ARGV[1], ARGV[2]
local last = redis.call('XREVRANGE', changes, '+', '-', 'COUNT', 1)[1]
local version = last and last[2][2] or redis.call('HGET', versions, pool) or '0-'
local dash = string.find(version, '-', 1, true)
local seq, hash = tonumber(string.sub(version, 1, dash - 1)), string.sub(version, dash + 1)
local refused, is_dropped = {}, false
local now = redis.call('TIME')[1]

local function count(record, by)
  if record ~= '' then
    redis.call('HINCRBY', counts, string.match(record, '^[^:]*'), by)
  end
end

for i = 3, #ARGV, 6 do
  local op, id, expected, new, before, after = unpack(ARGV, i, i + 5)
  local found = redis.call('HGET', recorded, id) or ''
  if found == new and expected ~= new then
    -- On record already: the answer to an earlier run was lost.
  elseif found ~= expected then
    refused[#refused + 1] = id
  else
    seq = seq + 1
    hash = string.sub(redis.sha1hex(table.concat({hash, op, id, new}, '\\n')), 1, 16)
    version = string.format('%d-%s', seq, hash)
    count(found, -1)
    count(new, 1)
    if new == '' then
      redis.call('HDEL', recorded, id)
    else
      redis.call('HSET', recorded, id, new)
      redis.call('SADD', ever, id)
    end
    redis.call('XADD', changes, 'MAXLEN', '~', kept, string.format('%d-0', seq),
      'version', version, 'op', op, 'id', id, 'before', before, 'after', after,
      'was', found, 'time', now)
    is_dropped = op == 'drop'
  end
end

if is_dropped then
  redis.call('HDEL', versions, pool)
  redis.call('DEL', recorded, counts)
else
  redis.call('HSET', versions, pool, version)
end
return refused
"""

# KEYS: lease. ARGV: the token it was taken with, milliseconds that it is to last from now on.
_RENEW = """
return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0
"""

# KEYS: lease. ARGV: the token it was taken with.
_GIVE_BACK = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
"""


@dataclass(frozen=True, slots=True, order=True)
class PoolKey:
    """What names a pool.

    Attributes:
        tenant: Whose it is.
        pool: Its name.
    """

    tenant: str
    pool: str


@dataclass(frozen=True, slots=True)
class PoolSummary:
    """A pool at a glance.

    Attributes:
        pool: Its name.
        version: Number of its newest change and running hash over all, ``12-0f3a..``.
        active: Indicators of this status.
        candidate: Indicators of this status.
        retired: Indicators of this status.
    """

    pool: str
    version: str
    active: int = 0
    candidate: int = 0
    retired: int = 0


@dataclass(frozen=True, slots=True)
class PutResult:
    """What a put did.

    Attributes:
        created: Ids that were not on record.
        updated: Ids whose indicator differs now.
        unchanged: Ids whose indicator was the same; no change was made.
    """

    created: tuple[IndicatorId, ...] = ()
    updated: tuple[IndicatorId, ...] = ()
    unchanged: tuple[IndicatorId, ...] = ()

    def __add__(self, other: "PutResult") -> "PutResult":
        return PutResult(
            self.created + other.created,
            self.updated + other.updated,
            self.unchanged + other.unchanged,
        )


@dataclass(frozen=True, slots=True)
class _Entry:
    op: Operation
    id: str = ""
    expected: str = ""
    new: str = ""
    before: Indicator | None = None
    after: Indicator | None = None

    def arguments(self) -> tuple[str, ...]:
        return (self.op, self.id, self.expected, self.new, _json(self.before), _json(self.after))


class Pools:
    """Changes and reads pools. Changes of one pool happen one after another, in every process."""

    def __init__(
        self,
        store: IndicatorStore,
        embedder: Embedder,
        redis: Redis,
        *,
        embed_timeout_s: float = EMBED_TIMEOUT_S,
    ) -> None:
        """Keep the parts; all of them are opened and closed elsewhere.

        Args:
            store: Holds the indicators.
            embedder: Makes their vectors.
            redis: Holds the record; with or without ``decode_responses``.
            embed_timeout_s: Seconds that one batch of texts may take.
        """
        self._store = store
        self._embedder = embedder
        self._redis = redis
        self._embed_timeout_s = embed_timeout_s
        self._append = redis.register_script(_RECORD)
        self._renew = redis.register_script(_RENEW)
        self._give_back = redis.register_script(_GIVE_BACK)

    # Changes

    async def put(self, indicators: Iterable[Indicator], *, create: bool = True) -> PutResult:
        """Write indicators, each in place where its id exists; of equal ids the last one counts.

        Only texts that are new are embedded. A call that failed may be repeated.

        Args:
            indicators: Of any pools.
            create: Whether a pool that does not exist is made.

        Raises:
            InputError: One is not within the limits; nothing is written.
            NotFoundError: A pool does not exist, and ``create`` is False.
            ConflictError: An id belongs to another pool (``id_taken``).
            EmbeddingError: The embedding model did not answer; batches before it are written.
            StoreError: The store did not answer.
            StateError: Redis did not answer, or another change takes too long.
        """
        checked = [checked_indicator(one) for one in indicators]
        result = PutResult()
        for key, batch in _batches(checked):
            result += await self._put(key, batch, create=create)
        return result

    async def seed(self, indicators: Iterable[Indicator]) -> PutResult:
        """Write those of a starter pool that were never there; to be called at every start.

        What a user has changed, retired or deleted, or a pool dropped as a whole, stays that way.
        What a new store does not hold any more, as nobody deleted it, is written again.

        Raises:
            RectifierError: As `put`.
        """
        checked = [checked_indicator(one) for one in indicators]
        result = PutResult()
        for key, batch in _batches(checked):
            if fresh := await self._fresh(key, batch):
                result += await self._put(key, fresh, is_seed=True)
        return result

    async def patch(
        self,
        indicator_id: IndicatorId,
        *,
        tenant: str,
        pool: str,
        status: Status | None = None,
        mode: Mode | None = None,
    ) -> Indicator:
        """Set status or mode, and return the indicator as it is now.

        Raises:
            NotFoundError: It is not in this pool.
            StoreError: The store did not answer.
            StateError: Redis did not answer, or another change takes too long.
        """
        key = PoolKey(tenant, pool)
        async with self._changing(key):
            stored = await self._stored(key, indicator_id)
            after = replace(
                stored.indicator,
                status=status or stored.indicator.status,
                mode=mode or stored.indicator.mode,
            )
            await to_its_end(self._write(key, [replace(stored, indicator=after)]))
        return after

    async def delete(self, ids: Sequence[IndicatorId], *, tenant: str, pool: str) -> int:
        """Remove indicators, and return how many of them were there.

        Raises:
            StoreError: The store did not answer.
            StateError: Redis did not answer, or another change takes too long.
        """
        key = PoolKey(tenant, pool)
        removed = 0
        distinct = list(dict.fromkeys(ids))
        for start in range(0, len(distinct), CHANGE_BATCH):
            async with self._changing(key):
                batch = distinct[start : start + CHANGE_BATCH]
                removed += await to_its_end(self._remove(key, batch))
        return removed

    async def create_pool(self, *, tenant: str, pool: str) -> bool:
        """Make an empty pool; return False where it exists.

        Raises:
            InputError: ``pool`` is not a pool's name.
            StateError: Redis did not answer, or another change takes too long.
        """
        check_pool_name(pool)
        key = PoolKey(tenant, pool)
        async with self._changing(key):
            if await self._exists(key):
                return False
            await self._record(key, [_Entry("create")])
            return True

    async def delete_pool(self, *, tenant: str, pool: str) -> bool:
        """Remove a pool and all of its indicators; return False where it does not exist.

        Raises:
            StoreError: The store did not answer.
            StateError: Redis did not answer, or another change takes too long.
        """
        key = PoolKey(tenant, pool)
        async with self._changing(key):
            exists = await self._exists(key)
            await self._reconcile(key)  # what only the record holds is part of the history
            while page := await self._store.page(tenant=tenant, pool=pool, limit=CHANGE_BATCH):
                exists = True
                await to_its_end(self._remove(key, [entry.indicator.id for entry in page]))
            if exists:
                await self._record(key, [_Entry("drop")])
            return exists

    async def rollback(self, version: str | int, *, tenant: str, pool: str) -> Rollback:
        """Bring a pool back to what it was at a version, by new changes; none where it is that.

        What others change meanwhile is undone where it came first, and kept where it comes later.
        Only texts without a vector in the store are embedded. A call that failed may be repeated.

        Args:
            version: A version of this pool, or its number.
            tenant: Whose the pool is.
            pool: The pool, which must exist: one that was deleted is created first.

        Raises:
            NotFoundError: There is no such pool, or the version is none that is kept.
            ConflictError: It cannot be known what the pool was (``history_gap``), or an id of then
                belongs to another pool now (``id_taken``).
            EmbeddingError: The embedding model did not answer; nothing is changed.
            StoreError: The store did not answer.
            StateError: Redis did not answer, or other changes take too long.
        """
        key = PoolKey(tenant, pool)
        embedded: dict[IndicatorId, StoredIndicator] = {}
        for _ in range(ROLLBACK_TRIES):
            # A model may take its time: first without the lease.
            missing = _unembedded(await self._undoing(key, version), embedded)
            embedded |= {one.indicator.id: one for one in await self._embedded(key, missing)}
            async with self._changing(key) as keep:
                await self._reconcile(key)
                edits = await self._undoing(key, version)
                if not _unembedded(edits, embedded):
                    return await to_its_end(self._undo(key, edits, embedded, keep))
        raise StateError("other changes of the pool keep coming between", retry_after=1.0)

    async def reconcile(self) -> int:
        """Record what the store holds otherwise than the record says; return how many changes.

        To be called at every start, after `seed`: it heals a crash between store and record, and a
        Redis or a store that lost its data.

        Raises:
            StoreError: The store did not answer.
            StateError: Redis did not answer, or another change takes too long.
        """
        held: dict[PoolKey, dict[str, str]] = {key: {} for key in await self.versions()}
        async for entry in self._store.scan():
            held.setdefault(_key(entry.indicator), {})[entry.indicator.id] = mark(entry.indicator)
        changes = 0
        for key, marks in held.items():
            if marks != await self._recorded(key):
                async with self._changing(key):
                    changes += await self._reconcile(key)
        return changes

    # Reads

    async def get(self, indicator_id: IndicatorId, *, tenant: str, pool: str) -> Indicator:
        """Return an indicator.

        Raises:
            NotFoundError: It is not in this pool.
            StoreError: The store did not answer.
        """
        return (await self._stored(PoolKey(tenant, pool), indicator_id)).indicator

    async def page(
        self,
        *,
        tenant: str,
        pool: str,
        status: Status | None = None,
        after: IndicatorId | None = None,
        limit: int = 50,
    ) -> list[Indicator]:
        """Return the first ``limit`` indicators whose id sorts after ``after``, sorted by id.

        Raises:
            InputError: ``after`` is not an id.
            NotFoundError: The pool does not exist.
            StoreError: The store did not answer.
            StateError: Redis did not answer, which is asked where nothing was found.
        """
        found = await self._store.page(
            tenant=tenant, pool=pool, status=status, after=after, limit=limit
        )
        if not found:
            await self._require(PoolKey(tenant, pool))
        return [entry.indicator for entry in found]

    async def ids(self, *, tenant: str, pool: str) -> frozenset[IndicatorId]:
        """Return the ids on record in a pool.

        Raises:
            StateError: Redis did not answer.
        """
        with _redis_errors():
            found = await self._redis.hkeys(_recorded_key(PoolKey(tenant, pool)))
        return frozenset(IndicatorId(_text(one)) for one in found)

    async def pools(self, tenant: str) -> list[PoolSummary]:
        """Return the pools of a tenant by name, with versions and counts.

        Raises:
            StateError: Redis did not answer.
        """
        versions = {
            key: version for key, version in (await self.versions()).items() if key.tenant == tenant
        }
        keys = sorted(versions)
        with _redis_errors():
            pipeline = self._redis.pipeline(transaction=False)
            for key in keys:
                pipeline.hgetall(_counts_key(key))
            answers = await pipeline.execute() if keys else []
        return [
            PoolSummary(key.pool, versions[key], **_counts(answer))
            for key, answer in zip(keys, answers, strict=True)
        ]

    async def pool(self, *, tenant: str, pool: str) -> PoolSummary:
        """Return one pool.

        Raises:
            NotFoundError: It does not exist.
            StateError: Redis did not answer.
        """
        key = PoolKey(tenant, pool)
        version = await self._require(key)
        with _redis_errors():
            counts = await self._redis.hgetall(_counts_key(key))
        return PoolSummary(pool, version, **_counts(counts))

    async def versions(self) -> dict[PoolKey, str]:
        """Return the version of every pool of every tenant, in one round trip.

        Raises:
            StateError: Redis did not answer.
        """
        with _redis_errors():
            found = await self._redis.hgetall(_VERSIONS)
        return {_key_of(_text(field)): _text(version) for field, version in found.items()}

    async def seqs(self) -> dict[PoolKey, int]:
        """Return the number of the newest change of every pool, in one round trip.

        Raises:
            StateError: Redis did not answer.
        """
        versions = await self.versions()
        return {key: _seq(version) for key, version in versions.items()}

    async def changes(
        self, *, tenant: str, pool: str, since: int = 0, limit: int = 1_000
    ) -> list[Change]:
        """Return the changes after number ``since``, oldest first, at most ``limit``.

        The newest `CHANGES_KEPT` are kept, about; a first one above ``since + 1`` shows a gap.

        Raises:
            StateError: Redis did not answer.
        """
        key = PoolKey(tenant, pool)
        with _redis_errors():
            found = await self._redis.xrange(
                _changes_key(key), min=f"{since + 1}-0", max="+", count=limit
            )
        return [_change(entry_id, fields or {}) for entry_id, fields in found or ()]

    async def recent(
        self, *, tenant: str, pool: str, before: int | None = None, limit: int = 50
    ) -> list[Change]:
        """Return the changes below number ``before``, or the last ones, newest first.

        Raises:
            NotFoundError: The pool does not exist.
            StateError: Redis did not answer.
        """
        key = PoolKey(tenant, pool)
        newest = _seq(await self._require(key))
        last = newest if before is None else min(newest, before - 1)
        with _redis_errors():
            found = await self._redis.xrevrange(
                _changes_key(key), max=f"{last}-0", min="1-0", count=limit
            )
        return [_change(entry_id, fields or {}) for entry_id, fields in found or ()]

    async def diff(self, start: str | int, end: str | int, *, tenant: str, pool: str) -> Difference:
        """Return what differs between two versions of a pool, in either order.

        Raises:
            NotFoundError: There is no such pool, or a version is none that is kept.
            ConflictError: It cannot be known what differs (``history_gap``).
            StateError: Redis did not answer.
        """
        key = PoolKey(tenant, pool)
        first, last = await self._version(key, start), await self._version(key, end)
        older, newer = sorted((first.seq, last.seq))
        edits = await self._edits(key, older, newer)
        if last.seq < first.seq:
            edits = tuple(edit.reverse for edit in edits)
        return Difference(first.version, last.version, edits)

    async def _version(self, key: PoolKey, version: str | int) -> Change:
        """Return the change that led to a version."""
        seq = _seq(version)
        found: list[Change] = []
        if 0 < seq <= _seq(await self._require(key)):
            found = await self.changes(tenant=key.tenant, pool=key.pool, since=seq - 1, limit=1)
        if not found or version not in {found[0].seq, str(found[0].seq), found[0].version}:
            raise NotFoundError(f"pool {key.pool} has no version {version}, or no longer")
        return found[0]

    async def _edits(self, key: PoolKey, since: int, until: int) -> tuple[Edit, ...]:
        """Return what the changes after ``since`` up to ``until`` come to."""
        stretch = Stretch(since)
        while stretch.newest < until:
            count = min(CHANGES_READ, until - stretch.newest)
            page = await self.changes(
                tenant=key.tenant, pool=key.pool, since=stretch.newest, limit=count
            )
            if not page:
                raise ConflictError("history_gap", f"change {stretch.newest + 1} is lost")
            stretch.take(page)
        searched = 0
        while stretch.hidden() and (
            page := await self.changes(
                tenant=key.tenant, pool=key.pool, since=searched, limit=CHANGES_READ
            )
        ):
            stretch.search(page)
            searched = page[-1].seq
        return stretch.edits()

    async def _undoing(self, key: PoolKey, version: str | int) -> tuple[Edit, ...]:
        """Return the edits that bring the pool back; without the lease they may soon be others."""
        target = await self._version(key, version)
        if target.op == "drop":
            raise NotFoundError(f"at version {version} there was no pool {key.pool}")
        done = await self._edits(key, target.seq, _seq(await self._require(key)))
        return tuple(edit.reverse for edit in done)

    # Steps of a change; from here on the caller holds the pool's lease, but for what says otherwise

    async def _put(
        self,
        key: PoolKey,
        wanted: Sequence[Indicator],
        *,
        create: bool = True,
        is_seed: bool = False,
    ) -> PutResult:
        """Embed without the lease, as a model may take its time, and write with it."""
        embedded = await self._embedded(key, wanted)
        async with self._changing(key):
            if not create:
                await self._require(key)
            if is_seed:  # another process may have been faster
                fresh = {one.id for one in await self._fresh(key, wanted)}
                embedded = [entry for entry in embedded if entry.indicator.id in fresh]
            return await to_its_end(self._write(key, embedded))

    async def _write(self, key: PoolKey, wanted: Sequence[StoredIndicator]) -> PutResult:
        ids = [entry.indicator.id for entry in wanted]
        recorded = await self._recorded(key, ids)
        stored = await self._store.get(ids, tenant=key.tenant, pool=key.pool)
        present = {entry.indicator.id: entry.indicator for entry in stored}
        differing = [one for one in wanted if present.get(one.indicator.id) != one.indicator]
        await self._store.upsert(differing)
        unwritten = {one.indicator.id for one in differing}
        entries = [
            _Entry(
                "put",
                one.indicator.id,
                expected=recorded.get(one.indicator.id, ""),
                new=mark(one.indicator),
                before=_as_recorded(present.get(one.indicator.id), recorded),
                after=one.indicator,
            )
            for one in wanted
            if one.indicator.id in unwritten
            or recorded.get(one.indicator.id) != mark(one.indicator)
        ]
        await self._record(key, entries)
        changed = [IndicatorId(entry.id) for entry in entries]
        return PutResult(
            created=tuple(one for one in changed if one not in recorded),
            updated=tuple(one for one in changed if one in recorded),
            unchanged=tuple(one for one in ids if one not in set(changed)),
        )

    async def _undo(
        self,
        key: PoolKey,
        edits: Sequence[Edit],
        embedded: Mapping[IndicatorId, StoredIndicator],
        keep: Callable[[], Awaitable[None]],
    ) -> Rollback:
        back = [embedded[edit.id] for edit in edits if edit.after is not None]
        gone = [edit.id for edit in edits if edit.after is None]
        for start in range(0, len(back), CHANGE_BATCH):
            await keep()
            await self._write(key, back[start : start + CHANGE_BATCH])
        for start in range(0, len(gone), CHANGE_BATCH):
            await keep()
            await self._remove(key, gone[start : start + CHANGE_BATCH])
        return Rollback(await self._require(key), written=len(back), removed=len(gone))

    async def _remove(self, key: PoolKey, ids: Sequence[IndicatorId]) -> int:
        recorded = await self._recorded(key, ids)
        stored = await self._store.get(ids, tenant=key.tenant, pool=key.pool)
        present = {entry.indicator.id: entry.indicator for entry in stored}
        await self._store.delete(list(present), tenant=key.tenant, pool=key.pool)
        there = [one for one in ids if one in present or one in recorded]
        await self._record(
            key,
            [
                _Entry(
                    "delete",
                    one,
                    expected=recorded.get(one, ""),
                    before=_as_recorded(present.get(one), recorded),
                )
                for one in there
            ],
        )
        return len(there)

    async def _reconcile(self, key: PoolKey) -> int:
        recorded = await self._recorded(key)
        present, entries = set[str](), list[_Entry]()
        async for stored in self._store.scan(tenant=key.tenant, pool=key.pool):
            one, new = stored.indicator, mark(stored.indicator)
            present.add(one.id)
            if (expected := recorded.get(one.id, "")) != new:
                entries.append(_Entry("put", one.id, expected=expected, new=new, after=one))
        entries += [
            _Entry("delete", lost, expected=record)
            for lost, record in recorded.items()
            if lost not in present
        ]
        for start in range(0, len(entries), CHANGE_BATCH):
            await self._record(key, entries[start : start + CHANGE_BATCH])
        return len(entries)

    async def _record(self, key: PoolKey, entries: Sequence[_Entry]) -> None:
        if not entries:
            return
        keys = [_VERSIONS, _EVER, _recorded_key(key), _changes_key(key), _counts_key(key)]
        arguments = [part for entry in entries for part in entry.arguments()]
        with _redis_errors():
            refused = await self._append(keys, [_field(key), CHANGES_KEPT, *arguments])
        if refused:
            raise StateError(f"another change of pool {key.pool} came between; try again")

    @asynccontextmanager
    async def _changing(self, key: PoolKey) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Hold the pool's lease; it ends by itself where this process dies.

        Yields what makes it last anew: for changes that take more than a batch.
        """
        lease, token = f"{_TAG}:{_field(key)}:lease", uuid.uuid4().hex

        async def keep() -> None:
            with _redis_errors():
                is_ours = await self._renew([lease], [token, round(LEASE_S * 1_000)])
            if not is_ours:
                raise StateError("the change took too long; try again")

        try:
            with _redis_errors():
                await self._take(lease, token)
            yield keep
        finally:
            # Also where the taking was cancelled, as it may have come through. What was changed is
            # on record by now; a lease that cannot be given back runs out.
            with suppress(RedisError, OSError):
                await self._give_back([lease], [token])

    async def _take(self, lease: str, token: str) -> None:
        try:
            async with asyncio.timeout(LEASE_WAIT_S):
                while True:
                    holder = await self._redis.set(
                        lease, token, nx=True, get=True, px=round(LEASE_S * 1_000)
                    )
                    # Our own token: an earlier answer was lost, and the client asked again.
                    if holder in {None, token, token.encode()}:
                        return
                    await asyncio.sleep(LEASE_POLL_S)
        except TimeoutError as exc:
            raise StateError("another change of the pool takes long", retry_after=1.0) from exc

    async def _embedded(self, key: PoolKey, wanted: Sequence[Indicator]) -> list[StoredIndicator]:
        """Return them with vectors, stored ones where the text is the same; needs no lease."""
        ids = [one.id for one in wanted]
        return await with_vectors(
            wanted,
            self._embedder,
            stored=await self._store.get(ids, tenant=key.tenant, pool=key.pool),
            timeout_s=self._embed_timeout_s,
        )

    async def _stored(self, key: PoolKey, indicator_id: IndicatorId) -> StoredIndicator:
        found = await self._store.get([indicator_id], tenant=key.tenant, pool=key.pool)
        if not found:
            raise NotFoundError(f"there is no such indicator in pool {key.pool}")
        return found[0]

    async def _fresh(self, key: PoolKey, starters: Sequence[Indicator]) -> list[Indicator]:
        """Return those that were never there, or that the store lost with nobody's doing."""
        ids = [one.id for one in starters]
        stored = await self._store.get(ids, tenant=key.tenant, pool=key.pool)
        present = {entry.indicator.id: entry.indicator for entry in stored}
        recorded = await self._recorded(key, ids)
        with _redis_errors():
            known = await self._redis.smismember(_EVER, ids)

        def is_fresh(one: Indicator, *, is_known: bool) -> bool:
            if one.id in present:  # an earlier start wrote it and broke off, or it is a user's
                return not is_known and present[one.id] == one
            return not is_known or recorded.get(one.id) == mark(one)

        return [
            one
            for one, is_known in zip(starters, known, strict=True)
            if is_fresh(one, is_known=bool(is_known))
        ]

    async def _recorded(
        self, key: PoolKey, ids: Sequence[IndicatorId] | None = None
    ) -> dict[str, str]:
        """Return what is on record: of ``ids``, or of all."""
        with _redis_errors():
            if ids is None:
                found = await self._redis.hgetall(_recorded_key(key))
                return {_text(one): _text(record) for one, record in found.items()}
            marks = await self._redis.hmget(_recorded_key(key), list(ids)) if ids else []
        return {
            one: _text(record) for one, record in zip(ids, marks, strict=True) if record is not None
        }

    async def _exists(self, key: PoolKey) -> bool:
        with _redis_errors():
            return bool(await self._redis.hexists(_VERSIONS, _field(key)))

    async def _require(self, key: PoolKey) -> str:
        """Return the pool's version."""
        with _redis_errors():
            version = await self._redis.hget(_VERSIONS, _field(key))
        if version is None:
            raise NotFoundError(f"there is no pool {key.pool}")
        return _text(version)


@contextmanager
def _redis_errors() -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError) as exc:
        raise StateError("Redis did not answer as it should") from exc


def _batches(indicators: Iterable[Indicator]) -> Iterator[tuple[PoolKey, list[Indicator]]]:
    """Yield them by pool, each id once, as many at a time as are written under one lease."""
    by_pool: dict[PoolKey, dict[IndicatorId, Indicator]] = {}
    for one in indicators:
        by_pool.setdefault(_key(one), {})[one.id] = one
    for key, by_id in by_pool.items():
        distinct = list(by_id.values())
        for start in range(0, len(distinct), CHANGE_BATCH):
            yield key, distinct[start : start + CHANGE_BATCH]


def _unembedded(
    edits: Iterable[Edit], embedded: Mapping[IndicatorId, StoredIndicator]
) -> list[Indicator]:
    """Return what the edits lead to and ``embedded`` does not hold."""
    return [
        edit.after
        for edit in edits
        if edit.after is not None
        and (edit.id not in embedded or embedded[edit.id].indicator != edit.after)
    ]


def _as_recorded(present: Indicator | None, recorded: Mapping[str, str]) -> Indicator | None:
    """Return the stored indicator where the record is about it, and not about an earlier one."""
    if present is None or recorded.get(present.id) != mark(present):
        return None
    return present


def _key(indicator: Indicator) -> PoolKey:
    return PoolKey(indicator.tenant, indicator.pool)


def _field(key: PoolKey) -> str:
    return f"{key.tenant}:{key.pool}"


def _key_of(field: str) -> PoolKey:
    tenant, _, pool = field.rpartition(":")  # a pool's name holds no colon
    return PoolKey(tenant, pool)


def _recorded_key(key: PoolKey) -> str:
    return f"{_TAG}:{_field(key)}:recorded"


def _changes_key(key: PoolKey) -> str:
    return f"{_TAG}:{_field(key)}:changes"


def _counts_key(key: PoolKey) -> str:
    return f"{_TAG}:{_field(key)}:counts"


def _seq(version: str | int) -> int:
    return int(str(version).partition("-")[0])


def _counts(answer: Mapping[Any, Any]) -> dict[str, int]:
    counts = {_text(status): int(count) for status, count in answer.items()}
    return {status.value: counts.get(status.value, 0) for status in Status}


def _change(entry_id: Any, fields: Mapping[Any, Any]) -> Change:  # bytes or str, as configured
    texts = {_text(name): _text(value) for name, value in fields.items()}
    return Change(
        seq=int(_text(entry_id).partition("-")[0]),
        version=texts["version"],
        op=texts["op"],  # type: ignore[arg-type]  # the script writes no other
        id=IndicatorId(texts["id"]),
        before=_indicator(texts["before"]),
        after=_indicator(texts["after"]),
        was=texts.get("was"),
        time=int(texts["time"]) if "time" in texts else None,
    )


def _json(indicator: Indicator | None) -> str:
    return "" if indicator is None else json.dumps(payload_of(indicator), ensure_ascii=False)


def _indicator(text: str) -> Indicator | None:
    return indicator_of(json.loads(text)) if text else None


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
