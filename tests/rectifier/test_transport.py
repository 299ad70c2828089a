"""The service on a real socket: what clients do to it, and how it starts and stops."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rectifier_core.testing.scripted_endpoint import Reply, ScriptedEndpoint
from tests.support.endpoint import endpoint
from tests.support.server import IMPATIENT, SCRIPT, Server, environment, serving
from tests.support.service import RIGHT, TASK

__all__ = ["endpoint"]

WAIT_S = 10.0
MIB = 1024 * 1024
AUDIT = {"task": TASK, "message": {"agent": "solver", "content": RIGHT}}
GATED = {**AUDIT, "run_id": "r", "message_id": "m", "policy": "fast"}
CHUNKED = b"POST /audit HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The service as it starts with nothing configured."""
    with serving() as started:
        yield started


@pytest.fixture
def judged(endpoint: ScriptedEndpoint) -> Iterator[Server]:
    """The service with the scripted endpoint as its judge."""
    variables = {
        "OPENAI_BASE_URL": endpoint.base_url,
        "OPENAI_API_KEY": "test",
        "RECTIFIER_JUDGE_MODEL": "scripted",
    }
    with serving(variables=variables) as started:
        yield started


def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds, a bounded time."""
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, "it did not come to hold in time"
        time.sleep(0.01)


def answered(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Read one answer to its end."""
    connection.settimeout(WAIT_S)
    data = b""
    while b"\r\n\r\n" not in data:
        got = connection.recv(65_536)
        assert got, data
        data += got
    head, _, rest = data.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(rest) < int(headers["content-length"]):
        rest += connection.recv(65_536)
    return int(status.split()[1]), headers, rest


def problem_of(connection: socket.socket) -> dict[str, Any]:
    """Read one answer, which is a problem document."""
    status, headers, content = answered(connection)
    problem: dict[str, Any] = json.loads(content)
    assert headers["content-type"] == "application/problem+json"
    assert (problem["status"], problem["request_id"]) == (status, headers["x-request-id"])
    return problem


def test_endless_body_is_refused_while_it_is_read(server: Server) -> None:
    before = server.memory_mb
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += MIB
            yield b" " * MIB

    with httpx2.Client(timeout=WAIT_S) as client:
        headers = {"Content-Type": "application/json"}
        answer = client.post(f"{server.url}/audit", content=endless(), headers=headers)
    assert answer.status_code == 413
    assert answer.json()["type"].endswith("body-too-large")
    assert server.memory_mb - before < 32


def test_announced_body_over_the_limit_is_refused_before_it_is_sent(server: Server) -> None:
    with socket.create_connection(server.address) as connection:
        connection.sendall(CHUNKED + b"Content-Length: 104857600\r\n\r\n{")
        assert problem_of(connection)["status"] == 413


def test_compressed_body_is_refused_unread(server: Server) -> None:
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    answer = httpx2.post(f"{server.url}/audit", content=b"\x1f\x8b" * 5_000, headers=headers)
    assert answer.status_code == 415


def test_slow_body_times_out() -> None:
    with (
        serving(script=IMPATIENT) as server,
        socket.create_connection(server.address) as connection,
    ):
        connection.sendall(CHUNKED + b"Content-Length: 1000\r\n\r\n{")
        began = time.monotonic()
        problem = problem_of(connection)
        assert (problem["status"], problem["type"]) == (
            408,
            "urn:rectifier:problem:request-timeout",
        )
        assert time.monotonic() - began < WAIT_S
        assert connection.recv(1) == b""


def test_head_of_64_kb_and_a_long_query_are_read(server: Server) -> None:
    assert httpx2.get(f"{server.url}/livez", headers={"X-Long": "a" * 65_536}).status_code == 200
    path = f"{server.url}/pools/math/indicators/search?q={'word+' * 9_600}"
    assert httpx2.get(path, timeout=WAIT_S).status_code == 200


def test_endless_head_is_refused(server: Server) -> None:
    with socket.create_connection(server.address) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 300_000)
        assert problem_of(connection)["status"] == 431


