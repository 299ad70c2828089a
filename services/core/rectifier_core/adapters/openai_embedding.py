"""An embedding model behind an OpenAI-compatible ``/embeddings`` endpoint."""

import asyncio
import json
from collections.abc import Sequence

import httpx2
import numpy as np
from openai import APIConnectionError, APIStatusError, OpenAIError
from pydantic import BaseModel, SecretStr, ValidationError

from rectifier_core.adapters.openai_endpoint import PlainClient, checked_headers, checked_url
from rectifier_core.adapters.opened import Opened
from rectifier_core.adapters.pooled_client import AnswerTooLongError
from rectifier_core.adapters.retry_after import seconds_to_wait
from rectifier_core.embedding import Vectors, embeddable, unit
from rectifier_core.errors import EmbeddingError

BATCH = 64  # texts a request
CONNECTIONS = 32
LONGEST_ANSWER = 64 * 2**20  # bytes: a batch of the longest vectors, at 60 a number


class OpenAiEmbedder(Opened):
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

        Raises:
            InputError: The URL is no HTTP URL, or the key cannot be a header.
        """
        self._base_url = checked_url(base_url)
        self._url = f"{self._base_url}/embeddings"
        self._headers = checked_headers(SecretStr(api_key))
        self._model = model
        self._dimension = dimension
        self._timeout = timeout
        self._longest_text = longest_text
        self._client: PlainClient | None = None

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
        self._client = PlainClient(
            self._base_url,
            self._headers,
            connections=CONNECTIONS,
            longest_answer=LONGEST_ANSWER,
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
        body = {
            "input": [embeddable(text, at_most=self._longest_text) for text in texts],
            "model": self._model,
            "encoding_format": "float",
        }
        answer = await self._post(json.dumps(body).encode())
        try:
            reply = _Reply.model_validate_json(answer)
        except ValidationError:
            # Without the cause, here and below: it quotes the answer, which may quote the texts.
            raise EmbeddingError("the embedding endpoint's answer is not as specified") from None
        return self._checked(reply, count=len(texts))

    async def _post(self, content: bytes) -> bytes:
        if self._client is None:
            raise EmbeddingError("the embedding client is not open")
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._client.post(
                    self._url, content=content, cast_to=httpx2.Response
                )
        except TimeoutError as exc:
            raise EmbeddingError("the embedding endpoint did not answer in time") from exc
        except APIStatusError as exc:
            wait = seconds_to_wait(exc.response.headers)
            detail = f"the embedding endpoint answered {exc.status_code}"
            raise EmbeddingError(detail, retry_after=wait) from None
        except APIConnectionError as exc:
            # The error itself carries the request, with texts and key; its cause does not.
            cause = exc.__cause__
            is_long = isinstance(cause, AnswerTooLongError)
            detail = "answer is too long" if is_long else "connection failed"
            raise EmbeddingError(f"the embedding endpoint's {detail}") from cause
        except (OpenAIError, ValueError):
            raise EmbeddingError("the embedding endpoint cannot be asked") from None
        return answer.content

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
