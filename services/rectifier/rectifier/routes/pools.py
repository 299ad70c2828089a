"""Pools and their indicators: list, create, read, change, search, import and export."""

import json
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any, assert_never

from fastapi import APIRouter, HTTPException, Path, Query, Request
from fastapi.responses import Response, StreamingResponse

from rectifier.parts import Parts, PartsOf
from rectifier.problems import documented
from rectifier.wire import (
    IndicatorIn,
    IndicatorPatch,
    MessageText,
    PoolName,
    SearchRequest,
    StrictRoute,
)
from rectifier_core.errors import InputError, NotFoundError
from rectifier_core.indicator import DEFAULT_TENANT, Indicator, IndicatorId, Status
from rectifier_core.interchange import Lines, Reader, Refused, line_of
from rectifier_core.pieces import pieces
from rectifier_core.pools import PoolSummary, PutResult
from rectifier_core.snapshot import Ranking

router = APIRouter(prefix="/pools", tags=["pools"], route_class=StrictRoute)

NDJSON = "application/x-ndjson"
IMPORT_BATCH = 100
REFUSED_SHOWN = 1_000
FIRST_ID = "00000000-0000-0000-0000-000000000000"

Pool = Annotated[PoolName, Path(description="The pool's name.")]
Id = Annotated[
    IndicatorId, Path(alias="id", description="The indicator's id.", examples=[FIRST_ID])
]
Limit = Annotated[int, Query(ge=1, le=1_000)]
HitLimit = Annotated[int, Query(ge=1, le=100)]


@dataclass(frozen=True, slots=True)
class PoolList:
    """The tenant's pools, by name."""

    items: tuple[PoolSummary, ...]


