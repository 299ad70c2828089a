"""The store on Qdrant: a server over gRPC or HTTP, or ``:memory:``."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import grpc  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from numpy.typing import NDArray
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import ApiException

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
from rectifier_core.errors import StoreError, StoreMismatchError
from rectifier_core.indicator import IndicatorId, Status
from rectifier_core.limits import check_id, is_id
from rectifier_core.payload import payload_of
from rectifier_core.store import Binding, Neighbour, StoredIndicator

MEMORY = ":memory:"
HTTP_PORT = 6333
GRPC_PORT = 6334
GRPC_PROBE_S = 1.0  # seconds

# What the client raises: over HTTP, over gRPC, and where it is the engine itself (``:memory:``).
_CLIENT_ERRORS = (
    ApiException,
    QdrantException,
    grpc.RpcError,
    grpc.aio.UsageError,
    ValueError,
    RuntimeError,
    OSError,
)


class QdrantStore:
    """Keeps indicators in one collection a model, behind an alias.

    The alias says which collection is in use: re-embedding fills another one and moves the alias.
    """

    def __init__(
        self,
        url: str = MEMORY,
        *,
        api_key: str | None = None,
        alias: str = "rectifier",
        timeout_s: float = 10.0,
        grpc_port: int | None = None,
    ) -> None:
        """Keep where the server is; nothing is connected before `open`.

        Args:
            url: Of the HTTP interface, or ``:memory:``.
            api_key: Sent with every request.
            alias: Name of the alias, and prefix of the collections behind it.
            timeout_s: Seconds that one request may take.
            grpc_port: Where gRPC is spoken; absent: 6334 where ``url`` has the default port, or
                none. Where nothing listens there, HTTP serves.
        """
        self._url = url
        self._api_key = api_key
        self._alias = alias
        self._timeout_s = timeout_s
        self._grpc_port = grpc_port
        self._connected: AsyncQdrantClient | None = None
        self._dimension = 0

    async def open(self, *, model: str, dimension: int) -> None:
        """Connect, and make the collection of this embedding model ready.

        Raises:
            StoreMismatchError: The alias leads to a collection of another model or dimension.
            StoreError: The server did not answer.
        """
        wanted = Binding(model, dimension)
        if await self.binding() is None:
            name = collection_name(self._alias, wanted)
            await self._create(name, wanted)
            check_binding(await self._binding(name), wanted, where=f"the collection {name}")
            await self._lead_to(name)
        found = await self.binding()
        if found is None:
            raise StoreError(f"the alias {self._alias} was removed while it was made")
        check_binding(found, wanted, where=f"the collection behind {self._alias}")
        self._dimension = dimension

    async def upsert(self, stored: Sequence[StoredIndicator]) -> None:
        """Write all of them; each is replaced whole where its id exists.

        Raises:
            InputError: A vector, a text or an id cannot be kept; nothing is written.
            ConflictError: An id belongs to another pool or tenant.
            StoreError: The server did not answer; some may be written.
        """
        check_stored(stored, dimension=self._dimension)
        for batch in batches(stored, dimension=self._dimension):
            await self._check_owners(batch)
            await self._upsert(self._alias, batch)

    async def get(
        self, ids: Sequence[IndicatorId], *, tenant: str, pool: str
    ) -> list[StoredIndicator]:
        """Return those that exist in this pool, in the order of ``ids``.

        Raises:
            StoreError: The server did not answer.
        """
        found: dict[str, StoredIndicator] = {}
        for batch in batches([one for one in ids if is_id(one)], dimension=self._dimension):
            async with self._asking() as client:
                records = await client.retrieve(self._alias, list(batch), with_vectors=True)
            found |= {entry.indicator.id: entry for entry in map(_stored, records)}
        return [
            entry
            for entry in map(found.get, ids)
            if entry and (entry.indicator.tenant, entry.indicator.pool) == (tenant, pool)
        ]

    async def delete(self, ids: Sequence[IndicatorId], *, tenant: str, pool: str) -> None:
        """Remove those that exist in this pool.

        Raises:
            StoreError: The server did not answer; some may be removed.
        """
        for batch in batches([one for one in ids if is_id(one)], dimension=self._dimension):
            chosen = _filter(tenant=tenant, pool=pool, ids=batch)
            async with self._asking() as client:
                await client.delete(self._alias, models.FilterSelector(filter=chosen), wait=True)

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
            StoreError: The server did not answer.
        """
        if after is not None:
            check_id(after, field="after")
        async with self._asking() as client:
            records, _ = await client.scroll(
                self._alias,
                scroll_filter=_filter(tenant=tenant, pool=pool, statuses=_only(status)),
                offset=after,
                limit=limit + 1,  # the offset's own point comes first
                with_vectors=True,
            )
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
            StoreError: The server did not answer.
        """
        check_vector(definition, dimension=self._dimension, field="definition")
        if not statuses:
            return []
        async with self._asking() as client:
            answer = await client.query_points(
                self._alias,
                query=definition.tolist(),
                using="definition",
                query_filter=_filter(tenant=tenant, pool=pool, statuses=statuses),
                search_params=None if self._url == MEMORY else models.SearchParams(exact=True),
                limit=limit,
                with_payload=True,
            )
        return neighbours((point.payload or {}, point.score) for point in answer.points)

    async def binding(self) -> Binding | None:
        """Return what the collection in use is bound to, also before `open`; None without one.

        Raises:
            StoreMismatchError: It is not one of ours.
            StoreError: The server did not answer.
        """
        self._connected = self._connected or await self._connect()
        collection = await self._collection()
        return None if collection is None else await self._binding(collection)

    async def switch(self, binding: Binding, stored: AsyncIterable[StoredIndicator]) -> int:
        """Fill another collection and move the alias to it; the old one stays on the server.

        Raises:
            InputError: A vector does not fit ``binding``; nothing is switched, as with any error.
            StoreError: The server did not answer.
        """
        name = collection_name(self._alias, binding, taken=await self._collection())
        async with self._asking() as client:  # what an earlier try has left
            await client.delete_collection(name)
        await self._create(name, binding)
        count = 0
        async for batch in batched(stored, dimension=binding.dimension):
            check_stored(batch, dimension=binding.dimension)
            await self._upsert(name, batch)
            count += len(batch)
        await self._lead_to(name)
        self._dimension = binding.dimension
        return count

    async def check(self) -> None:
        """Return where the server answers and the alias leads somewhere.

        Raises:
            StoreError: It does not.
        """
        if await self._collection() is None:
            raise StoreError(f"the alias {self._alias} does not exist")

    async def close(self) -> None:
        """Release the connections."""
        client, self._connected = self._connected, None
        if client is not None:
            await client.close()

    async def _connect(self) -> AsyncQdrantClient:
        if self._url == MEMORY:
            return AsyncQdrantClient(MEMORY)
        grpc_port = await self._listening_grpc_port()
        return AsyncQdrantClient(
            url=self._url,
            port=HTTP_PORT,
            grpc_port=grpc_port or GRPC_PORT,
            prefer_grpc=grpc_port is not None,
            timeout=max(1, round(self._timeout_s)),
            # As a header it is sent all the same; as an argument it warns about http on every start.
            headers={"api-key": self._api_key} if self._api_key else None,
            check_compatibility=False,  # asks in a thread of its own, and warns where no log is
        )

    async def _listening_grpc_port(self) -> int | None:
        address = urlsplit(self._url)
        # Behind another HTTP port the gRPC port is anyone's guess, or another server's.
        guess = GRPC_PORT if address.port in {None, HTTP_PORT} else None
        port = self._grpc_port or guess
        if port is None:
            return None
        try:
            async with asyncio.timeout(GRPC_PROBE_S):
                _, writer = await asyncio.open_connection(address.hostname, port)
        except OSError:  # a timeout is one
            return None
        writer.close()
        return port

    async def _collection(self) -> str | None:
        """Return the collection that the alias leads to."""
        async with self._asking() as client:
            answer = await client.get_aliases()
        names = (one.collection_name for one in answer.aliases if one.alias_name == self._alias)
        return next(names, None)

    async def _upsert(self, collection: str, batch: Sequence[StoredIndicator]) -> None:
        points = [
            models.PointStruct(
                id=entry.indicator.id,
                vector=vectors_of(entry),
                payload=payload_of(entry.indicator),
            )
            for entry in batch
        ]
        async with self._asking() as client:
            await client.upsert(collection, points, wait=True)

    async def _create(self, name: str, binding: Binding) -> None:
        """Make a collection with its indexes; what another process made first is as good."""
        async with self._asking() as client:
            exists = await client.collection_exists(name)
        if not exists:
            await self._create_collection(name, binding)
        await self._index(name)

    async def _lead_to(self, collection: str) -> None:
        """Move the alias, which comes last: where it leads, the collection is complete."""
        operation = models.CreateAlias(collection_name=collection, alias_name=self._alias)
        async with self._asking() as client:
            await client.update_collection_aliases(
                [models.CreateAliasOperation(create_alias=operation)]
            )

    async def _create_collection(self, name: str, binding: Binding) -> None:
        vector = models.VectorParams(size=binding.dimension, distance=models.Distance.COSINE)
        try:
            async with self._asking() as client:
                await client.create_collection(
                    name,
                    vectors_config={"trigger": vector, "definition": vector},
                    metadata={
                        "model": binding.model,
                        "dimension": binding.dimension,
                        "format": FORMAT,
                    },
                )
        except StoreError:
            # Another process may have made it since; it is compared as any other.
            async with self._asking() as client:
                if not await client.collection_exists(name):
                    raise

    async def _index(self, name: str) -> None:
        if self._url == MEMORY:
            return  # it has no payload indexes, and warns
        for field in INDEXED:
            async with self._asking() as client:
                await client.create_payload_index(
                    name, field, models.PayloadSchemaType.KEYWORD, wait=True
                )

    async def _binding(self, collection: str) -> Binding:
        async with self._asking() as client:
            config = (await client.get_collection(collection)).config
        metadata = config.metadata or {}
        if metadata.get("format") != FORMAT:
            raise StoreMismatchError(
                f"the collection {collection} was not made by this version of the service"
            )
        vectors = config.params.vectors
        sizes = {params.size for params in vectors.values()} if isinstance(vectors, dict) else set()
        dimension = sizes.pop() if len(sizes) == 1 else 0
        return Binding(str(metadata.get("model")), dimension)

    async def _check_owners(self, batch: Sequence[StoredIndicator]) -> None:
        by_id = {str(entry.indicator.id): entry for entry in batch}
        async with self._asking() as client:
            records = await client.retrieve(
                self._alias, list(by_id), with_payload=["tenant", "pool"], with_vectors=False
            )
        for record in records:
            check_owner(record.payload or {}, by_id[str(record.id)])

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[AsyncQdrantClient]:
        """Bound one request, and translate what the client raises."""
        if self._connected is None:
            raise StoreError("the store is not open")
        try:
            async with asyncio.timeout(self._timeout_s):
                yield self._connected
        except TimeoutError as exc:
            raise StoreError(f"Qdrant did not answer within {self._timeout_s:g} s") from exc
        except ResourceExhaustedResponse as exc:
            raise StoreError("Qdrant is overloaded", retry_after=exc.retry_after_s) from exc
        except _CLIENT_ERRORS as exc:
            raise StoreError(f"Qdrant did not do as asked: {type(exc).__name__}") from exc


def _filter(
    *,
    tenant: str | None = None,
    pool: str | None = None,
    statuses: Sequence[Status] | None = None,
    ids: Sequence[IndicatorId] | None = None,
) -> models.Filter | None:
    must: list[models.Condition] = []
    for key, value in (("tenant", tenant), ("pool", pool)):
        if value is not None:
            must.append(models.FieldCondition(key=key, match=models.MatchValue(value=value)))
    if statuses is not None:
        words = [status.value for status in statuses]
        must.append(models.FieldCondition(key="status", match=models.MatchAny(any=words)))
    if ids is not None:
        must.append(models.HasIdCondition(has_id=list(ids)))
    return models.Filter(must=must) if must else None


def _only(status: Status | None) -> list[Status] | None:
    return None if status is None else [status]


def _stored(record: models.Record) -> StoredIndicator:
    vectors = record.vector if isinstance(record.vector, dict) else {}
    return stored_of(record.payload or {}, vectors)
