"""A real valkey-server for tests, and a check that they leave nothing behind in it."""

import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis as sync_redis
from redis.asyncio import Redis

from rectifier_core.valkey import valkey_binary

START_S = 10.0  # seconds
POLL_S = 0.01  # seconds

# What is kept until somebody deletes it: the record of the pools, the queue and what hangs on it.
LASTING = ("rectifier:{pools}:", "rectifier:trajectories")


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The URL of a valkey-server that lives as long as the session and writes to no disk."""
    # Not pytest's own folder: the path of a socket must stay under 108 bytes.
    with tempfile.TemporaryDirectory(prefix="vk-") as folder:
        socket = Path(folder) / "s"
        silent = ["--port", "0", "--save", "", "--appendonly", "no", "--logfile", "log"]
        command = [str(valkey_binary()), "--unixsocket", str(socket), "--dir", folder, *silent]
        server = subprocess.Popen(command, start_new_session=True)
        try:
            url = f"unix://{socket}?db=0"
            _wait_until_ready(server, url)
            yield url
        finally:
            server.kill()
            server.wait(timeout=START_S)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """A client on an empty database; the test fails where it leaves a stray key without expiry."""
    client = Redis.from_url(redis_url, decode_responses=True)
    try:
        await client.flushall()
        yield client
        stray = await stray_keys(client)
        assert not stray, f"left without an expiry: {stray}"
    finally:
        await client.aclose()


async def stray_keys(client: Redis, *, lasting: tuple[str, ...] = LASTING) -> list[str]:
    """Return the keys that never expire and start with none of ``lasting``, sorted."""
    return sorted(
        [
            key
            async for key in client.scan_iter(count=1000)
            if not key.startswith(lasting) and await client.ttl(key) == -1
        ]
    )


def _wait_until_ready(server: subprocess.Popen[bytes], url: str) -> None:
    until = time.monotonic() + START_S
    with sync_redis.Redis.from_url(url) as probe:
        while time.monotonic() < until:
            assert server.poll() is None, "the valkey-server ended at its start"
            with suppress(sync_redis.ConnectionError):
                probe.ping()
                return
            time.sleep(POLL_S)
    raise AssertionError("the valkey-server did not answer in time")
