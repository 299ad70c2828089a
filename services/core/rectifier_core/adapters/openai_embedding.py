"""An embedding model behind an OpenAI-compatible ``/embeddings`` endpoint."""

import email.utils
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import numpy as np
from openai import (
    APIConnectionError,
    APIStatusError,
    AsyncOpenAI,
    DefaultAioHttpClient,
    OpenAIError,
)
from pydantic import BaseModel, ValidationError

from rectifier_core.embedding import Vectors, embeddable, unit
from rectifier_core.errors import EmbeddingError

BATCH = 64  # texts a request


class OpenAiEmbedder:
    """Embeds over HTTP, without retries: whoever calls knows what time is left.

    Open it before use, by ``open`` or ``async with``; it may be opened again in another loop.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        model: str,
        *,
        dimension: int | None = None,
        timeout: float = 10.0,
        longest_text: int = 8_000,
    ) -> None:
        """Keep the settings; nothing is connected before ``open``.

        Args:
            base_url: Up to and without ``/embeddings``, e.g. ``https://api.openai.com/v1``.
            api_key: Sent as the bearer token; may be empty where the endpoint asks for none.
            model: As the endpoint names it.
            dimension: Length of its vectors; None: ``open`` asks the endpoint.
            timeout: Seconds for one request.
            longest_text: Characters of a text that the model's window surely holds; more are cut.
        """
        self._base_url = base_url
        self._api_key = api_key
        self._model = model
        self._dimension = dimension
        self._timeout = timeout
        self._longest_text = longest_text
        self._client: AsyncOpenAI | None = None

    @property
    def model(self) -> str:
        """The model's name, which the store's collection is bound to."""
        return self._model

    @property
    def dimension(self) -> int:
        """Length of a vector.

        Raises:
            EmbeddingError: It was not given, and the embedder was not opened yet.
        """
        if self._dimension is None:
            raise EmbeddingError("the dimension is known once the embedder is open")
        return self._dimension

    async def open(self) -> None:
        """Make the client, and ask for the dimension where it was not given.

        Raises:
            EmbeddingError: The endpoint had to be asked and did not answer.
        """
        if self._client is not None:
            return
        self._client = AsyncOpenAI(
            base_url=self._base_url,
            api_key=self._api_key or "none",  # the client refuses an empty one
            timeout=self._timeout,
            max_retries=0,
            http_client=DefaultAioHttpClient(timeout=self._timeout),
        )
        if self._dimension is None:
            try:
                self._dimension = (await self.embed(["dimension"])).shape[1]
            finally:
                if self._dimension is None:
                    await self.close()

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector a text, float32, in order; one request for 64 texts.

        Raises:
            EmbeddingError: The endpoint did not answer, or with other vectors than were asked for;
                ``retry_after`` holds the seconds that it asked to wait.
        """
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        parts = [
            await self._embed_batch(texts[start : start + BATCH])
            for start in range(0, len(texts), BATCH)
        ]
        return np.concatenate(parts)

    async def _embed_batch(self, texts: Sequence[str]) -> Vectors:
        if self._client is None:
            raise EmbeddingError("the embedding client is not open")
        try:
            # The raw answer, because the client does not check what it parses.
            answer = await self._client.embeddings.with_raw_response.create(
                input=[embeddable(text, at_most=self._longest_text) for text in texts],
                model=self._model,
                encoding_format="float",
            )
            reply = _Reply.model_validate_json(answer.content)
        except APIStatusError as exc:
            wait = seconds_to_wait(exc.response.headers)
            detail = f"the embedding endpoint answered {exc.status_code}"
            raise EmbeddingError(detail, retry_after=wait) from exc
        except APIConnectionError as exc:
            raise EmbeddingError("the embedding endpoint cannot be reached") from exc
        except OpenAIError as exc:
            raise EmbeddingError("the embedding endpoint failed") from exc
        except ValidationError as exc:
            raise EmbeddingError("the embedding endpoint's answer is not as specified") from exc
        return self._checked(reply, count=len(texts))

    def _checked(self, reply: "_Reply", *, count: int) -> Vectors:
        rows = sorted(reply.data, key=lambda row: row.index)
        if [row.index for row in rows] != list(range(count)):
            raise EmbeddingError(f"the embedding endpoint answered other than {count} vectors")
        lengths = {len(row.embedding) for row in rows}
        expected = self._dimension or max(lengths)
        if lengths != {expected}:
            raise EmbeddingError(
                f"the embedding endpoint answered {sorted(lengths)} dimensions, not {expected}"
            )
        return unit(np.array([row.embedding for row in rows], dtype=np.float64))


class _Row(BaseModel):
    index: int
    embedding: list[float]


class _Reply(BaseModel):
    data: list[_Row]


def seconds_to_wait(headers: Mapping[str, str]) -> float | None:
    """Return what ``Retry-After`` says in seconds, 0 or more; None where it says nothing readable.

    Source: RFC 9110, section 10.2.3: seconds, or an HTTP date.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - time.time())
