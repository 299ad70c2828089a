"""Three agents, two tasks, plain HTTP: watch messages pass, be retried and be pruned.

The service is started on a free loopback port with a data folder of its own and stopped at the end.
With OPENAI_BASE_URL, OPENAI_API_KEY and RECTIFIER_JUDGE_MODEL set, the judge is real; otherwise the
deterministic checks decide the first act, and a scripted endpoint plays the judge in the second.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30
REQUEST_TIMEOUT_S = 120

Json = dict[str, Any]


@dataclass(frozen=True)
class Agent:
    """An agent whose drafts are written down: one for each attempt."""

    name: str
    role: str
    drafts: Sequence[str]

    def answer(self, attempt: int) -> str:
        """Return the draft of this attempt; the last one again when there are no more."""
        return self.drafts[min(attempt, len(self.drafts) - 1)]


@dataclass(frozen=True)
class Scene:
    """A task and the team that works on it."""

    run_id: str
    pool: str
    task: str
    team: Sequence[Agent]


@dataclass
class Played:
    """What happened in a scene."""

    attempts: list[Json] = field(default_factory=list)
    retained: list[str] = field(default_factory=list)
    finished: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Started:
    """A process of the demo, and the lines that it writes; None at their end."""

    pid: int
    lines: "queue.Queue[str | None]"


CHECKS_SCENE = Scene(
    run_id="ferry-tickets",
    pool="math",
    task=(
        "A ferry makes 14 crossings a day with 36 cars each, and a ticket costs 23 euros per car. "
        "All crossings are full. How much does it take in on three days?"
    ),
    team=(
        Agent(
            "solver",
            "Works the problem out step by step.",
            (
                "Cars per day: 14 * 36 = 494. Three days: 494 * 3 = 1482. "
                "Income: 1482 * 23 = 34086. The answer is 34086 euros.",
                "Cars per day: 14 * 36 = 504. Three days: 504 * 3 = 1512. "
                "Income: 1512 * 23 = 34776. The answer is 34776 euros.",
            ),
        ),
        Agent(
            "estimator",
            "Checks the order of magnitude.",
            ("About 500 cars a day at 23 euros is 500 * 23 = 10500 a day, so about 31500 euros.",),
        ),
        Agent(
            "reporter",
            "States the team's answer.",
            ("Over three days the ferry takes in 34776 euros.",),
        ),
    ),
)

JUDGE_SCENE = Scene(
    run_id="tank-filling",
    pool="math",
    task=(
        "One pump fills a tank in 6 hours, another in 3 hours. How long do both together take to "
        "fill it?"
    ),
    team=(
        Agent(
            "solver",
            "Works the problem out step by step.",
            (
                "The average of 6 and 3 hours is 4.5 hours, so both together take 4.5 hours.",
                "Per hour they fill 1/6 + 1/3 = 1/2 of the tank, so both together take 2 hours.",
            ),
        ),
        Agent(
            "skeptic",
            "Tries to find another answer.",
            (
                "Two pumps take longer than one: 6 + 3 = 9 hours.",
                "I still hold that it takes 6 + 3 = 9 hours in all.",
                "My answer remains: the times add, 9 hours.",
                "Nine hours. The times add up.",
            ),
        ),
        Agent(
            "reporter",
            "States the team's answer.",
            ("Both pumps together fill the tank in 2 hours.",),
        ),
    ),
)


def main() -> int:
    """Play the demo; return 0 where everything went as it should."""
    console = Console()
    if os.environ.get("RECTIFIER_JUDGE_MODEL"):
        console.rule("The judge is your own endpoint")
        with service({}) as base_url:
            for scene in (CHECKS_SCENE, JUDGE_SCENE):
                show(console, scene, play(base_url, scene))
        return 0
    console.rule("Act 1: no judge endpoint, the deterministic checks decide")
    with service({}) as base_url:
        show(console, CHECKS_SCENE, play(base_url, CHECKS_SCENE))
    console.rule("Act 2: a scripted endpoint plays the judge (its replies are written down)")
    with scripted_judge() as environment, service(environment) as base_url:
        show(console, JUDGE_SCENE, play(base_url, JUDGE_SCENE))
    console.print(
        "Your own judge: set OPENAI_BASE_URL, OPENAI_API_KEY and RECTIFIER_JUDGE_MODEL, and run "
        "this again."
    )
    return 0


def play(base_url: str, scene: Scene) -> Played:
    """Run the team: each agent answers until its message passes or is pruned."""
    played = Played()
    for agent in scene.team:
        attempt = 0
        while True:
            draft = agent.answer(attempt)
            answer = post(
                f"{base_url}/rectify",
                {
                    "run_id": scene.run_id,
                    "message_id": f"{agent.name}-1",
                    "attempt": attempt,
                    "task": scene.task,
                    "message": {"agent": agent.name, "role": agent.role, "content": draft},
                    "context": played.retained,
                    "pool": scene.pool,
                    "expected_messages": len(scene.team),
                },
            )
            played.attempts.append({"agent": agent.name, "draft": draft, **answer})
            if answer["decision"] == "pass":
                played.retained.append(f"{agent.name}: {draft}")
            if answer["decision"] != "retry":
                break
            attempt += 1
    played.finished = post(f"{base_url}/runs/{scene.run_id}/finish", {})
    return played


def show(console: Console, scene: Scene, played: Played) -> None:
    """Print every attempt, what was retrieved for it, and the run's counts."""
    console.print(f"\n[bold]Task[/bold] {scene.task}\n")
    table = Table(show_lines=True)
    for heading, ratio in (
        ("agent", 2),
        ("decision", 2),
        ("message and evidence", 5),
        ("feedback", 5),
    ):
        table.add_column(heading, ratio=ratio, overflow="fold")
    for attempt in played.attempts:
        violated = [found for found in attempt["audit"]["findings"] if found["violated"]]
        table.add_row(
            f"{attempt['agent']}\nattempt {attempt['attempt']}",
            f"[bold]{attempt['decision']}[/bold]\n{attempt['reason'].replace('_', ' ')}",
            "\n".join(
                [escape(attempt["draft"])]
                + [f"[red]evidence:[/red] {escape(found['evidence'])}" for found in violated]
            ),
            "\n".join(
                f"{escape(found['name'])}: {escape(found['suggestion'])}" for found in violated
            ),
        )
    console.print(table)
    told = next((one["feedback"] for one in played.attempts if one["decision"] == "retry"), None)
    if told:
        console.print("The first feedback, as the agent gets it:\n", style="bold")
        console.print(Padding(escape(told), (0, 4)), highlight=False)
    console.print("\nRetrieved, nearest first (* audited by the judge):", style="bold")
    for attempt in played.attempts:
        retrieval = attempt["audit"]["retrieval"]
        names = [
            f"{found['name']}{'*' * (found['indicator_id'] in retrieval['active'])}"
            for found in retrieval["candidates"][:3]
        ]
        console.print(f"  {attempt['agent']}/{attempt['attempt']}: {', '.join(names)}")
    run = played.finished["run"]
    gamma = played.attempts[-1]["audit"]["policy"]["gamma"]
    console.print(
        f"\n{run['messages']} messages, {run['retained']} retained, {run['rejected']} rejected; "
        f"fallback is {'due' if played.finished['fallback'] else 'not due'} "
        f"(it is below {gamma} retained)\n"
    )


