"""What one audited message costs by preset: calls, tokens and modelled latency.

    python -m benchmarks.cost [--messages 100] [--context 0]

Real messages of agents (ordered by domain and length, then every n-th) go through the real auditor and
judge client to a scripted endpoint in this process, with the 2,000 released indicators. The endpoint
counts tokens (2.6 characters each) in prompt and reply alike. Nothing waits: latency is
first token + prompt / prefill rate + completion / decode rate, added over the calls that follow one
another; of calls sent side by side (``reference``) the longest counts, and the column "all calls" adds
them up instead.

Replies are as long as the prompt's format makes them. The same one message in five is accused, of one
indicator:

    keywords     3 keywords for the scenario and 4 for the action, two words each
    rerank       the numbers of as many indicators as may be chosen
    ballot       the numbers of the clean; an accusation quotes 12 words, corrects in 15, shows the
                 impact in 10 (the prompt allows 25 each)
    single       an accused indicator has 12 words of evidence, 30 of analysis, 20 of suggestion, 15 of
                 impact (40 are allowed each); a clean one says "N/A", as the prompt asks

How much a model writes is not fixed by the prompt alone, and the method's own releases ask for more
than a ballot. The rows in brackets give the same calls with other replies: ``released`` answers a batch
as the second release does, by an object with these texts for every indicator; ``texts`` writes the
texts of clean indicators too, as a model does that reasons before it decides.

Latency is made by the number of calls and the length of the replies; a shorter prompt changes
little. So ``fast`` is about three times as fast as three calls that answer by ballots as short as its
own, and more than five times as fast as the method with its released replies.
"""

import argparse
import asyncio
import hashlib
import json
import re
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pydantic import SecretStr
from rich.console import Console
from rich.table import Table

from benchmarks.replay import DATA, Step, agent_steps
from rectifier.audit import Auditor
from rectifier.case import Case
from rectifier.judge import Judge
from rectifier.policy import PRESETS
from rectifier.settings import Settings
from rectifier.wire import AuditRequest
from rectifier.wiring import open_chat
from rectifier_core.chat import ChatModel, ChatReply, ChatRequest, Usage
from rectifier_core.deadline import Deadline
from rectifier_core.indicator import Indicator
from rectifier_core.interchange import read
from rectifier_core.snapshot import Snapshot
from rectifier_core.testing.embedding import HashedEmbedder
from rectifier_core.testing.scripted_endpoint import (
    ChatCall,
    Latency,
    Reply,
    Script,
    ScriptedEndpoint,
)
from rectifier_core.vectors import with_vectors

RELEASED = DATA / "indicators_released_math.jsonl"
DIMENSION = 384
DEADLINE_S = 60.0
ACCUSED_IN = 5  # one message in so many
TOKENS_AIM = 0.45  # of paper-v2, at most
TIME_AIM = 5.0  # times that of fast, at least
SPEEDS: Mapping[str, Latency] = {
    "20,000 and 130 tokens/s": Latency(prefill_rate=20_000, decode_rate=130),
    "0.55 s and 70 tokens/s": Latency(first_token=0.55, decode_rate=70),
}

_QUOTED, _CORRECTION, _IMPACT = 12, 15, 10  # words of an accusation in a ballot
_ANALYSIS, _SUGGESTION, _ASSESSMENT = 30, 20, 15  # words of an object of its own

_PROSE = (
    "the third step multiplies the yearly rate by the number of months and leaves out the division "
    "by twelve that the task asks for so every later figure that rests on it is too large"
)
_NUMBERED = re.compile(r"^(\d+)\. ([^:\n]*)", re.MULTILINE)
_MESSAGE = re.compile(r"^(DATA-[0-9a-f]+)\n(.*)\n\1$", re.MULTILINE)


@dataclass(frozen=True)
class Variant:
    """A preset and how the judge writes.

    Attributes:
        name: As the table shows it.
        preset: The preset.
        is_released: A batch is answered by an object an indicator.
        has_texts: Clean indicators get texts, where the format has room for them.
    """

    name: str
    preset: str
    is_released: bool = False
    has_texts: bool = False


VARIANTS = (
    Variant("fast", "fast"),
    Variant("paper-v2", "paper-v2"),
    Variant("paper-v2 (released)", "paper-v2", is_released=True),
    Variant("paper-v2 (released, texts)", "paper-v2", is_released=True, has_texts=True),
    Variant("reference", "reference"),
    Variant("reference (texts)", "reference", has_texts=True),
)


@dataclass(frozen=True)
class Call:
    """One answered call.

    Attributes:
        round: Equal for calls that were under way at the same time.
        usage: What the endpoint counted.
    """

    round: int
    usage: Usage

    def seconds(self, speed: Latency) -> float:
        """Return how long a model of that speed takes."""
        return speed.seconds(self.usage.prompt_tokens, self.usage.completion_tokens)


