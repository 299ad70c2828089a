"""Audit every agent step of the shared trajectories, and see that each gets an answer.

    python -m benchmarks.replay [--embedder real|double] [--share 0.1]

The service runs in a process of its own, with the 2,000 released indicators imported by
``rectifier pool import``, against a scripted endpoint that answers clean or violated. Steps of
agents are those that are not of the system, a person, the environment or a tool: 3,086 of 3,916.

Exit status: 0, or 1 where an answer was none: no answer, 5xx, 200 without a verdict, another status
without the offending field's name, or memory that grows.
"""

import argparse
import asyncio
import hashlib
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from rich.console import Console
from rich.progress import Progress

from examples.demo import first, process
from rectifier.verdict import Reason, Verdict
from rectifier_core.testing.scripted_endpoint import ChatCall, Reply, ScriptedEndpoint

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
POOL = "released"
CONCURRENCY = 8
CONTEXT = 3  # earlier steps that are sent along
TIMEOUT_S = 60.0
GROWTH_MB = 150.0  # from the first tenth of the steps to the last

NO_AGENT_ROLES = frozenset({"system", "tool", "human"})
NO_AGENTS = frozenset({"user_simulator", "environment", "Computer_terminal", "ComputerTerminal"})

_ZERO_WIDTH = re.compile("[\u200b-\u200f\u2060\ufeff]")
_NUMBERED = re.compile(r"^(\d+)\. ", re.MULTILINE)
_MESSAGE = re.compile(r"^(DATA-[0-9a-f]+)\n(.*)\n\1$", re.MULTILINE)

Json = dict[str, Any]
Post = Callable[[Json], Awaitable[tuple[int, Any]]]


@dataclass(frozen=True, slots=True)
class Step:
    """An agent's step of a trajectory.

    Attributes:
        name: ``trajectory/index``.
        domain: What the run was about.
        content: What the agent wrote; None where it only called tools.
        body: The request of its audit.
    """

    name: str
    domain: str
    content: str | None
    body: Json