@dataclass(frozen=True, slots=True)
class IndicatorPage:
    """Some of a pool's indicators, sorted by id.

    Attributes:
        items: The indicators.
        next: Give it as ``after`` to read on; null at the end.
    """

    items: tuple[Indicator, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class Hits:
    """What a search found, best first: each an indicator with its ``score``."""

    items: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class RefusedLine:
    """A line that was not taken over.

    Attributes:
        line: Its number, from 1.
        reason: What is wrong with it.
    """

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did.

    Attributes:
        created: Indicators that are new.
        updated: Indicators that differ now.
        unchanged: Indicators that were there already.
        refused: Lines that were not taken over.
        reasons: The first 1,000 of them.
    """

    created: int
    updated: int
    unchanged: int
    refused: int
    reasons: tuple[RefusedLine, ...]


@router.get("", responses=documented(503))
async def pools(parts: PartsOf) -> PoolList:
    """List the pools with their versions and counts."""
    return PoolList(tuple(await parts.pools.pools(DEFAULT_TENANT)))


@router.get("/{pool}", responses=documented(404, 422, 503))
async def pool(pool: Pool, parts: PartsOf) -> PoolSummary:
    """Show one pool."""
    return await parts.pools.pool(tenant=DEFAULT_TENANT, pool=pool)


@router.put("/{pool}", responses=documented(422, 503))
async def create(pool: Pool, parts: PartsOf) -> PoolSummary:
    """Create an empty pool; one that exists stays as it is."""
    await parts.pools.create_pool(tenant=DEFAULT_TENANT, pool=pool)
    await parts.live.refresh()
    return await parts.pools.pool(tenant=DEFAULT_TENANT, pool=pool)


@router.delete("/{pool}", status_code=204, responses=documented(404, 422, 503))
async def drop(pool: Pool, parts: PartsOf) -> Response:
    """Delete a pool and all of its indicators."""
    if not await parts.pools.delete_pool(tenant=DEFAULT_TENANT, pool=pool):
        raise NotFoundError(f"there is no pool {pool!r}")
    await parts.live.refresh()
    return Response(status_code=204)


@router.get("/{pool}/indicators", responses=documented(404, 422, 503))
async def page(
    pool: Pool,
    parts: PartsOf,
    status: Status | None = None,
    after: IndicatorId | None = None,
    limit: Limit = 50,
) -> IndicatorPage:
    """List indicators, sorted by id."""
    found = await parts.pools.page(
        tenant=DEFAULT_TENANT, pool=pool, status=status, after=after, limit=limit
    )
    return IndicatorPage(tuple(found), found[-1].id if len(found) == limit else None)


@router.post(
    "/{pool}/indicators",
    status_code=201,
    responses=documented(400, 404, 408, 409, 413, 415, 422, 503),
)
async def add(pool: Pool, body: IndicatorIn, parts: PartsOf) -> Indicator:
    """Add an indicator; its id follows from its texts, so a repeated request adds nothing."""
    return await _put(parts, _read(pool, body))


@router.get("/{pool}/indicators/search", responses=documented(404, 422, 503))
async def search(
    pool: Pool,
    parts: PartsOf,
    q: Annotated[MessageText, Query(min_length=1)],
    limit: HitLimit = 20,
    by: Ranking = "hybrid",
) -> Hits:
    """Search the active indicators, as audits do, or by one ranking alone."""
    return await _search(parts, pool, q, limit, by)


@router.post("/{pool}/indicators/search", responses=documented(400, 404, 408, 413, 415, 422, 503))
async def search_long(pool: Pool, body: SearchRequest, parts: PartsOf) -> Hits:
    """Search with a text that is too long for a URL."""
    return await _search(parts, pool, body.q, body.limit, body.by)


@router.get(
    "/{pool}/indicators/export",
    response_class=StreamingResponse,
    responses=documented(404, 422, 503)
    | {200: {"content": {NDJSON: {}}, "description": "One indicator a line, sorted by id"}},
)
async def export(pool: Pool, parts: PartsOf) -> StreamingResponse:
    """Export a pool as JSON Lines in the neutral format."""
    await parts.pools.pool(tenant=DEFAULT_TENANT, pool=pool)

    async def lines() -> AsyncIterator[str]:
        async for stored in parts.store.scan(tenant=DEFAULT_TENANT, pool=pool):
            yield line_of(stored.indicator)

    return StreamingResponse(lines(), media_type=NDJSON)


@router.post(
    "/{pool}/indicators/import",
    responses=documented(404, 408, 409, 413, 415, 422, 503),
    openapi_extra={"requestBody": {"required": True, "content": {NDJSON: {"schema": {}}}}},
)
async def import_(pool: Pool, request: Request, parts: PartsOf) -> Imported:
    """Import JSON Lines in the neutral format; a line that is refused leaves the others alone."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != NDJSON:
        raise HTTPException(415, f"an import is sent as {NDJSON}")
    present = await parts.pools.ids(tenant=DEFAULT_TENANT, pool=pool)
    reader = Reader(pool=pool, tenant=DEFAULT_TENANT, source="import", present=present)
    result, refused, batch = PutResult(), list[Refused](), list[Indicator]()
    async for line in _lines(request):
        entry = reader.read(line)
        if isinstance(entry, Refused):
            refused.append(entry)
        elif entry is not None:
            batch.append(entry)
        if len(batch) == IMPORT_BATCH:
            result += await parts.pools.put(batch)
            batch = []
    result += await parts.pools.put(batch)
    await parts.live.refresh()
    return Imported(
        created=len(result.created),
        updated=len(result.updated),
        unchanged=len(result.unchanged),
        refused=len(refused),
        reasons=tuple(RefusedLine(one.line, one.reason) for one in refused[:REFUSED_SHOWN]),
    )


@router.get("/{pool}/indicators/{id}", responses=documented(404, 422, 503))
async def get(pool: Pool, id_: Id, parts: PartsOf) -> Indicator:
    """Show one indicator."""
    return await parts.pools.get(id_, tenant=DEFAULT_TENANT, pool=pool)


@router.put("/{pool}/indicators/{id}", responses=documented(400, 404, 408, 409, 413, 415, 422, 503))
async def put(pool: Pool, id_: Id, body: IndicatorIn, parts: PartsOf) -> Indicator:
    """Write an indicator under an id: edit it in place, or create it."""
    return await _put(parts, _read(pool, body, id_=id_))


@router.patch("/{pool}/indicators/{id}", responses=documented(400, 404, 408, 413, 415, 422, 503))
async def patch(pool: Pool, id_: Id, body: IndicatorPatch, parts: PartsOf) -> Indicator:
    """Set an indicator's status or mode."""
    after = await parts.pools.patch(
        id_, tenant=DEFAULT_TENANT, pool=pool, status=body.status, mode=body.mode
    )
    await parts.live.refresh()
    return after


@router.delete("/{pool}/indicators/{id}", status_code=204, responses=documented(404, 422, 503))
async def delete(pool: Pool, id_: Id, parts: PartsOf) -> Response:
    """Delete an indicator."""
    if not await parts.pools.delete([id_], tenant=DEFAULT_TENANT, pool=pool):
        raise NotFoundError(f"there is no such indicator in pool {pool!r}")
    await parts.live.refresh()
    return Response(status_code=204)


def _read(pool: str, body: IndicatorIn, *, id_: IndicatorId | None = None) -> Indicator:
    """Read a request's indicator by the rules of imports: one gate for texts from outside."""
    given = body.model_dump(mode="json", exclude_none=True) | ({"id": id_} if id_ else {})
    reader = Reader(
        pool=pool, tenant=DEFAULT_TENANT, source="api", present={id_} if id_ else frozenset()
    )
    match reader.read(json.dumps(given)):
        case Indicator() as indicator:
            return indicator
        case Refused(reason=reason):
            field, _, detail = reason.partition(": ")
            raise InputError(detail or reason, field=field if detail else None)
        case None:
            raise InputError("there is no indicator in the body")
        case _ as never:
            assert_never(never)


async def _put(parts: Parts, indicator: Indicator) -> Indicator:
    await parts.pools.put([indicator])
    await parts.live.refresh()
    return indicator


async def _search(parts: Parts, pool: str, q: str, limit: int, by: Ranking) -> Hits:
    if pool not in parts.live.known_pools():
        raise NotFoundError(f"there is no pool {pool!r}")
    vectors = None
    texts = pieces(q).texts
    if by != "words" and texts:
        vectors = await parts.embedder.embed(texts)
    hits = parts.live.current.search(
        vectors, q, tenant=DEFAULT_TENANT, pools={pool}, limit=limit, ranking=by
    )
    return Hits(tuple({**asdict(hit.indicator), "score": hit.score} for hit in hits))


async def _lines(request: Request) -> AsyncIterator[bytes]:
    lines = Lines()
    async for chunk in request.stream():
        for line in lines.feed(chunk):
            yield line
    for line in lines.end():
        yield line
