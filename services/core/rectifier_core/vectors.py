"""Indicators with their vectors: what is embedded, and how all of them change the model."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence

from rectifier_core.embedding import Embedder, Vectors, embeddable
from rectifier_core.errors import EmbeddingError
from rectifier_core.indicator import Indicator
from rectifier_core.limits import TEXT_LIMIT
from rectifier_core.store import Binding, IndicatorStore, StoredIndicator

EMBED_BATCH = 256  # texts
EMBED_TIMEOUT_S = 120.0  # seconds that a batch may take


async def with_vectors(
    indicators: Sequence[Indicator],
    embedder: Embedder,
    *,
    stored: Iterable[StoredIndicator] = (),
    timeout_s: float = EMBED_TIMEOUT_S,
) -> list[StoredIndicator]:
    """Return ``indicators`` with both vectors, in order; each text is embedded once.

    Args:
        indicators: Any.
        embedder: Makes the vectors.
        stored: What has vectors of this embedder already: equal texts are not embedded again.
        timeout_s: Seconds that one batch of texts may take.

    Raises:
        EmbeddingError: The embedding model did not answer.
    """
    known: dict[str, Vectors] = {}
    for entry in stored:
        known[_embedded_text(entry.indicator.trigger_text)] = entry.trigger
        known[_embedded_text(entry.indicator.definition_text)] = entry.definition
    texts = {
        _embedded_text(text)
        for one in indicators
        for text in (one.trigger_text, one.definition_text)
    }
    # Equal lengths side by side waste no padding.
    missing = sorted(texts - known.keys(), key=len)
    for start in range(0, len(missing), EMBED_BATCH):
        batch = missing[start : start + EMBED_BATCH]
        known |= zip(batch, await _rows(batch, embedder, timeout_s), strict=True)
    return [
        StoredIndicator(
            one,
            trigger=known[_embedded_text(one.trigger_text)],
            definition=known[_embedded_text(one.definition_text)],
        )
        for one in indicators
    ]


async def reembed(store: IndicatorStore, embedder: Embedder) -> int:
    """Give all indicators of ``store`` vectors of ``embedder``; return how many they were.

    The store is used with its old vectors until all of the new ones are there. Nothing else may
    write to it meanwhile. Texts, ids and versions of pools stay as they are.

    Args:
        store: Not open yet; it is open with the new model afterwards.
        embedder: The new model.

    Raises:
        EmbeddingError: The embedding model did not answer; the old vectors stay in use.
        StoreError: The store did not answer.
    """
    new = Binding(embedder.model, embedder.dimension)
    old = await store.binding() or new
    await store.open(model=old.model, dimension=old.dimension)
    if old == new:
        return 0
    return await store.switch(new, _reembedded(store.scan(), embedder))


async def _reembedded(
    stored: AsyncIterable[StoredIndicator], embedder: Embedder
) -> AsyncIterator[StoredIndicator]:
    batch: list[Indicator] = []
    async for entry in stored:
        batch.append(entry.indicator)
        if len(batch) == EMBED_BATCH:
            for one in await with_vectors(batch, embedder):
                yield one
            batch = []
    for one in await with_vectors(batch, embedder):
        yield one


async def _rows(texts: Sequence[str], embedder: Embedder, timeout_s: float) -> Vectors:
    try:
        async with asyncio.timeout(timeout_s):
            return await embedder.embed(texts)
    except TimeoutError as exc:
        raise EmbeddingError("the embedding model did not answer in time") from exc


def _embedded_text(text: str) -> str:
    return embeddable(text, at_most=2 * TEXT_LIMIT + 1)
