"""The body of one request: bounded in bytes and in the time that its client takes to send it."""

import asyncio
import time
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

MIN_BYTES_PER_S = 32 * 1024


class Body:
    """Counts while reading: what is too long or too slow is refused at that moment."""

    def __init__(self, receive: Receive, *, limit: int, timeout: float) -> None:
        """Wrap ``receive``.

        Args:
            receive: The server's.
            limit: Bytes at most.
            timeout: Seconds that the client may take, beside one for each `MIN_BYTES_PER_S`.
        """
        self._receive = receive
        self._limit = limit
        self._timeout = timeout
        self._waited = 0.0
        self._size = 0
        self._is_whole = False

    async def receive(self) -> Message:
        """Return the next message of the server.

        Raises:
            HTTPException: 408 or 413.
        """
        if self._is_whole:
            return await self._receive()
        message = await self._in_time()
        self._size += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        if self._size > self._limit:
            raise too_large(self._limit)
        return message

    async def _in_time(self) -> Message:
        # Only waiting counts: an import stores what it has read in between.
        left = self._timeout + self._size / MIN_BYTES_PER_S - self._waited
        began = time.perf_counter()
        try:
            async with asyncio.timeout(left):
                return await self._receive()
        except TimeoutError:
            detail = "the body came too slowly"
            headers = {"Connection": "close"}
            raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, detail, headers) from None
        finally:
            self._waited += time.perf_counter() - began


def too_large(limit: int) -> HTTPException:
    """Return the refusal of a body over ``limit`` bytes."""
    detail = f"the body is at most {limit:,} bytes"
    return HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
