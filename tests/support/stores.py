"""Stores for tests: every adapter over every engine that is at hand."""

import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qdrant_client import QdrantClient

from rectifier_core.adapters.edge_store import EdgeStore
from rectifier_core.adapters.qdrant_store import QdrantStore
from rectifier_core.indicator import DEFAULT_TENANT, Indicator, IndicatorId
from rectifier_core.store import IndicatorStore, StoredIndicator

DIMENSION = 8
MODEL = "tests/model-a"

ENGINES = ("memory", "edge", "http") + (("server",) if os.environ.get("QDRANT_URL") else ())
LASTING_ENGINES = tuple(engine for engine in ENGINES if engine != "memory")

MakeStore = Callable[[], IndicatorStore]


@contextmanager
def engine(kind: str, folder: Path, *, stand_in: str) -> Iterator[MakeStore]:
    """Yield what makes stores over one and the same data; ``memory`` has data for each.

    Args:
        kind: One of `ENGINES`.
        folder: Of ``edge``.
        stand_in: URL of a `QdrantHttp`, for ``http``.
    """
    match kind:
        case "memory":
            yield QdrantStore
        case "edge":
            yield lambda: EdgeStore(folder / "edge")
        case "http":
            with _borrowed(stand_in) as make:
                yield make
        case _:
            with _borrowed(os.environ["QDRANT_URL"]) as make:
                yield make


@asynccontextmanager
async def opened(
    make: MakeStore, *, model: str = MODEL, dimension: int = DIMENSION
) -> AsyncIterator[IndicatorStore]:
    """Yield a store that is open."""
    store = make()
    try:
        await store.open(model=model, dimension=dimension)
        yield store
    finally:
        await store.close()


def numbered(n: int) -> IndicatorId:
    """Return the ``n``th id in sorted order."""
    return IndicatorId(str(uuid.UUID(int=n)))


def an_indicator(n: int = 1, **fields: Any) -> Indicator:
    """Return an indicator with id ``n``."""
    defaults = {
        "id": numbered(n),
        "pool": "math",
        "name": f"ERROR_{n}",
        "definition": f"Error number {n} is made.",
        "tenant": DEFAULT_TENANT,
    }
    return Indicator(**{**defaults, **fields})


def a_stored(n: int = 1, *, axis: int | None = None, **fields: Any) -> StoredIndicator:
    """Return it with vectors: random ones, or those along one axis."""
    if axis is None:
        draw = np.random.default_rng(n)
        return StoredIndicator(an_indicator(n, **fields), _unit(draw), _unit(draw))
    along = np.eye(DIMENSION, dtype=np.float32)[axis]
    return StoredIndicator(an_indicator(n, **fields), along, along)


def _unit(draw: np.random.Generator, dimension: int = DIMENSION) -> NDArray[np.float32]:
    vector = draw.normal(size=dimension)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


@contextmanager
def _borrowed(url: str) -> Iterator[MakeStore]:
    """Yield stores on a server that others use: under an alias of their own, removed afterwards."""
    alias = f"tests_{uuid.uuid4().hex[:12]}"
    yield lambda: QdrantStore(url, alias=alias)
    client = QdrantClient(url=url, check_compatibility=False)
    for collection in client.get_collections().collections:
        if collection.name.startswith(alias):
            client.delete_collection(collection.name)
    client.close()
