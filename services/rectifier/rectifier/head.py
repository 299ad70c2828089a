"""The head of a request: bounded in bytes and in time, before there is a request to refuse."""

import asyncio
import uuid
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rectifier.problems import problem

MAX_HEAD_BYTES = 256 * 1024
HEAD_TIMEOUT_S = 30.0


class BoundedHeadProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which by itself reads a head of any length for any time."""

    # Positional and untyped, as uvicorn makes its protocols.
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._is_in_head = True
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first head."""
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what belongs to a head."""
        self._head_bytes += len(data) if self._is_in_head else 0
        if self._head_bytes > MAX_HEAD_BYTES:
            detail = f"the head is at most {MAX_HEAD_BYTES:,} bytes"
            self._refuse(431, "header-too-large", detail)
            return
        super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, as every error is told."""
        self._refuse(400, "malformed-request", msg)

    def on_message_begin(self) -> None:
        """Start to wait for another head."""
        super().on_message_begin()
        if not self._is_in_head:
            self._begin_head()

    def on_headers_complete(self) -> None:
        """Hand over to the body's own limits."""
        self._end_head()
        super().on_headers_complete()

    def _begin_head(self) -> None:
        self._end_head()
        self._is_in_head = True
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)

    def _end_head(self) -> None:
        self._is_in_head, self._head_bytes = False, 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: int, kind: str, detail: str) -> None:
        request_id = uuid.uuid4().hex
        answer = problem(request_id, status, kind, detail)
        answer.headers["x-request-id"] = request_id
        answer.headers["connection"] = "close"
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()]
        lines += [name + b": " + value for name, value in answer.raw_headers]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(answer.body)]))
        self.transport.close()
