"""The history of a pool: its changes, its versions, what lies between two, and the way back."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from rectifier.parts import PartsOf
from rectifier.problems import documented
from rectifier.routes.pools import Limit, Pool
from rectifier.wire import Strict, StrictRoute
from rectifier_core.history import VERSION, Change, Operation, Rollback
from rectifier_core.indicator import DEFAULT_TENANT, Indicator, IndicatorId

router = APIRouter(prefix="/pools", tags=["pools"], route_class=StrictRoute)

MAX_SEQ = 10**15  # far more than a pool will see, and exact in every JSON reader

Seq = Annotated[int, Query(ge=0, le=MAX_SEQ)]
VersionText = Annotated[str, Field(pattern=f"^{VERSION}$")]


class RollbackRequest(Strict):
    """Where to."""

    version: VersionText | Annotated[int, Field(ge=1)]
    """A version of the pool, or its number alone."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Some of a pool's changes, oldest first.

    Attributes:
        items: The changes; a first one above ``since + 1`` shows that older ones are not kept.
        next: Give it as ``since`` to read on; null at the end.
    """

    items: tuple[Change, ...]
    next: int | None


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a pool, and the change that led to it.

    Attributes:
        seq: Its number.
        version: Number and running hash.
        time: Seconds since 1970; null where it was not kept.
        op: What was done; ``create`` and ``drop`` are about the pool itself.
        id: The indicator; empty where it is about the pool.
        name: The indicator's name.
    """

    seq: int
    version: str
    time: int | None
    op: Operation
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Versions:
    """Some of a pool's versions, newest first.

    Attributes:
        items: The versions.
        next: Give it as ``before`` to read on; null at the end.
    """

    items: tuple[Version, ...]
    next: int | None


@dataclass(frozen=True, slots=True)
class Changed:
    """An indicator that both versions hold.

    Attributes:
        id: The indicator.
        name: Its name in the version compared to.
        before: The fields that differ, as they were.
        after: The same fields, as they became.
    """

    id: IndicatorId
    name: str
    before: dict[str, Any]  # fields of an indicator
    after: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PoolDiff:
    """What differs between two versions of a pool, each list by id.

    Attributes:
        from_version: The version compared from.
        to_version: The version compared to.
        added: Indicators that only the one compared to holds.
        removed: Indicators that only the one compared from holds.
        changed: Indicators that both hold, and that differ.
    """

    from_version: str
    to_version: str
    added: tuple[Indicator, ...]
    removed: tuple[Indicator, ...]
    changed: tuple[Changed, ...]


@router.get("/{pool}/changes", responses=documented(404, 422, 503))
async def changes(pool: Pool, parts: PartsOf, since: Seq = 0, limit: Limit = 100) -> Changes:
    """List changes, oldest first, each with the indicator before and after."""
    await parts.pools.pool(tenant=DEFAULT_TENANT, pool=pool)
    found = await parts.pools.changes(tenant=DEFAULT_TENANT, pool=pool, since=since, limit=limit)
    return Changes(tuple(found), found[-1].seq if len(found) == limit else None)


@router.get("/{pool}/versions", responses=documented(404, 422, 503))
async def versions(
    pool: Pool,
    parts: PartsOf,
    before: Annotated[int | None, Query(ge=1, le=MAX_SEQ)] = None,
    limit: Limit = 50,
) -> Versions:
    """List versions, newest first."""
    found = await parts.pools.recent(tenant=DEFAULT_TENANT, pool=pool, before=before, limit=limit)
    items = tuple(
        Version(one.seq, one.version, one.time, one.op, one.id, one.name) for one in found
    )
    is_more = len(found) == limit and found[-1].seq > 1
    return Versions(items, found[-1].seq if is_more else None)


@router.get("/{pool}/diff", responses=documented(404, 409, 422, 503))
async def diff(
    pool: Pool,
    parts: PartsOf,
    start: Annotated[VersionText, Query(alias="from", description="A version, or its number.")],
    end: Annotated[VersionText, Query(alias="to", description="A version, or its number.")],
) -> PoolDiff:
    """Compare two versions: what was added, removed and changed in between, on balance."""
    found = await parts.pools.diff(start, end, tenant=DEFAULT_TENANT, pool=pool)
    added, removed, changed = list[Indicator](), list[Indicator](), list[Changed]()
    for edit in found.edits:
        if edit.before and edit.after:
            changed.append(_changed(edit.before, edit.after))
        elif edit.after:
            added.append(edit.after)
        elif edit.before:
            removed.append(edit.before)
    return PoolDiff(found.start, found.end, tuple(added), tuple(removed), tuple(changed))


@router.post("/{pool}/rollback", responses=documented(400, 404, 408, 409, 413, 415, 422, 503))
async def rollback(pool: Pool, body: RollbackRequest, parts: PartsOf) -> Rollback:
    """Bring the pool back to what it was at a version, by new changes; none where it is that."""
    done = await parts.pools.rollback(body.version, tenant=DEFAULT_TENANT, pool=pool)
    await parts.live.refresh()
    return done


def _changed(before: Indicator, after: Indicator) -> Changed:
    old, new = asdict(before), asdict(after)
    differing = [name for name in old if old[name] != new[name]]
    return Changed(
        after.id,
        after.name,
        before={name: old[name] for name in differing},
        after={name: new[name] for name in differing},
    )
