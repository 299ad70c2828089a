"""The store port: where indicators and their two vectors are kept."""

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rectifier_core.indicator import Indicator, IndicatorId, Status


@dataclass(frozen=True, slots=True, eq=False)
class StoredIndicator:
    """An indicator with its vectors.

    Attributes:
        indicator: The indicator.
        trigger: Unit float32 vector of ``indicator.trigger_text``: retrieval.
        definition: Unit float32 vector of ``indicator.definition_text``: deduplication.
    """

    indicator: Indicator
    trigger: NDArray[np.float32]
    definition: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An indicator near a vector.

    Attributes:
        indicator: The indicator.
        similarity: Cosine similarity in [-1, 1].
    """

    indicator: Indicator
    similarity: float


@dataclass(frozen=True, slots=True)
class Binding:
    """What a collection is bound to from its first day.

    Attributes:
        model: Name of the embedding model.
        dimension: Length of a vector.
    """

    model: str
    dimension: int


class IndicatorStore(Protocol):
    """Keeps indicators. Every read and write names a tenant; nothing crosses tenants."""

    async def open(self, *, model: str, dimension: int) -> None:
        """Make the collection of this embedding model ready, creating it where it is missing.

        Raises:
            StoreMismatchError: It exists with another model or dimension.
            StoreError: The store did not answer.
        """
        ...

    async def upsert(self, stored: Sequence[StoredIndicator]) -> None:
        """Write all of them; each is replaced whole where its id exists. A lost call may be repeated.

        Raises:
            InputError: A vector has the wrong dimension, is not finite or is zero, a text holds
                half a surrogate pair, or an id is not a UUID; nothing is written.
            ConflictError: An id belongs to another pool or tenant (``id_taken``).
            StoreError: The store did not answer; some may be written.
        """
        ...

    async def get(
        self, ids: Sequence[IndicatorId], *, tenant: str, pool: str
    ) -> list[StoredIndicator]:
        """Return those that exist in this pool, in the order of ``ids``."""
        ...

    async def delete(self, ids: Sequence[IndicatorId], *, tenant: str, pool: str) -> None:
        """Remove those that exist in this pool."""
        ...

    async def page(
        self,
        *,
        tenant: str | None = None,
        pool: str | None = None,
        status: Status | None = None,
        after: IndicatorId | None = None,
        limit: int,
    ) -> list[StoredIndicator]:
        """Return the first ``limit`` that match and whose id sorts after ``after``, by id."""
        ...

    def scan(
        self, *, tenant: str | None = None, pool: str | None = None, status: Status | None = None
    ) -> AsyncIterator[StoredIndicator]:
        """Yield all that match (of every tenant where ``tenant`` is None), sorted by id."""
        ...

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
            StoreError: The store did not answer.
        """
        ...

    async def binding(self) -> Binding | None:
        """Return what the store is bound to, also before `open`; None where nothing is yet.

        Raises:
            StoreError: The store did not answer.
        """
        ...

    async def switch(self, binding: Binding, stored: AsyncIterable[StoredIndicator]) -> int:
        """Fill a collection for another embedding model, and use it from then on.

        Args:
            binding: The other model.
            stored: All that it is to hold; this store may be read meanwhile.

        Returns:
            How many that were.

        Raises:
            InputError: A vector does not fit ``binding``; nothing is switched, as with any error.
            StoreError: The store did not answer.
        """
        ...

    async def check(self) -> None:
        """Return where the store answers.

        Raises:
            StoreError: It does not.
        """
        ...

    async def close(self) -> None:
        """Release connections and locks."""
        ...
