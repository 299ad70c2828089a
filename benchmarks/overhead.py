"""What the service costs beside the judge call: CPU and requests a second, against a floor.

    python -m benchmarks.overhead [--requests 2000] [--rounds 3]

Everything runs on this machine, a process each: a zero-delay scripted endpoint, the service with
2,000 indicators and a zero-cost embedder, the floor (a bare FastAPI handler with the same body that
makes one chat call through the same client), and this process, which sends the load. The CPU time is
the served process's own, from its process accounting; rounds alternate between service and floor, so
that the machine's noise falls on both, and the table gives the median.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from pydantic import SecretStr
from rich.console import Console
from rich.table import Table

from examples.demo import first, process
from rectifier_core.chat import ChatRequest
from rectifier_core.deadline import Deadline

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "indicators_released_math.jsonl"
REPLY = json.dumps({"clean": [1, 2, 3, 4, 5], "violated": []})
CONCURRENCIES = (1, 32)
WARM_UP = 200
TICKS = os.sysconf("SC_CLK_TCK")

# Like the real trajectories: a task of median length (240 characters), a message of mean length
# (1,060) with the mean number of equations (3).
TASK = (
    "A ferry makes 14 crossings a day. On each it carries 36 cars, and a ticket costs 23 euros per "
    "car. In winter a third of the crossings are cancelled. How much does the ferry take in on "
    "three winter days if all of its crossings are full?"
)
MESSAGE = (
    "First I find how many crossings remain in winter. A third of the crossings is cancelled, and a "
    "third of 14 is not a whole number, so I read it as the share over the three days together. In "
    "three days there would be 14 * 3 = 42 crossings; a third of these is cancelled, so 28 remain.\n\n"
    "Next I find how many cars the ferry carries. Each crossing takes 36 cars and all of them are "
    "full, so the number of cars is 28 * 36 = 1008. I check this another way, by splitting the "
    "second factor into thirty and six and adding both products, and the result agrees with the "
    "first one.\n\n"
    "Last I multiply by the price of a ticket. Each car pays 23 euros, so the income is "
    "1008 * 23 = 23184 euros. To be sure I estimate: about a thousand cars at about 23 euros each "
    "give about 23000 euros, which is close to the exact result.\n\n"
    "The cancelled crossings are taken off before the price is applied, and no other cost is asked "
    "for, so nothing else has to be subtracted. The final answer is that the ferry takes in 23184 "
    "euros on three winter days."
)


@dataclass(frozen=True)
class Measured:
    """One round at one concurrency.

    Attributes:
        cpu_ms: CPU milliseconds of the served process a request.
        rate: Requests a second.
        p50_ms: Median latency.
    """

    cpu_ms: float
    rate: float
    p50_ms: float


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=2_000, help="a round and concurrency")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    console = Console()
    rows: dict[tuple[str, int], list[Measured]] = {}
    memory: dict[str, list[float]] = {"rectifier": [], "floor": []}
    with ExitStack() as stack:
        served = {name: stack.enter_context(_served(name)) for name in ("rectifier", "floor")}
        for name, (url, pid) in served.items():
            asyncio.run(_load(url, WARM_UP, 8))
            memory[name].append(_rss_mb(pid))
        for _ in range(given.rounds):
            for concurrency in CONCURRENCIES:
                for name, (url, pid) in served.items():
                    rows.setdefault((name, concurrency), []).append(
                        _measured(url, pid, given.requests, concurrency)
                    )
        for name, (_, pid) in served.items():
            memory[name].append(_rss_mb(pid))
    _show(console, rows, memory)


def _show(
    console: Console,
    rows: dict[tuple[str, int], list[Measured]],
    memory: dict[str, list[float]],
) -> None:
    table = Table(title="POST /audit, preset fast, 2,000 indicators, zero-delay judge, one worker")
    for heading in ("served", "concurrency", "CPU ms/request", "x floor", "requests/s", "p50 ms"):
        table.add_column(heading, justify="right")
    for concurrency in CONCURRENCIES:
        floor = _median([one.cpu_ms for one in rows["floor", concurrency]])
        for name in ("rectifier", "floor"):
            measured = rows[name, concurrency]
            cpu = _median([one.cpu_ms for one in measured])
            table.add_row(
                name,
                str(concurrency),
                f"{cpu:.2f}",
                f"{cpu / floor:.2f}",
                f"{_median([one.rate for one in measured]):.0f}",
                f"{_median([one.p50_ms for one in measured]):.2f}",
            )
    console.print(table)
    for name, (before, after) in memory.items():
        console.print(f"RSS of {name}: {before:.0f} MB warm, {after:.0f} MB after the load")
    console.print(f"the judge client alone: {_client_alone():.2f} ms CPU a call")


def _measured(url: str, pid: int, requests: int, concurrency: int) -> Measured:
    cpu, began = _cpu_s(pid), time.perf_counter()
    latencies = asyncio.run(_load(url, requests, concurrency))
    seconds = time.perf_counter() - began
    return Measured(
        cpu_ms=(_cpu_s(pid) - cpu) / requests * 1000,
        rate=requests / seconds,
        p50_ms=statistics.median(latencies) * 1000,
    )


async def _load(url: str, requests: int, concurrency: int) -> list[float]:
    body = json.dumps({"task": TASK, "message": {"agent": "solver", "content": MESSAGE}}).encode()
    headers = {"Content-Type": "application/json"}
    latencies: list[float] = []
    left = iter(range(requests))

    async def worker(session: aiohttp.ClientSession) -> None:
        for _ in left:
            began = time.perf_counter()
            async with session.post(f"{url}/audit", data=body, headers=headers) as response:
                answer = await response.read()
                if response.status != 200:
                    raise SystemExit(f"the service answered {response.status}: {answer[:300]!r}")
            latencies.append(time.perf_counter() - began)

    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(worker(session) for _ in range(concurrency)))
    return latencies


def _client_alone(calls: int = 1_000) -> float:
    """Return the CPU milliseconds of one call of the judge client, measured in this process."""
    from rectifier.settings import Settings
    from rectifier.wiring import open_chat

    async def measure(base_url: str) -> float:
        settings = Settings(
            judge_model="scripted", openai_base_url=base_url, openai_api_key=SecretStr("scripted")
        )
        request = ChatRequest("judge", "system", MESSAGE)
        async with open_chat(settings) as chat:
            for _ in range(100):
                await chat.complete(request, deadline=Deadline.after(30))
            began = time.process_time()
            for _ in range(calls):
                await chat.complete(request, deadline=Deadline.after(30))
            return (time.process_time() - began) / calls * 1000

    with _judge() as base_url:
        return asyncio.run(measure(base_url))


@contextmanager
def _judge() -> Iterator[str]:
    command = [sys.executable, "-m", "rectifier_core.testing.scripted_endpoint", "--reply", REPLY]
    with process(command, {}) as started:
        yield first(started, "base_url")


@contextmanager
def _served(name: str) -> Iterator[tuple[str, int]]:
    """Serve one application against a judge of its own; yield its address and process id."""
    with tempfile.TemporaryDirectory(prefix="rectifier-bench-") as folder, _judge() as judge:
        command = [sys.executable, "-m", "benchmarks.served", name, "--judge", judge]
        command += ["--data-dir", folder]
        if name == "rectifier":
            command += ["--indicators", str(_indicators(Path(folder)))]
        with process(command, {}) as started:
            yield first(started, "url"), started.pid


def _indicators(folder: Path) -> Path:
    """Return a file of 2,000 indicators: the released ones where they are, else made ones."""
    if SHARED.is_file():
        return SHARED
    made = folder / "indicators.jsonl"
    lines = (
        json.dumps(
            {
                "name": f"MADE_{n}",
                "definition": f"The agent confuses quantity {n} with quantity {n * 7 % 1999}.",
                "trigger_condition": f"When the problem involves quantity {n} and a speed.",
            }
        )
        for n in range(2_000)
    )
    made.write_text("\n".join(lines), encoding="utf-8")
    return made


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


if __name__ == "__main__":
    main()
