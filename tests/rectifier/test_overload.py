"""More messages than the judge can answer: those too many are refused, none passes unseen."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import httpx2
import pytest
from redis.asyncio import Redis

from rectifier.settings import Settings
from rectifier_core.testing.scripted_endpoint import Reply, ScriptedEndpoint
from tests.support.service import RIGHT, Service, running

CLEAN = json.dumps({"clean": [1], "violated": []})
REPLY_S = 0.3
DEADLINE_MS = 1_000
MESSAGES = 10


@pytest.fixture
async def narrow(
    redis_url: str, redis: Redis, endpoint: ScriptedEndpoint
) -> AsyncIterator[Service]:
    """The service with a slow judge that is asked one thing at a time."""
    endpoint.script(Reply(CLEAN, delay=REPLY_S))
    settings = Settings(
        redis_url=redis_url,
        qdrant_url=":memory:",
        judge_model="scripted",
        judge_concurrency=1,
        openai_base_url=endpoint.base_url,
    )
    async with running(settings) as started:
        yield started


async def _flood(service: Service) -> list[httpx2.Response]:
    return await asyncio.gather(
        *(
            service.rectify(RIGHT, message_id=f"m{n}", deadline_ms=DEADLINE_MS)
            for n in range(MESSAGES)
        )
    )


def _check(answers: list[httpx2.Response]) -> None:
    passed = [answer.json() for answer in answers if answer.status_code == 200]
    refused = [answer for answer in answers if answer.status_code == 503]
    assert passed
    assert refused
    assert len(passed) + len(refused) == MESSAGES
    assert {(one["decision"], one["reason"]) for one in passed} == {("pass", "clean")}
    assert all(int(one.headers["retry-after"]) >= 1 for one in refused)


async def test_messages_beyond_the_judges_queue_are_refused_not_passed(narrow: Service) -> None:
    _check(await _flood(narrow))  # nothing is known of the judge's speed yet
    _check(await _flood(narrow))


async def test_message_that_cannot_be_judged_in_time_is_refused_at_once(
    narrow: Service, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(Reply(CLEAN, delay=0.6))
    await narrow.rectify(RIGHT, message_id="first")
    holder = asyncio.create_task(narrow.rectify(RIGHT, message_id="second"))
    assert await asyncio.to_thread(endpoint.wait_until, lambda one: len(one.calls) == 2)
    started = time.monotonic()
    refused = await narrow.rectify(RIGHT, message_id="third", deadline_ms=DEADLINE_MS)
    assert time.monotonic() - started < 0.3
    assert refused.status_code == 503
    assert "retry-after" in refused.headers
    assert (await holder).status_code == 200


async def test_refused_message_is_judged_when_it_comes_again(narrow: Service) -> None:
    answers = await _flood(narrow)
    late = next(n for n, answer in enumerate(answers) if answer.status_code == 503)
    again = await narrow.rectify(RIGHT, message_id=f"m{late}")
    assert (again.json()["decision"], again.json()["reason"]) == ("pass", "clean")


async def test_multi_call_audits_are_refused_whole(narrow: Service) -> None:
    answers = await asyncio.gather(
        *(
            narrow.rectify(RIGHT, message_id=f"p{n}", policy="reference", deadline_ms=DEADLINE_MS)
            for n in range(2)
        )
    )
    assert {answer.status_code for answer in answers} <= {503}