@dataclass
class Meter:
    """A chat model that notes what each call to another cost.

    Attributes:
        inner: The other.
        calls: So far.
    """

    inner: ChatModel
    calls: list[Call] = field(default_factory=list)
    _under_way: int = 0
    _round: int = 0

    @property
    def model(self) -> str:
        """The inner model's name."""
        return self.inner.model

    async def complete(self, request: ChatRequest, *, deadline: Deadline) -> ChatReply:
        """Ask the inner model."""
        if not self._under_way:
            self._round += 1
        number = self._round
        self._under_way += 1
        try:
            reply = await self.inner.complete(request, deadline=deadline)
        finally:
            self._under_way -= 1
        self.calls.append(Call(number, reply.usage))
        return reply


class _Still:
    """A snapshot that never changes."""

    is_stale = False

    def __init__(self, snapshot: Snapshot) -> None:
        self.current = snapshot

    def version(self, pools: Sequence[str] | None) -> str:
        """Return one version for each choice of pools."""
        return f"still {pools}"


@dataclass(frozen=True)
class Cost:
    """What one audited message costs on average.

    Attributes:
        calls: Calls.
        prompt: Prompt tokens.
        completion: Completion tokens.
        seconds: By speed, the calls that follow one another.
        all_seconds: By speed, every call.
    """

    calls: float
    prompt: float
    completion: float
    seconds: Mapping[str, float]
    all_seconds: Mapping[str, float]

    @property
    def tokens(self) -> float:
        """Prompt and completion tokens."""
        return self.prompt + self.completion

    @classmethod
    def mean(cls, messages: Sequence[Sequence[Call]]) -> "Cost":
        """Return the average over the calls of each message."""
        per = 1 / len(messages)
        usage = sum((call.usage for calls in messages for call in calls), Usage())
        return cls(
            calls=usage.calls * per,
            prompt=usage.prompt_tokens * per,
            completion=usage.completion_tokens * per,
            seconds={
                name: per * sum(critical_path(calls, speed) for calls in messages)
                for name, speed in SPEEDS.items()
            },
            all_seconds={
                name: per * sum(call.seconds(speed) for calls in messages for call in calls)
                for name, speed in SPEEDS.items()
            },
        )


def critical_path(calls: Sequence[Call], speed: Latency) -> float:
    """Return the seconds of the longest call of each round, added up."""
    longest: dict[int, float] = {}
    for call in calls:
        longest[call.round] = max(longest.get(call.round, 0.0), call.seconds(speed))
    return sum(longest.values())


