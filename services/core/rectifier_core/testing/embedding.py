"""An embedder without a model: equal words, near vectors."""

import zlib
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np

from rectifier_core.embedding import Vectors, unit
from rectifier_core.errors import EmbeddingError


class HashedEmbedder:
    """Hashes each word to one signed dimension, and costs next to nothing.

    The same text has the same vector in every process. Texts that share words are near; nothing
    else is known of meaning.

    Attributes:
        error: Raised by ``embed`` while it is set: the model that does not answer.
        calls: How often ``embed`` was called.

    Source: Weinberger et al., Feature Hashing for Large Scale Multitask Learning, ICML 2009.
    """

    def __init__(self, dimension: int = 64, *, model: str = "hashed") -> None:
        self._dimension = dimension
        self._model = model
        self.error: EmbeddingError | None = None
        self.calls = 0

    @property
    def model(self) -> str:
        """The model's name."""
        return self._model

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._dimension

    async def open(self) -> None:
        """Do nothing, as there is nothing to load."""

    async def close(self) -> None:
        """Do nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector a text.

        Raises:
            EmbeddingError: ``error`` is set.
        """
        self.calls += 1
        if self.error is not None:
            raise self.error
        if not texts:
            return np.zeros((0, self._dimension), dtype=np.float32)
        return unit(np.array([self._counts(text) for text in texts]))

    def _counts(self, text: str) -> list[float]:
        counts = [0.0] * self._dimension
        for word in text.lower().split():
            code = zlib.crc32(word.encode("utf-8", "surrogatepass"))
            counts[(code >> 1) % self._dimension] += 1.0 if code & 1 else -1.0
        if not any(counts):  # no word, or words that cancel out
            counts[0] = 1.0
        return counts
