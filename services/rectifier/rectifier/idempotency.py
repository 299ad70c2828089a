"""Answers kept under an ``Idempotency-Key``: a repeated request gets the first one's."""

import asyncio
import hashlib
import json
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress

from rectifier_core.adapters.redis_client import translated
from redis.asyncio import Redis

from rectifier_core.deadline import Deadline
from rectifier_core.errors import InputError, StateError

TTL_S = 24 * 3600
LEASE_MARGIN_S = 1.0
POLL_S = 0.05

# KEYS: the key; ARGV: the holder's mark, then the stored value ('' to forget), ttl in s.
_SETTLE = """
if redis.call('HGET', KEYS[1], 'holder') ~= ARGV[1] then return 0 end
if ARGV[2] == '' then return redis.call('DEL', KEYS[1]) end
redis.call('HDEL', KEYS[1], 'holder')
redis.call('HSET', KEYS[1], 'answer', ARGV[2])
return redis.call('EXPIRE', KEYS[1], ARGV[3])
"""

# KEYS: the key; ARGV: the holder's mark, the body's hash, lease in ms.
# Returns the body's hash and the answer of who was first, or nothing where the caller is.
_BEGIN = """
if redis.call('EXISTS', KEYS[1]) == 1 then return redis.call('HMGET', KEYS[1], 'body', 'answer') end
redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'body', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {}
"""


class Idempotency:
    """Runs work once a key. Only an answer is kept: work that raises may be tried again."""

    def __init__(self, redis: Redis, *, ttl_s: int = TTL_S) -> None:
        """Keep the client, which the caller opens and closes; it decodes responses."""
        self._redis = redis
        self._ttl_s = ttl_s
        self._begin = redis.register_script(_BEGIN)
        self._settle = redis.register_script(_SETTLE)

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

        Args:
            work: Returns the answer, UTF-8.
            scope: Tenant, path and run: the same key elsewhere is another one.
            key: As the caller sent it.
            body: The request's body; the key is bound to its hash.
            deadline: How long the same request under way is waited for.

        Raises:
            InputError: The key was used with another body.
            DeadlineError: The same request is still under way.
            StateError: Redis did not answer.
        """
        name = "rectifier:once:" + _digest(json.dumps([*scope, key]).encode())
        body_hash, holder = _digest(body), uuid.uuid4().hex
        while True:
            lease_ms = round((deadline.left() + LEASE_MARGIN_S) * 1000)
            with translated():
                found = await self._begin(keys=[name], args=[holder, body_hash, lease_ms])
            if not found:
                break
            if found[0] != body_hash:
                raise InputError("the key was used with another body", field="Idempotency-Key")
            if found[1] is not None:
                kept: str = found[1]
                return kept.encode()
            await asyncio.sleep(min(POLL_S, deadline.left()))
        try:
            answer = await work()
        except BaseException:
            # A key that cannot be forgotten now is forgotten with its lease.
            with suppress(StateError):
                await self._settled(name, holder, "")
            raise
        await self._settled(name, holder, answer.decode())
        return answer

    async def _settled(self, name: str, holder: str, answer: str) -> None:
        with translated():
            await self._settle(keys=[name], args=[holder, answer, self._ttl_s])


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