@dataclass(slots=True)
class Tally:
    """What was answered.

    Attributes:
        statuses: How often each HTTP status came.
        verdicts: How often each verdict with its reason came.
        degraded: How often each reason for less than a full audit came.
        checks: Violated findings of each deterministic check.
        unsupported: Accusations without valid evidence.
        wrong: What must not happen, one line each.
        seconds: Latency of each answer.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    degraded: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    unsupported: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def take(self, step: Step, status: int, answer: Any) -> None:
        """Count one answer."""
        self.statuses[status] += 1
        if status == httpx2.codes.OK:
            self._take_audit(step, answer)
        elif not 400 <= status < 500 or not isinstance(answer, dict) or not answer.get("field"):
            self.wrong.append(f"{step.name}: HTTP {status}: {str(answer)[:200]}")

    def _take_audit(self, step: Step, answer: Any) -> None:
        if answer.get("verdict") not in set(Verdict) or answer.get("reason") not in set(Reason):
            self.wrong.append(f"{step.name}: no verdict: {str(answer)[:200]}")
            return
        self.verdicts[f"{answer['verdict']} ({answer['reason']})"] += 1
        self.degraded.update(answer["degraded"])
        self.unsupported += len(answer["unsupported"])
        self.checks.update(
            finding["indicator_id"]
            for finding in answer["findings"]
            if finding["source"] == "check" and finding["violated"]
        )

    def percentile_ms(self, percent: int) -> float:
        """Return a percentile of the latencies, in milliseconds."""
        return statistics.quantiles(self.seconds, n=100, method="inclusive")[percent - 1] * 1000


def agent_steps(trajectories: Path) -> list[Step]:
    """Return the steps of agents, in order, as requests."""
    with trajectories.open(encoding="utf-8") as lines:
        return [step for line in lines for step in _steps_of(json.loads(line))]


def sample(steps: Sequence[Step], share: float) -> list[Step]:
    """Return about ``share`` of ``steps``, evenly over domains and lengths, and every odd kind.

    Args:
        steps: At least one.
        share: In (0, 1].
    """
    if share >= 1:
        return list(steps)
    ordered = sorted(steps, key=lambda step: (step.domain, len(step.content or "")))
    every = round(1 / share)
    kinds: dict[str, Step] = {}
    for step in ordered:
        kinds.setdefault(_kind(step), step)
    odd = [max(steps, key=lambda step: len(step.content or "")), *kinds.values()]
    chosen = {step.name: step for step in (*ordered[every // 2 :: every], *odd)}
    return list(chosen.values())


def ballot(call: ChatCall) -> Reply:
    """Answer as a judge might: two messages in ten are objected to, one of them in most points."""
    numbers = [int(number) for number in _NUMBERED.findall(call.user)][:5] or [1]
    found = _MESSAGE.search(call.user)
    message = json.loads(found[2]) if found else ""
    quote = " ".join(message.split()[:8])[:200]
    draw = hashlib.sha256(message.encode("utf-8", "replace")).digest()[0] % 10
    count = {0: 1, 1: len(numbers)}.get(draw, 0) if quote else 0
    accusations = [
        {
            "id": number,
            "evidence": quote,
            "correction": "State the figure that the task gives.",
            "impact": "The final answer becomes another one.",
        }
        for number in numbers[:count]
    ]
    return Reply.json({"clean": numbers[count:], "violated": accusations})


async def replay(
    steps: Sequence[Step],
    post: Post,
    *,
    concurrency: int = CONCURRENCY,
    advance: Callable[[], None] = lambda: None,
) -> Tally:
    """Post every step, so many at once, and return what was answered."""
    tally = Tally()
    left = iter(steps)

    async def worker() -> None:
        for step in left:
            began = time.perf_counter()
            try:
                status, answer = await post(step.body)
            except httpx2.HTTPError as error:
                tally.wrong.append(f"{step.name}: no answer: {type(error).__name__}")
            else:
                tally.take(step, status, answer)
            tally.seconds.append(time.perf_counter() - began)
            advance()

    async with asyncio.TaskGroup() as workers:
        for _ in range(concurrency):
            workers.create_task(worker())
    return tally


def main() -> int:
    """Replay, print the figures and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--embedder", choices=["real", "double"], default="double")
    parser.add_argument("--share", type=float, default=1.0, help="of the steps, in (0, 1]")
    given = parser.parse_args()
    if not 0 < given.share <= 1:
        parser.error("--share lies in (0, 1]")
    console = Console()
    if not DATA.is_dir():
        console.print("nothing to replay: the shared data folder is not beside this checkout")
        return 0
    every = agent_steps(DATA / "trajectories.jsonl")
    steps = sample(every, given.share)
    console.print(f"{len(steps):,} of {len(every):,} agent steps, embedder: {given.embedder}")
    with _served(given.embedder) as (url, pid):
        seconds = _imported(url)
        console.print(f"import of the released indicators: {seconds:.1f} s")
        began = time.perf_counter()
        tally, early_mb = asyncio.run(_replayed(url, pid, steps, console))
        seconds = time.perf_counter() - began
        late_mb = _rss_mb(pid)
    if late_mb - early_mb > GROWTH_MB:
        tally.wrong.append(f"memory grew from {early_mb:.0f} to {late_mb:.0f} MB")
    _show(console, tally)
    console.print(f"RSS {early_mb:.0f} MB after a tenth, {late_mb:.0f} MB at the end")
    console.print(f"{seconds:.1f} s, {len(steps) / seconds:.0f} audits a second")
    return 1 if tally.wrong else 0


