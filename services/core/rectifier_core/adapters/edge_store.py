"""The store in this process: the Qdrant engine on a data folder, without a server.

The folder holds ``lock`` (who has it open), ``manifest.json`` (format, model, dimension, and which
folder of points is in use) and that folder, named after the model.
"""

import asyncio
import fcntl
import json
import os
import shutil
import socket
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import numpy as np
import qdrant_edge as edge
from numpy.typing import NDArray

from rectifier_core.adapters.points import (
    FORMAT,
    INDEXED,
    batched,
    batches,
    check_binding,
    check_owner,
    check_stored,
    check_vector,
    collection_name,
    neighbours,
    scanned,
    stored_of,
    vectors_of,
)
from rectifier_core.errors import RectifierError, StoreError, StoreMismatchError
from rectifier_core.indicator import IndicatorId, Status
from rectifier_core.limits import check_id, is_id
from rectifier_core.payload import payload_of
from rectifier_core.store import Binding, Neighbour, StoredIndicator

LOCK = "lock"
MANIFEST = "manifest.json"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a folder says about itself.

    Attributes:
        binding: The embedding model of its vectors.
        points: Name of the folder in it that holds the points.
    """

    binding: Binding
    points: str


class EdgeStore:
    """Keeps indicators in a folder that one process at a time has open.

    The engine is called in one thread of its own: it is not made for several, and blocks its
    thread. What was acknowledged is on the disk.
    """

    def __init__(self, folder: Path, *, timeout_s: float = 30.0) -> None:
        """Keep the names; nothing is opened before `open`.

        Args:
            folder: Made where it is missing.
            timeout_s: Seconds that one call may take, waiting for the calls before it included.
        """
        self._folder = folder
        self._timeout_s = timeout_s
        self._thread: ThreadPoolExecutor | None = None
        self._lock: int | None = None
        self._shard: edge.EdgeShard | None = None
        self._dimension = 0

    async def open(self, *, model: str, dimension: int) -> None:
        """Lock the folder and load its points, or begin with none.

        Raises:
            StoreMismatchError: It holds vectors of another model or dimension.
            StoreError: Another process has it open, or it cannot be read.
        """
        self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix="edge-store")
        await self._run(lambda: self._open(Binding(model, dimension)))

    async def upsert(self, stored: Sequence[StoredIndicator]) -> None:
        """Write all of them to the disk; each is replaced whole where its id exists.

        Raises:
            InputError: A vector, a text or an id cannot be kept; nothing is written.
            ConflictError: An id belongs to another pool or tenant; nothing is written.
            StoreError: The engine failed; some may be written.
        """
        check_stored(stored, dimension=self._dimension)
        if stored:
            await self._run(lambda: self._upsert(stored))

    async def get(
        self, ids: Sequence[IndicatorId], *, tenant: str, pool: str
    ) -> list[StoredIndicator]:
        """Return those that exist in this pool, in the order of ``ids``.

        Raises:
            StoreError: The engine failed.
        """
        known: list[int | UUID | str] = [one for one in ids if is_id(one)]
        records = await self._run(
            lambda: self._opened.retrieve(known, with_payload=True, with_vector=True)
        )
        found = {entry.indicator.id: entry for entry in map(_stored, records)}
        return [
            entry
            for entry in map(found.get, ids)
            if entry and (entry.indicator.tenant, entry.indicator.pool) == (tenant, pool)
        ]

    async def delete(self, ids: Sequence[IndicatorId], *, tenant: str, pool: str) -> None:
        """Remove those that exist in this pool, from the disk.

        Raises:
            StoreError: The engine failed; some may be removed.
        """
        known = [one for one in ids if is_id(one)]
        chosen = _filter(tenant=tenant, pool=pool, ids=known)
        await self._run(lambda: self._update(edge.UpdateOperation.delete_points_by_filter(chosen)))

    async def page(
        self,
        *,
        tenant: str | None = None,
        pool: str | None = None,
        status: Status | None = None,
        after: IndicatorId | None = None,
        limit: int,
    ) -> list[StoredIndicator]:
        """Return the first ``limit`` that match and whose id sorts after ``after``, by id.

        Raises:
            InputError: ``after`` is not an id.
            StoreError: The engine failed.
        """
        if after is not None:
            check_id(after, field="after")
        request = edge.ScrollRequest(
            offset=after,
            limit=limit + 1,  # the offset's own point comes first
            filter=_filter(tenant=tenant, pool=pool, statuses=None if status is None else [status]),
            with_payload=True,
            with_vector=True,
        )
        records, _ = await self._run(lambda: self._opened.scroll(request))
        entries = [_stored(record) for record in records if str(record.id) != after]
        return entries[:limit]

    def scan(
        self, *, tenant: str | None = None, pool: str | None = None, status: Status | None = None
    ) -> AsyncIterator[StoredIndicator]:
        """Yield all that match (of every tenant where ``tenant`` is None), sorted by id."""
        return scanned(self, tenant=tenant, pool=pool, status=status)

    async def nearest(
        self,
        definition: NDArray[np.float32],
        *,
        tenant: str,
        pool: str,
        statuses: Sequence[Status],
        limit: int,
    ) -> list[Neighbour]:
        """Return the nearest by the ``definition`` vector, nearest first, at most ``limit``.

        Raises:
            InputError: The vector has the wrong dimension, is not finite or is zero.
            StoreError: The engine failed.
        """
        check_vector(definition, dimension=self._dimension, field="definition")
        if not statuses:
            return []
        request = edge.QueryRequest(
            limit=limit,
            query=edge.Query.Nearest(definition.tolist(), using="definition"),
            filter=_filter(tenant=tenant, pool=pool, statuses=statuses),
            params=edge.SearchParams(exact=True),
            with_payload=True,
        )
        points = await self._run(lambda: self._opened.query(request))
        return neighbours((point.payload or {}, point.score) for point in points)

    async def binding(self) -> Binding | None:
        """Return what the folder is bound to, also before `open`; None without a manifest.

        Raises:
            StoreMismatchError: It is of another format.
            StoreError: It cannot be read.
        """
        manifest = await asyncio.to_thread(_read_manifest, self._folder)
        return None if manifest is None else manifest.binding

    async def switch(self, binding: Binding, stored: AsyncIterable[StoredIndicator]) -> int:
        """Fill another collection in the folder, let the manifest lead to it, remove the old one.

        Raises:
            InputError: A vector does not fit ``binding``; nothing is switched, as with any error.
            StoreError: The engine failed.
        """
        current = await asyncio.to_thread(_read_manifest, self._folder)
        taken = None if current is None else current.points
        manifest = Manifest(binding, collection_name("points", binding, taken=taken))
        shard = await self._run(lambda: _create(self._folder / manifest.points, binding))
        count = 0
        try:
            async for batch in batched(stored, dimension=binding.dimension):
                check_stored(batch, dimension=binding.dimension)
                await self._run(partial(_upsert, shard, batch))
                count += len(batch)
            await self._run(partial(self._use, manifest, shard))
        except BaseException:
            await self._run(shard.close)
            raise
        return count

    async def check(self) -> None:
        """Return where the engine answers.

        Raises:
            StoreError: It does not.
        """
        await self._run(lambda: self._opened.info())

    async def close(self) -> None:
        """Close the engine and give the folder free."""
        thread, self._thread = self._thread, None
        if thread is not None:
            loop = asyncio.get_running_loop()
            try:
                await asyncio.shield(loop.run_in_executor(thread, _translated, self._close))
            finally:
                thread.shutdown(wait=False)

    async def _run(self, call: Callable[[], T]) -> T:
        """Call in the engine's thread."""
        if self._thread is None:
            raise StoreError("the store is not open")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await loop.run_in_executor(self._thread, _translated, call)
        except TimeoutError as exc:
            detail = f"the store in {self._folder} did not answer within {self._timeout_s:g} s"
            raise StoreError(detail) from exc

    @property
    def _opened(self) -> edge.EdgeShard:
        if self._shard is None:
            raise StoreError("the store is not open")
        return self._shard

    def _open(self, wanted: Binding) -> None:
        if self._shard is not None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self._folder)
        try:
            self._shard = self._load(wanted)
        except BaseException:
            self._close()
            raise
        self._dimension = wanted.dimension

    def _load(self, wanted: Binding) -> edge.EdgeShard:
        found = _read_manifest(self._folder)
        if found is not None:
            check_binding(found.binding, wanted, where=f"the folder {self._folder}")
        elif any(self._folder.glob("points_*")):
            raise StoreError(f"{self._folder} holds points, but no {MANIFEST} that says which")
        manifest = found or Manifest(wanted, collection_name("points", wanted))
        if found is None:
            _write_manifest(self._folder, manifest)
        points = self._folder / manifest.points
        if not points.exists():
            _create(points, wanted).close()
            _complete(points)
        return edge.EdgeShard.load(str(points))

    def _use(self, manifest: Manifest, shard: edge.EdgeShard) -> None:
        """Let the manifest lead to a new collection, and remove the old one."""
        shard.flush()
        shard.close()
        _complete(self._folder / manifest.points)
        old = _read_manifest(self._folder)
        _write_manifest(self._folder, manifest)
        self._opened.close()
        self._shard = edge.EdgeShard.load(str(self._folder / manifest.points))
        self._dimension = manifest.binding.dimension
        if old is not None:
            shutil.rmtree(self._folder / old.points, ignore_errors=True)

    def _close(self) -> None:
        shard, self._shard = self._shard, None
        lock, self._lock = self._lock, None
        try:
            if shard is not None:
                shard.close()
        finally:
            if lock is not None:
                os.close(lock)

    def _upsert(self, stored: Sequence[StoredIndicator]) -> None:
        by_id = {str(entry.indicator.id): entry for entry in stored}
        present = self._opened.retrieve(
            list(by_id), with_payload=["tenant", "pool"], with_vector=False
        )
        for record in present:
            check_owner(record.payload or {}, by_id[str(record.id)])
        for batch in batches(stored, dimension=self._dimension):
            _upsert(self._opened, batch)
        self._opened.flush()

    def _update(self, operation: edge.UpdateOperation) -> None:
        self._opened.update(operation)
        self._opened.flush()


