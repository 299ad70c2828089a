"""The embedding port: texts to unit vectors."""

import re
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rectifier_core.errors import EmbeddingError

Vectors = NDArray[np.float32]

# Control characters but for tab, line feed and carriage return, and halves of surrogate pairs.
_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


class Embedder(Protocol):
    """An embedding model."""

    @property
    def model(self) -> str:
        """The model's name, which the store's collection is bound to."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one vector a text, in order. The caller bounds the time by ``asyncio.timeout``.

        Args:
            texts: Plain text, none of them blank; what the model's window does not hold is cut
                at the end.

        Returns:
            float32 of shape ``(len(texts), dimension)``, finite, each row of length 1.

        Raises:
            EmbeddingError: The model did not answer, or not with such vectors.
        """
        ...


def embeddable(text: str, *, at_most: int) -> str:
    """Return ``text`` as any model takes it: encodable, without control characters, not blank.

    Args:
        text: Anything.
        at_most: Characters that are kept, 1 or more.
    """
    readable = _UNREADABLE.sub(" ", text[:at_most])
    return readable if readable.strip() else "."


def unit(vectors: NDArray[Any]) -> Vectors:
    """Return the rows of ``vectors`` at length 1, as float32.

    Args:
        vectors: Numbers of shape (n, dimension), of any magnitude.

    Raises:
        EmbeddingError: A row is zero or not finite.
    """
    exact = np.asarray(vectors, dtype=np.float64)
    largest = np.abs(exact).max(axis=1, keepdims=True, initial=0.0)
    if not np.isfinite(largest).all() or not largest.all():
        raise EmbeddingError("the embedding model answered with a vector without a direction")
    scaled = exact / largest
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.asarray(scaled / lengths, dtype=np.float32)