def stratified(steps: Sequence[Step], count: int) -> list[Step]:
    """Return ``count`` of the steps that say something, evenly over domains and lengths."""
    told = [step for step in steps if (step.content or "").strip()]
    ordered = sorted(told, key=lambda step: (step.domain, len(step.content or ""), step.name))
    count = min(count, len(ordered))
    return [ordered[(2 * n + 1) * len(ordered) // (2 * count)] for n in range(count)]


def judge(variant: Variant) -> Script:
    """Return a judge that answers each kind of call in the format it asks for."""

    def answer(call: ChatCall) -> Reply:
        opening = call.system.splitlines()[0]
        found = _MESSAGE.search(call.user)
        message = json.loads(found[2]) if found else ""
        if "search keywords" in opening:
            return Reply.json(
                {
                    "problem_scenario": ["monthly interest", "word problem", "compound growth"],
                    "agent_action": [
                        "rate conversion",
                        "unit check",
                        "final sum",
                        "rounded result",
                    ],
                }
            )
        numbered = {int(number): name for number, name in _NUMBERED.findall(call.user)}
        if "choose which" in opening:
            return Reply.json({"ids": list(numbered)[:5]})
        is_accused = hashlib.sha256(message.encode()).digest()[0] % ACCUSED_IN == 0
        if "one area of concern" in opening:
            # Five of these calls are made for a message, and one of them accuses.
            mark = hashlib.sha256(call.user.partition("DATA-")[0].encode()).digest()[0]
            return Reply.json(_object(message, variant, is_flawed=is_accused and mark % 5 == 0))
        chosen = list(numbered)[:5]
        if variant.is_released:
            objects = [
                {"metric": numbered[n]} | _object(message, variant, is_flawed=is_accused and not k)
                for k, n in enumerate(chosen)
            ]
            return Reply.json(objects)
        accused = chosen[:1] if is_accused else []
        return Reply.json(
            {
                "clean": [number for number in chosen if number not in accused],
                "violated": [{"id": number} | _accusation(message) for number in accused],
            }
        )

    return answer


def _accusation(message: str) -> dict[str, object]:
    return {
        "evidence": _quote(message),
        "correction": _prose(_CORRECTION),
        "impact": _prose(_IMPACT),
    }


def _object(message: str, variant: Variant, *, is_flawed: bool) -> dict[str, object]:
    is_written = is_flawed or variant.has_texts
    assessed = _prose(_ASSESSMENT - 1)
    return {
        "evidence_quote": _quote(message) if is_written else "N/A",
        "analysis": _prose(_ANALYSIS) if is_written else "N/A",
        "suggestion": _prose(_SUGGESTION) if is_flawed else "N/A",
        "impact_assessment": (f"YES {assessed}" if is_flawed else f"NO {assessed}")
        if is_written
        else "N/A",
        "is_flawed": is_flawed,
    }


def _prose(count: int) -> str:
    return " ".join(_PROSE.split()[:count])


def _quote(message: str) -> str:
    return " ".join(message.split()[:_QUOTED])[:200]


async def measured(variant: Variant, cases: Sequence[Case], snapshot: Snapshot) -> Cost:
    """Return what these messages cost; ``cases`` are taken with the variant's preset."""
    messages = []
    async with _auditor(variant, snapshot) as (auditor, meter):
        for case in cases:
            meter.calls.clear()
            await auditor.audit(case, deadline=Deadline.after(DEADLINE_S))
            messages.append(list(meter.calls))
    return Cost.mean(messages)


@asynccontextmanager
async def _auditor(variant: Variant, snapshot: Snapshot) -> AsyncIterator[tuple[Auditor, Meter]]:
    with ScriptedEndpoint(judge(variant)) as endpoint:
        settings = Settings(
            judge_model="scripted",
            openai_base_url=endpoint.base_url,
            openai_api_key=SecretStr("scripted"),
        )
        async with open_chat(settings) as chat:
            meter = Meter(chat)
            embedder = HashedEmbedder(DIMENSION)
            yield (
                Auditor(judge=Judge(meter), embedder=embedder, snapshots=_Still(snapshot)),
                meter,
            )


async def released() -> Snapshot:
    """Return a snapshot of the released indicators."""
    with RELEASED.open("rb") as lines:
        found = read(lines, pool="released", tenant="default", source="import")
        indicators = [one for one in found if isinstance(one, Indicator)]
    stored = await with_vectors(indicators, HashedEmbedder(DIMENSION))
    return Snapshot.build(stored, dimension=DIMENSION)


def case_of(step: Step, preset: str, *, context: int = 0) -> Case:
    """Return the audit of ``step``, with so many earlier messages."""
    earlier = step.body["context"][-context:] if context else []
    body = AuditRequest.model_validate({**step.body, "context": earlier})
    return Case(
        task=body.task,
        message=body.message.message(),
        policy=PRESETS[preset],
        context=body.context_texts(),
    )


async def main() -> int:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=100)
    parser.add_argument(
        "--context", type=int, default=0, help="earlier messages sent along, 0 to 3"
    )
    given = parser.parse_args()
    console = Console()
    if not RELEASED.is_file():
        console.print("nothing to measure: the shared data folder is not beside this checkout")
        return 0
    steps = stratified(agent_steps(DATA / "trajectories.jsonl"), given.messages)
    snapshot = await released()
    costs = {}
    for variant in VARIANTS:
        cases = [case_of(step, variant.preset, context=given.context) for step in steps]
        costs[variant.name] = await measured(variant, cases, snapshot)
    _show(console, costs, f"{len(steps)} messages; {given.context} earlier ones sent along")
    return 0


def _show(console: Console, costs: Mapping[str, Cost], title: str) -> None:
    fast = costs["fast"]
    console.print(f"Per audited message, mean over {title}")
    table = _table("tokens", "calls", "prompt", "reply", "both", "fast takes x")
    for name, cost in costs.items():
        counts = (f"{count:,.0f}" for count in (cost.prompt, cost.completion, cost.tokens))
        table.add_row(name, f"{cost.calls:.1f}", *counts, f"{fast.tokens / cost.tokens:.2f}")
    console.print(table)
    for speed in SPEEDS:
        table = _table(speed, "seconds", "x fast", "all calls", "x fast")
        for name, cost in costs.items():
            columns = (cost.seconds[speed], cost.all_seconds[speed])
            shown = (
                (f"{seconds:.2f}", f"{seconds / fast.seconds[speed]:.1f}") for seconds in columns
            )
            table.add_row(name, *(text for pair in shown for text in pair))
        console.print(table)
    for name, is_reached in _aims(costs):
        console.print(
            f"{'reached' if is_reached else 'MISSED '} {name}", highlight=False, soft_wrap=True
        )


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("preset", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _aims(costs: Mapping[str, Cost]) -> Iterator[tuple[str, bool]]:
    fast, paper = costs["fast"], costs["paper-v2"]
    yield "fast makes 1 call, paper-v2 makes 3", (fast.calls, paper.calls) == (1, 3)
    share = fast.tokens / paper.tokens
    yield (
        f"fast takes {share:.2f} x the tokens of paper-v2 (at most {TOKENS_AIM})",
        share <= TOKENS_AIM,
    )
    for name, cost in costs.items():
        times = min(cost.seconds[speed] / fast.seconds[speed] for speed in SPEEDS)
        if name != "fast":
            yield (
                f"{name} takes {times:.1f} x the time of fast or more (at least {TIME_AIM})",
                times >= TIME_AIM,
            )


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
