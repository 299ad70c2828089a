"""Points: how the store adapters name, check and page what they keep."""

import re
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rectifier_core.embedding import Vectors
from rectifier_core.errors import ConflictError, InputError, StoreError, StoreMismatchError
from rectifier_core.indicator import IndicatorId, Status
from rectifier_core.limits import check_encodable, check_id
from rectifier_core.payload import indicator_of
from rectifier_core.store import Binding, Neighbour, StoredIndicator

FORMAT = 1  # of payload and vectors; a change of either raises it
FLOATS_A_BATCH = 200_000  # about 4 MB as JSON: a server refuses bodies above 32 MB
SCAN_PAGE = 256  # points
INDEXED = ("tenant", "pool", "status")

T = TypeVar("T")


def collection_name(prefix: str, binding: Binding, *, taken: str | None = None) -> str:
    """Return the name of a model's collection, e.g. ``rectifier_minilm_384``.

    Args:
        prefix: Of the name.
        binding: The model.
        taken: A name that it must not get: different models can have one name when shortened.
    """
    slug = re.sub("[^a-z0-9]+", "-", binding.model.lower()).strip("-")
    name = f"{prefix}_{slug[:100] or 'model'}_{binding.dimension}"
    return name if name != taken else f"{name}_b"


def check_binding(found: Binding, wanted: Binding, *, where: str) -> None:
    """Compare what a collection was made with and what the embedder gives.

    Raises:
        StoreMismatchError: They differ; it says how to mend that.
    """
    if found != wanted:
        raise StoreMismatchError(
            f"{where} holds vectors of {found.model} ({found.dimension} numbers), and the service "
            f"embeds with {wanted.model} ({wanted.dimension}). Either set "
            f"RECTIFIER_EMBEDDING_MODEL back to {found.model}, or re-embed: stop every service on "
            "this store and run `rectifier reembed`."
        )


def check_stored(stored: Sequence[StoredIndicator], *, dimension: int) -> None:
    """Check what an engine would refuse, or keep in another form.

    Raises:
        InputError: An id is not a UUID in canonical form, a text holds half a surrogate pair, or a
            vector has another dimension, is not finite or has no direction.
    """
    for entry in stored:
        check_id(entry.indicator.id)
        check_encodable(entry.indicator)
        check_vector(entry.trigger, dimension=dimension, field="trigger")
        check_vector(entry.definition, dimension=dimension, field="definition")


def check_vector(vector: NDArray[np.float32], *, dimension: int, field: str) -> None:
    """Check one vector.

    Raises:
        InputError: It has another dimension, is not finite or has no direction.
    """
    if vector.shape != (dimension,):
        raise InputError(f"a vector of {dimension} numbers is wanted", field=field)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        single = vector.astype(np.float32)
        square = np.dot(single, single)  # in float32, as the engines compute the length
    if not np.isfinite(square):
        raise InputError("a vector is not finite", field=field)
    if square <= 0:
        raise InputError("a vector is zero", field=field)


def check_owner(payload: Mapping[str, Any], entry: StoredIndicator) -> None:
    """Check that a point which is about to be replaced is in the pool of its successor.

    Raises:
        ConflictError: It belongs to another pool or tenant.
    """
    indicator = entry.indicator
    if (payload.get("tenant"), payload.get("pool")) != (indicator.tenant, indicator.pool):
        raise ConflictError("id_taken", f"the id {indicator.id} belongs to another pool")


def vectors_of(entry: StoredIndicator) -> dict[str, Any]:
    """Return both vectors by name, as lists of numbers."""
    return {"trigger": entry.trigger.tolist(), "definition": entry.definition.tolist()}


def stored_of(payload: Mapping[str, Any], vectors: Mapping[str, Any]) -> StoredIndicator:
    """Return the indicator of a point.

    Raises:
        StoreError: It is not one of ours.
    """
    if not {"trigger", "definition"} <= vectors.keys():
        raise StoreError("a stored indicator has no vectors; was it written by another?")
    return StoredIndicator(
        indicator=indicator_of(payload),
        trigger=_vector(vectors["trigger"]),
        definition=_vector(vectors["definition"]),
    )


def neighbours(found: Iterable[tuple[Mapping[str, Any], float]]) -> list[Neighbour]:
    """Return payloads and scores as neighbours, nearest first; equally near ones by id."""
    near = [
        Neighbour(indicator_of(payload), similarity=min(1.0, max(-1.0, score)))
        for payload, score in found
    ]
    return sorted(near, key=lambda one: (-one.similarity, one.indicator.id))


def batches(items: Sequence[T], *, dimension: int) -> Iterator[Sequence[T]]:
    """Yield ``items`` in order, as many at once as one request carries well."""
    size = _batch_size(dimension)
    for start in range(0, len(items), size):
        yield items[start : start + size]


async def batched(
    stored: AsyncIterable[StoredIndicator], *, dimension: int
) -> AsyncIterator[list[StoredIndicator]]:
    """Yield what ``stored`` yields, as `batches`."""
    size = _batch_size(dimension)
    batch: list[StoredIndicator] = []
    async for entry in stored:
        batch.append(entry)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


class Paged(Protocol):
    """A store that reads by pages."""

    async def page(
        self,
        *,
        tenant: str | None = None,
        pool: str | None = None,
        status: Status | None = None,
        after: IndicatorId | None = None,
        limit: int,
    ) -> list[StoredIndicator]:
        """Return the first ``limit`` that match and whose id sorts after ``after``."""
        ...


async def scanned(
    store: Paged, *, tenant: str | None, pool: str | None, status: Status | None
) -> AsyncIterator[StoredIndicator]:
    """Yield all that match, sorted by id, a page at a time."""
    after: IndicatorId | None = None
    while True:
        found = await store.page(
            tenant=tenant, pool=pool, status=status, after=after, limit=SCAN_PAGE
        )
        for entry in found:
            yield entry
        if len(found) < SCAN_PAGE:
            return
        after = found[-1].indicator.id


def _batch_size(dimension: int) -> int:
    return max(1, FLOATS_A_BATCH // (2 * dimension))


def _vector(numbers: Any) -> Vectors:  # whatever an engine answers with
    return np.asarray(numbers, dtype=np.float32)