def post(url: str, body: Mapping[str, Any]) -> Json:
    """Post JSON and return the JSON that comes back."""
    request = urllib.request.Request(  # noqa: S310 - a loopback address of our own
        url,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
        method="POST",
    )
    with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as response:  # noqa: S310
        found: Json = json.load(response)
    return found


@contextlib.contextmanager
def service(environment: Mapping[str, str]) -> Iterator[str]:
    """Run the service with an empty data folder; yield its address."""
    with tempfile.TemporaryDirectory(prefix="rectifier-demo-") as folder:
        command = [sys.executable, "-m", "rectifier", "serve", "--port", "0", "--data-dir", folder]
        with process(command, environment) as started:
            yield first(started, "url")


@contextlib.contextmanager
def scripted_judge() -> Iterator[dict[str, str]]:
    """Run the scripted endpoint; yield the settings that make it the judge."""
    command = [sys.executable, "-m", "examples.scripted_judge"]
    with process(command, {}) as started:
        yield {
            "OPENAI_BASE_URL": first(started, "base_url"),
            "OPENAI_API_KEY": "scripted",
            "RECTIFIER_JUDGE_MODEL": "scripted-judge",
        }


@contextlib.contextmanager
def process(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[Started]:
    """Run a process that writes JSON lines; stop it by its pid at the end."""
    lines: queue.Queue[str | None] = queue.Queue()
    root = Path(__file__).resolve().parents[1]
    with subprocess.Popen(  # noqa: S603 - our own command
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, **environment},
    ) as started:

        def read() -> None:
            for line in started.stdout or ():
                lines.put(line)
            lines.put(None)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield Started(started.pid, lines)
        finally:
            started.terminate()
            try:
                started.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                started.kill()
            reader.join(STOP_TIMEOUT_S)


def first(started: Started, key: str) -> str:
    """Return the first value of ``key`` in the process's JSON lines."""
    while (line := started.lines.get(timeout=START_TIMEOUT_S)) is not None:
        with contextlib.suppress(json.JSONDecodeError):
            found = json.loads(line)
            if isinstance(found, dict) and isinstance(found.get(key), str):
                value: str = found[key]
                return value
    raise SystemExit("a process of the demo did not start; its last lines are above")


if __name__ == "__main__":
    raise SystemExit(main())