def _translated(call: Callable[[], T]) -> T:
    try:
        return call()
    except RectifierError:
        raise
    except BaseException as exc:
        # The engine raises plain exceptions, and its panics are not even those; nothing stops this
        # thread that way.
        raise StoreError(f"the embedded store failed: {str(exc)[:300]}") from exc


def _locked(folder: Path) -> int:
    """Return the open lock file; the system gives it free when this process ends, however it ends.

    Raises:
        StoreError: Another holds it.
    """
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.truncate(lock, 0)
        os.write(lock, f"pid {os.getpid()} on {socket.gethostname()}\n".encode())
    except BlockingIOError as exc:
        holder = os.read(lock, 400).decode(errors="replace").strip() or "another process"
        os.close(lock)
        raise StoreError(
            f"{folder} is open already: {holder} holds it. One process at a time can; several "
            "need a Qdrant server (QDRANT_URL)."
        ) from exc
    except BaseException:
        os.close(lock)
        raise
    return lock


def _read_manifest(folder: Path) -> Manifest | None:
    path = folder / MANIFEST
    try:
        fields = json.loads(path.read_text("utf-8"))
        binding = Binding(str(fields["model"]), int(fields["dimension"]))
        manifest = Manifest(binding, Path(str(fields["points"])).name)
        found = fields["format"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as exc:
        raise StoreError(f"{path} cannot be read") from exc
    if found != FORMAT:
        raise StoreMismatchError(
            f"{path} is of format {found!r}; this version of the service reads format {FORMAT}"
        )
    return manifest


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it whole or not at all."""
    fields = {"format": FORMAT, **asdict(manifest.binding), "points": manifest.points}
    path = folder / MANIFEST
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(fields, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    _sync_folder(folder)


def _create(points: Path, binding: Binding) -> edge.EdgeShard:
    """Make an empty collection; it gets its name with `_complete`, once it is one."""
    part = _part(points)
    shutil.rmtree(part, ignore_errors=True)
    vector = edge.EdgeVectorParams(size=binding.dimension, distance=edge.Distance.Cosine)
    shard = edge.EdgeShard.create(
        str(part), edge.EdgeConfig(vectors={"trigger": vector, "definition": vector})
    )
    for field in INDEXED:
        shard.update(edge.UpdateOperation.create_field_index(field, edge.PayloadSchemaType.Keyword))
    shard.flush()
    return shard


def _complete(points: Path) -> None:
    shutil.rmtree(points, ignore_errors=True)  # of a switch that broke off
    _part(points).rename(points)
    _sync_folder(points.parent)


def _part(points: Path) -> Path:
    return points.with_name(f"part_{points.name}")


def _upsert(shard: edge.EdgeShard, batch: Sequence[StoredIndicator]) -> None:
    points = [
        edge.Point(entry.indicator.id, vectors_of(entry), payload_of(entry.indicator))
        for entry in batch
    ]
    shard.update(edge.UpdateOperation.upsert_points(points))


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _filter(
    *,
    tenant: str | None = None,
    pool: str | None = None,
    statuses: Sequence[Status] | None = None,
    ids: Sequence[IndicatorId] | None = None,
) -> edge.Filter:
    must: list[edge.FieldCondition | edge.HasIdCondition] = []
    for key, value in (("tenant", tenant), ("pool", pool)):
        if value is not None:
            must.append(edge.FieldCondition(key=key, match=edge.MatchValue(value)))
    if statuses is not None:
        words = [status.value for status in statuses]
        must.append(edge.FieldCondition(key="status", match=edge.MatchAny(words)))
    if ids is not None:
        must.append(edge.HasIdCondition(set(ids)))
    return edge.Filter(must=list(must))


def _stored(record: edge.Record) -> StoredIndicator:
    vectors = record.vector  # converted anew at each access
    return stored_of(record.payload or {}, vectors if isinstance(vectors, dict) else {})
