"""Answers kept under an ``Idempotency-Key``: a repeated request gets the first one's."""

import hashlib
import json
import math
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from redis.asyncio import Redis

from rectifier.scripts import Script
from rectifier.waits import Waits
from rectifier_core.adapters.redis_client import translated
from rectifier_core.deadline import Deadline
from rectifier_core.errors import InputError, UnavailableError

TTL_S = 24 * 3600
KEY_LIMIT = 256  # characters
LEASE_MARGIN_S = 1.0
SETTLE_S = 1.0  # seconds that keeping an answer or forgetting a key may take


class Idempotency:
    """Does work once a key. Only an answer is kept: work that raises may be tried again."""

    def __init__(self, redis: Redis, *, ttl_s: int = TTL_S) -> None:
        """Keep the client.

        Args:
            redis: Opened and closed by the caller; it decodes responses.
            ttl_s: Seconds that an answer is kept.
        """
        # redis-py types every reply as bytes or text; this client decodes.
        self._redis: Any = redis
        self._ttl_ms = ttl_s * 1000
        self._begin = Script(redis, "begin")
        self._settle = Script(redis, "settle")
        self._waits = Waits()

    async def once(
        self,
        work: Callable[[], Awaitable[bytes]],
        *,
        scope: tuple[str, ...],
        key: str,
        body: bytes,
        deadline: Deadline,
    ) -> bytes:
        """Return the answer that ``key`` has in ``scope``, or do ``work`` and keep what it returns.

        Where Redis goes away while the work is done, its answer is returned and not kept.

        Args:
            work: Returns the answer, UTF-8 and not empty.
            scope: Tenant, path and run: the same key elsewhere is another one.
            key: As the caller sent it, 1 to 256 characters.
            body: The request's body; the key is bound to its hash.
            deadline: How long the same request under way is waited for.

        Raises:
            InputError: The key is empty or too long, or was used with another body.
            DeadlineError: The same request is still under way.
            StateError: Redis did not answer.
        """
        if not 1 <= len(key) <= KEY_LIMIT:
            raise InputError(f"a key has 1 to {KEY_LIMIT} characters", field="Idempotency-Key")
        name = "rectifier:once:" + _digest(json.dumps([*scope, key]).encode())
        holder = uuid.uuid4().hex
        kept = await self._begun(name, holder, _digest(body), deadline)
        if kept is not None:
            return kept
        answer = b""
        try:
            answer = await work()
        finally:
            # No answer, no key: the work may be tried again.
            await self._settled(name, holder, answer)
        return answer

    async def _begun(
        self, name: str, holder: str, body_hash: str, deadline: Deadline
    ) -> bytes | None:
        """Return the answer that is kept, or None where ``holder`` is the one to do the work."""
        while True:
            lease_ms = math.ceil((deadline.left() + LEASE_MARGIN_S) * 1000)
            arguments = (holder, body_hash, lease_ms)
            try:
                found = await self._begin([name], arguments, deadline=deadline)
            except BaseException:
                # The script may have run all the same.
                await self._settled(name, holder, b"")
                raise
            match found:
                case ["begun"]:
                    return None
                case ["answer", answer]:
                    kept: str = answer
                    return kept.encode()
                case ["wait", first, left_ms]:
                    await self._until_over(name, first, left_ms / 1000, deadline)
                case _:
                    detail = "the key was used with another body"
                    raise InputError(detail, field="Idempotency-Key")

    async def _until_over(self, name: str, first: str, left_s: float, deadline: Deadline) -> None:
        async def is_pending() -> bool:
            with translated():
                return bool(await self._redis.hget(name, "holder") == first)

        waited = (name, first)
        await self._waits.until_over(waited, is_pending, deadline=deadline, at_most=left_s)

    async def _settled(self, name: str, holder: str, answer: bytes) -> None:
        # A key that cannot be settled is forgotten with its lease.
        with suppress(UnavailableError):
            arguments = (holder, answer.decode(), self._ttl_ms)
            await self._settle([name], arguments, deadline=Deadline.after(SETTLE_S))
        self._waits.wake((name, holder))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
