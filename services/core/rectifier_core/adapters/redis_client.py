"""The Redis client: opened with a limit on every wait, its errors translated."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import unquote, urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from rectifier_core.errors import InputError, StateError

MAX_CONNECTIONS = 64
POOL_WAIT_S = 20.0  # seconds that a call waits for a free connection
REPLY_S = 15.0  # seconds: a blocking read must ask for much less
CONNECT_S = 5.0
HEALTH_CHECK_S = 30.0  # seconds of rest after which a connection is tried before its use


@asynccontextmanager
async def open_redis(url: str) -> AsyncIterator[Redis]:
    """Open a client, and close it with all its connections.

    Nothing is sent yet: a server that is away shows at the first command. No command is ever
    repeated by the client, as an ``XADD`` whose answer got lost would be stored twice; a caller
    repeats what may be repeated.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``, options in its query.

    Yields:
        A client that answers with text.

    Raises:
        InputError: The URL cannot be read; its text is not quoted, as it may hold a password.
    """
    client = Redis.from_pool(_pool(url))
    try:
        yield client
    finally:
        await client.aclose()


@contextmanager
def translated() -> Iterator[None]:
    """Turn what Redis and the connection to it raise into StateError.

    Raises:
        StateError: With the kind of the cause in its text, never its data.
    """
    try:
        yield
    except (RedisError, OSError) as exc:  # a timeout is an OSError
        raise StateError(f"Redis did not answer as it should ({type(exc).__name__})") from exc


def _pool(url: str) -> BlockingConnectionPool:
    try:
        _check(url)
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=MAX_CONNECTIONS,
            timeout=POOL_WAIT_S,
            decode_responses=True,
            socket_timeout=REPLY_S,
            socket_connect_timeout=CONNECT_S,
            health_check_interval=HEALTH_CHECK_S,
            retry=Retry(NoBackoff(), 0),
        )
        # Only a connection knows which options there are; making one opens nothing.
        pool.make_connection()  # type: ignore[no-untyped-call]
    except (ValueError, TypeError, AttributeError, RedisError):
        # Without the cause: its text quotes parts of the URL, which may be of the password.
        raise InputError(
            "REDIS_URL cannot be read; it is like redis://host:6379/0 or unix:///path/to/socket",
            field="REDIS_URL",
        ) from None
    return pool


def _check(url: str) -> None:
    """Refuse what the client would read as something else without a word."""
    parts = urlsplit(url)
    path = unquote(parts.path).strip("/")
    if parts.scheme == "unix":
        if parts.netloc.rpartition("@")[2] or not path:
            raise ValueError("a socket needs an absolute path")
    elif path and not (path.isascii() and path.isdigit()):
        raise ValueError("a database is a number")
