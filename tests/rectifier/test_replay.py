"""Real messages through the real application: each gets an answer."""

from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from benchmarks.replay import Json, Step, Tally, agent_steps, ballot, replay, sample
from rectifier.settings import Settings
from rectifier_core.adapters.minilm import MiniLmEmbedder
from rectifier_core.testing.scripted_endpoint import ScriptedEndpoint
from tests.support.service import Service, running

TENTH, HUNDREDTH = 0.1, 0.01


@pytest.fixture(scope="module")
def steps(shared: Path) -> list[Step]:
    return agent_steps(shared / "data" / "trajectories.jsonl")


async def _replayed(service: Service, steps: list[Step]) -> Tally:
    async def post(body: Json) -> tuple[int, Any]:
        answer = await service.post("/audit", body)
        return answer.status_code, answer.json()

    return await replay(steps, post)


@pytest.mark.timeout(180)
async def test_every_real_message_gets_a_verdict(
    steps: list[Step],
    redis_url: str,
    redis: Redis,
    endpoint: ScriptedEndpoint,
) -> None:
    endpoint.script(ballot)
    chosen = sample(steps, TENTH)
    settings = Settings(
        redis_url=redis_url,
        qdrant_url=":memory:",
        judge_model="scripted",
        openai_base_url=endpoint.base_url,
    )
    async with MiniLmEmbedder() as embedder, running(settings, embedder=embedder) as service:
        tally = await _replayed(service, chosen)
    assert tally.wrong == []
    assert tally.statuses == {200: len(chosen)}
    assert {verdict.split()[0] for verdict in tally.verdicts} == {"pass", "fail", "indeterminate"}
    assert not set(tally.degraded) - {"query_cut", "context_cut", "language", "checks_cut"}


def test_sample_holds_every_domain_and_every_odd_message(steps: list[Step]) -> None:
    chosen = sample(steps, HUNDREDTH)
    contents = [step.content for step in chosen]
    assert len(steps) == 3_086
    assert len(chosen) < 3 * HUNDREDTH * len(steps)
    assert {step.domain for step in chosen} == {step.domain for step in steps}
    assert None in contents
    assert any(content is not None and not content.strip() for content in contents)
    assert max(len(content or "") for content in contents) == 88_054
    assert any(step.body["message"].get("tool_calls") for step in chosen)


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (500, {"field": "message"}),
        (503, {"field": "message"}),
        (422, {"detail": "something"}),
        (302, ""),
        (200, {"verdict": "fine", "reason": "clean"}),
        (200, {}),
    ],
)
def test_answer_that_is_none_is_counted_as_wrong(status: int, answer: Any) -> None:
    tally = Tally()
    tally.take(Step("t/0", "math", "text", {}), status, answer)
    assert len(tally.wrong) == 1


def test_refusal_that_names_the_field_is_an_answer() -> None:
    tally = Tally()
    tally.take(Step("t/0", "math", "text", {}), 413, {"field": "message.content"})
    assert tally.wrong == []