@pytest.mark.parametrize(
    "sent",
    [b"hello\r\n\r\n", b"BREW /livez HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00"],
)
def test_what_is_no_http_is_a_problem(server: Server, sent: bytes) -> None:
    with socket.create_connection(server.address) as connection:
        connection.sendall(sent)
        assert problem_of(connection)["type"] == "urn:rectifier:problem:malformed-request"


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    one = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: %d\r\n\r\n"
    with socket.create_connection(server.address) as connection:
        for number in range(3):
            connection.sendall(one % number)
            assert answered(connection)[1]["x-request-id"] == str(number)
        connection.sendall(b"".join(one % number for number in range(2)))
        connection.settimeout(WAIT_S)
        data = b""
        while data.count(b"ok") < 2:
            data += connection.recv(65_536)
        assert data.index(b"x-request-id: 0") < data.index(b"x-request-id: 1")


def test_query_strings_are_not_logged(server: Server) -> None:
    httpx2.get(f"{server.url}/livez?secret=zanzibar", headers={"X-Request-Id": "query"})
    until(lambda: any(entry.get("request_id") == "query" for entry in server.logs))
    assert "zanzibar" not in json.dumps(server.logs)


def test_client_that_hangs_up_cancels_the_judge_call(
    judged: Server, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(Reply("{}", delay=WAIT_S))
    content = json.dumps(GATED).encode()
    head = CHUNKED.replace(b"/audit", b"/rectify") + b"Content-Length: %d\r\n\r\n" % len(content)
    with socket.create_connection(judged.address) as connection:
        connection.sendall(head + content)
        until(lambda: len(endpoint.calls) == 1)
    until(lambda: endpoint.calls[0].has_left)
    # The claim is released: another text may take the message's place at once.
    endpoint.script(None)
    again = {**GATED, "message": {"agent": "solver", "content": "17 * 23 = 391"}}
    until(lambda: httpx2.post(f"{judged.url}/rectify", json=again).status_code == 200)


def test_stop_finishes_what_is_under_way(judged: Server, endpoint: ScriptedEndpoint) -> None:
    endpoint.script(Reply("{}", delay=1.0))
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(httpx2.post, f"{judged.url}/rectify", json=GATED, timeout=WAIT_S)
        until(lambda: len(endpoint.calls) >= 1)
        assert judged.stop() == 0
        assert under_way.result().status_code == 200


def test_killed_service_starts_again_with_everything(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = str(tmp_path_factory.mktemp("d"))
    indicator = {"name": "KEPT", "definition": "A claim that outlives a kill."}
    with serving("--data-dir", folder) as first:
        made = httpx2.post(f"{first.url}/pools/math/indicators", json=indicator).json()
        gated = {**GATED, "policy": "checks"}
        assert httpx2.post(f"{first.url}/rectify", json=gated).status_code == 200
        first.process.kill()
        first.process.wait()
        with serving("--data-dir", folder) as second:
            path = f"{second.url}/pools/math/indicators/{made['id']}"
            assert httpx2.get(path).json() == made
            assert httpx2.get(f"{second.url}/runs/r").json()["run"]["retained"] == 1
            until(lambda: len(valkeys(folder)) == 1)
    until(lambda: not valkeys(folder))


def valkeys(folder: str) -> list[str]:
    """Return the ids of the valkey-servers that work in ``folder``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "comm").read_text(encoding="utf-8")
            where = (process / "cwd").readlink()
        except OSError:
            continue
        if command.startswith("valkey") and str(where).startswith(folder):
            found.append(process.name)
    return found


def refused_start(*arguments: str, **variables: str) -> str:
    """Start the service in vain and return its one line on standard error."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "serve", *arguments],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stdout + done.stderr
    line, *more = done.stderr.splitlines()
    assert not more
    return line


def test_port_in_use_is_told_in_one_line(server: Server, tmp_path: Path) -> None:
    port = str(server.address[1])
    line = refused_start("--port", port, "--data-dir", str(tmp_path))
    assert port in line
    assert "RECTIFIER_PORT" in line


def test_folder_in_use_is_told_in_one_line(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = str(tmp_path_factory.mktemp("d"))
    with serving("--data-dir", folder) as first:
        line = refused_start("--port", "0", "--data-dir", folder)
        assert str(first.process.pid) in line


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RECTIFIER_PROT", "1"),
        ("RECTIFIER_PORT", "many"),
        ("RECTIFIER_PORT", "65536"),
        ("RECTIFIER_SHUTDOWN_S", "-1"),
        ("REDIS_URL", "nowhere"),
    ],
)
def test_wrong_setting_is_named_in_one_line(tmp_path: Path, name: str, value: str) -> None:
    port = () if name == "RECTIFIER_PORT" else ("--port", "0")
    line = refused_start("--data-dir", str(tmp_path), *port, **{name: value})
    assert name in line
