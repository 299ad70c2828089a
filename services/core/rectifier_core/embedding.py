"""The embedding port: texts to unit vectors."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


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
