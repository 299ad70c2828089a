"""The HTTP client under the openai client: connections pooled by aiohttp, answers bounded.

The openai client has an aiohttp transport of its own, which reports a connection that the server
closed as a timeout, reads without a bound, and costs three times the CPU of this one.
"""

import functools
import io
import ssl
import urllib.request
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx2

CONNECT_TIMEOUT_S = 5.0
# Below that of common servers (uvicorn: 5 s): where the server closes first, a request may meet
# a connection that is just being closed.
KEEPALIVE_S = 4.0
# aiohttp warns where more bytes than this are sent in one piece.
PIECE_BYTES = 2**20


class AnswerTooLongError(httpx2.RequestError):
    """The answer is longer than is read, or compressed, which hides its length."""


class PooledClient(httpx2.AsyncClient):
    """Sends what the openai client sends, and nothing else: no redirects, cookies or streams.

    It knows no timeout but for connecting: the caller bounds the time by ``asyncio.timeout``.
    """

    def __init__(self, base_url: str, *, connections: int, longest_answer: int) -> None:
        """Keep the settings; the first request connects.

        Args:
            base_url: Where requests go; decides on TLS and on the environment's proxy.
            connections: Connections at once, 1 or more.
            longest_answer: Bytes of a body that are read; a longer one is an error.
        """
        super().__init__(transport=_NoTransport())
        self._proxy = _proxy(base_url)
        self._tls = _tls(base_url)
        self._connections = connections
        self._longest_answer = longest_answer
        self._session: aiohttp.ClientSession | None = None

    # The two methods below accept what the base class accepts and ignore what is never sent.

    def build_request(
        self,
        method: str,
        url: httpx2.URL | str,
        *,
        content: Any = None,
        headers: Any = None,
        **_: Any,
    ) -> httpx2.Request:
        """Return the request; its headers travel beside it, in the form that aiohttp takes."""
        sent: Sequence[tuple[str, str]] = headers
        return httpx2.Request(
            method, _parsed(str(url)), content=content, extensions={"sent_headers": sent}
        )

    async def send(self, request: httpx2.Request, **_: Any) -> httpx2.Response:
        """Send ``request`` and return its answer, read whole.

        Raises:
            httpx2.ConnectError: No connection came about.
            httpx2.ReadError: The connection was lost.
            AnswerTooLongError: The answer is too long, or compressed.
        """
        if self.is_closed:
            raise httpx2.ConnectError("the client was closed")
        if self._session is None:
            self._session = self._open_session()
        content = request.content
        try:
            async with self._session.request(
                request.method,
                str(request.url),
                headers=request.extensions["sent_headers"],
                data=content if len(content) < PIECE_BYTES else io.BytesIO(content),
                allow_redirects=False,
                proxy=self._proxy,
            ) as answer:
                body = await self._read(answer)
        except aiohttp.ClientConnectorError as exc:
            raise httpx2.ConnectError("no connection") from exc
        except aiohttp.ConnectionTimeoutError as exc:
            raise httpx2.ConnectError("no connection in time") from exc
        except (aiohttp.ClientError, OSError) as exc:
            raise httpx2.ReadError("the connection was lost") from exc
        # Only an error's headers are read: they say when to come back.
        headers = answer.raw_headers if answer.status >= 300 else None
        return httpx2.Response(answer.status, headers=headers, content=body, request=request)

    async def aclose(self) -> None:
        """Close the connections."""
        # First, or a request that waited would open another session meanwhile.
        await super().aclose()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=self._connections, keepalive_timeout=KEEPALIVE_S, ssl=self._tls
        )
        return aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            raise AnswerTooLongError("the answer is compressed")
        parts = []
        left = self._longest_answer
        async for part in answer.content.iter_any():
            left -= len(part)
            if left < 0:
                answer.close()
                raise AnswerTooLongError("the answer is too long")
            parts.append(part)
        return b"".join(parts)


class _NoTransport(httpx2.AsyncBaseTransport):
    """Spares the base class its own pool, which nothing would use."""


@functools.lru_cache(maxsize=16)
def _parsed(url: str) -> httpx2.URL:
    return httpx2.URL(url)


def _proxy(base_url: str) -> str | None:
    # Looked up once: for every request, as aiohttp does it, would cost more than the request.
    parts = urlsplit(base_url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _tls(base_url: str) -> ssl.SSLContext | bool:
    return httpx2.create_ssl_context() if urlsplit(base_url).scheme == "https" else True