def _steps_of(trajectory: Json) -> Iterator[Step]:
    earlier: list[Json] = []
    for step in trajectory["steps"]:
        content = step.get("content")
        if step["role"] not in NO_AGENT_ROLES and step["agent"] not in NO_AGENTS:
            message = {"agent": step["agent"], "role": step["role"], "content": content}
            if calls := step.get("tool_calls"):
                message["tool_calls"] = [_tool_call(call) for call in calls]
            yield Step(
                name=f"{trajectory['id']}/{step['index']}",
                domain=trajectory["domain"],
                content=content,
                body={
                    "task": trajectory["question"],
                    "message": message,
                    "context": earlier[-CONTEXT:],
                },
            )
        earlier.append({"agent": step["agent"], "content": content})


def _tool_call(call: Json) -> Json:
    function = call.get("function") or call
    arguments = function.get("arguments") or ""
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {"id": call.get("id"), "name": function["name"], "arguments": arguments}


def _kind(step: Step) -> str:
    content = step.content
    shape = "null" if content is None else "text" if content.strip() else "blank"
    hidden = "with zero width" if _ZERO_WIDTH.search(content or "") else ""
    calls = "with tool calls" if step.body["message"].get("tool_calls") else ""
    return f"{step.domain} {shape} {hidden} {calls}"


@contextmanager
def _served(embedder: str) -> Iterator[tuple[str, int]]:
    """Serve against a scripted judge; yield the address and the process id."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rectifier-replay-"))
        judge = stack.enter_context(ScriptedEndpoint(ballot)).base_url
        command = ["-m", "benchmarks.double"]
        if embedder == "real":
            command = ["-m", "rectifier", "serve", "--port", "0"]
        environment = {"RECTIFIER_JUDGE_MODEL": "scripted", "OPENAI_BASE_URL": judge}
        environment |= {"OPENAI_API_KEY": "scripted", "RECTIFIER_DATA_DIR": folder}
        started = stack.enter_context(process([sys.executable, *command], environment))
        yield first(started, "url"), started.pid


def _imported(url: str) -> float:
    """Import the released indicators by the command; return how many seconds it took."""
    file = DATA / "indicators_released_math.jsonl"
    began = time.perf_counter()
    command = [sys.executable, "-m", "rectifier", "pool", "import", str(file)]
    subprocess.run([*command, "--pool", POOL, "--base-url", url], check=True)
    return time.perf_counter() - began


async def _replayed(
    url: str, pid: int, steps: Sequence[Step], console: Console
) -> tuple[Tally, float]:
    """Return the tally, and the service's memory in MB after a tenth of the steps."""
    early_mb: list[float] = []
    limits = httpx2.Limits(max_connections=CONCURRENCY)
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("auditing", total=len(steps))

        def advance() -> None:
            bar.advance(task)
            if not early_mb and bar.tasks[0].completed * 10 >= len(steps):
                early_mb.append(_rss_mb(pid))

        async with httpx2.AsyncClient(
            base_url=url, timeout=TIMEOUT_S, limits=limits, trust_env=False
        ) as client:

            async def post(body: Json) -> tuple[int, Any]:
                response = await client.post("/audit", json=body)
                is_json = "json" in response.headers.get("content-type", "")
                return response.status_code, response.json() if is_json else response.text

            tally = await replay(steps, post, advance=advance)
    return tally, early_mb[0]


def _show(console: Console, tally: Tally) -> None:
    for title, counts in (
        ("status", tally.statuses),
        ("verdict", tally.verdicts),
        ("degraded", tally.degraded),
        ("violated checks", tally.checks),
    ):
        shown = ", ".join(f"{name}: {count:,}" for name, count in counts.most_common())
        console.print(f"{title}: {shown or 'none'}", highlight=False)
    console.print(f"accusations without evidence: {tally.unsupported:,}")
    console.print(f"p50 {tally.percentile_ms(50):.0f} ms, p99 {tally.percentile_ms(99):.0f} ms")
    for line in tally.wrong[:50]:
        console.print(f"WRONG {line}", markup=False)
    if tally.wrong:
        console.print(f"{len(tally.wrong):,} wrong answers")


def _rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line) / 1024


if __name__ == "__main__":
    sys.exit(main())
