"""The service as its users start it: a process of its own, with its own stores."""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

START_S = 30.0
STOP_S = 30.0

SCRIPT = "from rectifier.__main__ import main; main()"
# As ``rectifier serve``, with a client that may take half a second for its body.
IMPATIENT = """
import rectifier.serve as module
from rectifier.__main__ import main
serve = module.serve
module.serve = lambda settings: serve(settings, body_timeout=0.5)
main()
"""


@dataclass(frozen=True)
class Server:
    """A running service.

    Attributes:
        url: Where it listens.
        process: Its process.
        logs: Its lines on standard output so far that are JSON, oldest first.
    """

    url: str
    process: subprocess.Popen[str]
    logs: list[dict[str, Any]]

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        assert parts.hostname
        assert parts.port
        return parts.hostname, parts.port

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(STOP_S)

    @property
    def memory_mb(self) -> float:
        """Resident memory at its peak."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024


def environment(**given: str) -> dict[str, str]:
    """Return an environment in which nothing is set but ``given``."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, **given}


@contextmanager
def serving(
    *arguments: str, script: str = SCRIPT, variables: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Start the service on a free port, and stop it at the end where it still runs."""
    with tempfile.TemporaryDirectory(prefix="rf-") as folder:
        data = () if "--data-dir" in arguments else ("--data-dir", folder)
        process = subprocess.Popen(
            [sys.executable, "-c", script, "serve", "--port", "0", *data, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(**(variables or {})),
        )
        logs: list[dict[str, Any]] = []
        url: queue.Queue[str] = queue.Queue()
        reader = threading.Thread(target=_read, args=(process, logs, url))
        reader.start()
        try:
            yield Server(url.get(timeout=START_S), process, logs)
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            reader.join()
            if process.stdout:
                process.stdout.close()


def _read(
    process: subprocess.Popen[str], logs: list[dict[str, Any]], url: "queue.Queue[str]"
) -> None:
    for line in process.stdout or ():
        with suppress(ValueError):
            entry = json.loads(line)
            logs.append(entry)
            if entry.get("event") == "listening":
                url.put(entry["url"])
