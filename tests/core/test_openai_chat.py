"""The chat adapter, over real HTTP, under the real openai client."""

import asyncio
import logging
import time
import traceback
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import SecretStr

from rectifier_core.adapters.dialect import Dialect, explained
from rectifier_core.adapters.openai_chat import OpenAiChat
from rectifier_core.adapters.openai_endpoint import OpenAiEndpoint
from rectifier_core.chat import ChatRequest
from rectifier_core.deadline import Deadline
from rectifier_core.errors import ChatBusyError, ChatError, ChatTimeoutError, InputError
from rectifier_core.testing.scripted_endpoint import Fault, Reply, ScriptedEndpoint
from tests.support.endpoint import endpoint

__all__ = ["endpoint"]

SCHEMA = {"type": "object", "properties": {"clean": {"type": "array"}}}
KEY = "sk-very-secret"
PROMPT = "the words of the prompt"


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def shared_client(endpoint: ScriptedEndpoint, clock: Clock) -> AsyncIterator[OpenAiEndpoint]:
    async with OpenAiEndpoint(endpoint.base_url, SecretStr(KEY), clock=clock) as opened:
        yield opened


@pytest.fixture
def chat(shared_client: OpenAiEndpoint) -> OpenAiChat:
    return OpenAiChat(shared_client, "judge-1")


def question(**fields: Any) -> ChatRequest:
    asked: dict[str, Any] = {"kind": "judge", "system": "s", "user": PROMPT, "schema": SCHEMA}
    return ChatRequest(**{**asked, **fields})


def soon(seconds: float = 10.0) -> Deadline:
    return Deadline.after(seconds)


def formats(endpoint: ScriptedEndpoint) -> list[str]:
    return [call.format for call in endpoint.calls]


def restart(endpoint: ScriptedEndpoint) -> None:
    endpoint.stop()
    endpoint.start()


async def reached(endpoint: ScriptedEndpoint, condition: Any) -> bool:
    return await asyncio.to_thread(endpoint.wait_until, condition)


# What is sent.


async def test_request_asks_for_the_schema_at_temperature_zero(
    endpoint: ScriptedEndpoint, chat: OpenAiChat
) -> None:
    await chat.complete(question(max_tokens=77), deadline=soon())
    (call,) = endpoint.calls
    assert call.body == {
        "model": "judge-1",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": PROMPT}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "reply", "schema": SCHEMA, "strict": True},
        },
        "temperature": 0,
        "max_tokens": 77,
    }
    assert call.headers["authorization"] == f"Bearer {KEY}"


async def test_request_without_a_schema_asks_for_plain_text(
    endpoint: ScriptedEndpoint, chat: OpenAiChat
) -> None:
    await chat.complete(question(schema=None, system=""), deadline=soon())
    body = endpoint.calls[0].body
    assert "response_format" not in body
    assert body["messages"] == [{"role": "user", "content": PROMPT}]


async def test_nothing_is_sent_that_the_environment_holds(
    endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "other")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "other")
    monkeypatch.setenv("OPENAI_ORG_ID", "other")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "x-mine: other")
    async with OpenAiEndpoint(endpoint.base_url, None) as opened:
        await OpenAiChat(opened, "m").complete(question(), deadline=soon())
    assert "other" not in endpoint.calls[0].headers.values()
    assert endpoint.calls[0].headers["authorization"] == "Bearer none"


async def test_proxy_of_the_environment_is_used(
    endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", endpoint.base_url.removesuffix("/v1"))
    monkeypatch.setenv("no_proxy", "near.invalid")
    async with OpenAiEndpoint("http://judge.invalid/v1", SecretStr(KEY)) as opened:
        await OpenAiChat(opened, "m").complete(question(), deadline=soon())
    assert endpoint.calls[0].headers["host"] == "judge.invalid"
    async with OpenAiEndpoint("http://near.invalid/v1", None) as opened:
        with pytest.raises(ChatError, match="cannot be reached"):
            await OpenAiChat(opened, "m").complete(question(max_calls=1), deadline=soon())


async def test_prompt_of_over_a_mebibyte_is_sent_whole(
    endpoint: ScriptedEndpoint, chat: OpenAiChat
) -> None:
    prompt = "é" * 2**20
    await chat.complete(question(user=prompt), deadline=soon())
    assert endpoint.calls[0].user == prompt


@pytest.mark.parametrize("where", ["user", "system"])
async def test_prompt_that_no_encoder_takes_is_an_error(
    endpoint: ScriptedEndpoint, chat: OpenAiChat, where: str
) -> None:
    with pytest.raises(ChatError) as caught:
        await chat.complete(question(**{where: "a\ud800b"}), deadline=soon())
    assert caught.value.calls == 0
    assert caught.value.__context__ is None
    assert endpoint.calls == []


# What is learnt.


@pytest.mark.parametrize("style", ["openai", "text", "validation", "silent"])
async def test_ladder_ends_at_the_rung_that_is_taken(style: Any) -> None:
    with ScriptedEndpoint(refuses=["json_schema"], refusal_style=style) as endpoint:
        async with OpenAiEndpoint(endpoint.base_url, None) as opened:
            chat = OpenAiChat(opened, "m")
            first = await chat.complete(question(), deadline=soon())
            second = await chat.complete(question(), deadline=soon())
    assert formats(endpoint)[0] == "json_schema"
    assert formats(endpoint)[-1] != "json_schema"
    assert first.usage.calls == len(endpoint.calls) - 1
    assert second.usage.calls == 1
    assert all(call.body["temperature"] == 0 for call in endpoint.calls)


async def test_ladder_goes_down_to_plain_text(endpoint: ScriptedEndpoint, chat: OpenAiChat) -> None:
    endpoint.refuses |= {"json_schema", "json_object"}
    reply = await chat.complete(question(), deadline=soon())
    assert reply.text == "{}"
    assert reply.usage.calls == 3
    assert formats(endpoint) == ["json_schema", "json_object", "text"]


@pytest.mark.parametrize("style", ["openai", "text", "validation"])
async def test_refused_fields_are_left_out_and_remembered(style: Any) -> None:
    refuses = ["temperature", "max_tokens"]
    with ScriptedEndpoint(refuses=refuses, refusal_style=style) as endpoint:  # type: ignore[arg-type]
        async with OpenAiEndpoint(endpoint.base_url, None) as opened:
            chat = OpenAiChat(opened, "o-model")
            await chat.complete(question(max_tokens=9), deadline=soon())
            # Another user of the same model, e.g. for keywords, need not learn again.
            again = await OpenAiChat(opened, "o-model").complete(question(), deadline=soon())
    assert again.usage.calls == 1
    answered = endpoint.calls[-2].body
    assert "temperature" not in answered
    assert "max_tokens" not in answered
    assert answered["max_completion_tokens"] == 9
    assert formats(endpoint)[-1] == "json_schema"


async def test_models_of_one_endpoint_are_learnt_apart(
    endpoint: ScriptedEndpoint, shared_client: OpenAiEndpoint
) -> None:
    endpoint.refuses.add("temperature")
    await OpenAiChat(shared_client, "a").complete(question(), deadline=soon())
    endpoint.refuses.clear()
    await OpenAiChat(shared_client, "b").complete(question(), deadline=soon())
    assert "temperature" in endpoint.calls[-1].body


async def test_learning_ends_with_the_calls_and_goes_on_next_time(
    endpoint: ScriptedEndpoint, chat: OpenAiChat
) -> None:
    endpoint.refuses |= {"json_schema", "json_object", "temperature", "max_tokens"}
    with pytest.raises(ChatError) as caught:
        await chat.complete(question(), deadline=soon())
    assert caught.value.calls == 3
    assert (await chat.complete(question(), deadline=soon())).usage.calls <= 2


async def test_endpoint_that_refuses_everything_is_asked_max_calls_times(
    endpoint: ScriptedEndpoint, chat: OpenAiChat
) -> None:
    refusal = {"message": "response_format is not supported", "param": "response_format"}
    endpoint.queue(*[Reply(status=400, error=refusal)] * 20)
    for _ in range(2):
        with pytest.raises(ChatError):
            await chat.complete(question(max_calls=5), deadline=soon())
    assert len(endpoint.calls) <= 10


async def test_concurrent_requests_learn_without_unlearning(
    endpoint: ScriptedEndpoint, chat: OpenAiChat
) -> None:
    endpoint.refuses |= {"json_schema", "temperature"}
    asked = [chat.complete(question(), deadline=soon()) for _ in range(16)]
    replies = await asyncio.gather(*asked)
    assert all(reply.usage.calls <= 3 for reply in replies)
    assert (await chat.complete(question(), deadline=soon())).usage.calls == 1
    assert formats(endpoint)[-1] == "json_object"


async def test_schema_that_is_ignored_is_no_error(
    endpoint: ScriptedEndpoint, chat: OpenAiChat
) -> None:
    endpoint.queue("Looks fine to me.")
    assert (await chat.complete(question(), deadline=soon())).text == "Looks fine to me."


async def test_prompt_that_is_too_long_teaches_nothing(
    endpoint: ScriptedEndpoint, chat: OpenAiChat
) -> None:
    message = "'max_tokens' is too large: 2048. The maximum context length is 4096 tokens."
    endpoint.queue(Reply(status=400, error={"message": message, "param": "max_tokens"}))
    with pytest.raises(ChatError) as caught:
        await chat.complete(question(), deadline=soon())
    assert caught.value.calls == 1
    await chat.complete(question(), deadline=soon())
    assert "max_tokens" in endpoint.calls[-1].body


async def test_unexplained_refusal_is_learnt_only_where_leaving_out_helped(
    endpoint: ScriptedEndpoint, chat: OpenAiChat
) -> None:
    endpoint.queue(*[Reply(status=400, error="invalid argument")] * 3)
    with pytest.raises(ChatError):
        await chat.complete(question(), deadline=soon())
    await chat.complete(question(), deadline=soon())
    assert formats(endpoint) == ["json_schema", "json_object", "text", "json_schema"]


def test_lessons_are_forgotten_after_an_hour(clock: Clock) -> None:
    dialect = Dialect(clock=clock)
    dialect.learn({"json_schema"})
    clock.now = 3_599
    dialect.learn({"temperature"})
    assert dialect.refused == {"json_schema", "temperature"}
    clock.now = 3_601
    assert dialect.refused == frozenset()


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ({"error": "'response_format.type' must be 'json_schema' or 'text'"}, {"json_object"}),
        ([{"error": {"message": "Unknown name 'response_format'"}}], {"json_object"}),
        ("json schema is not supported by this model", {"json_object"}),
        ({"message": "Failed to parse grammar"}, {"json_object"}),
        ({"detail": [{"loc": ["body", "temperature"], "msg": "no"}]}, {"temperature"}),
        (
            {"message": "does not support parameters: ['response_format', 'temperature']"},
            {"json_object", "temperature"},
        ),
        (
            {
                "message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'.",
                "param": "max_tokens",
            },
            {"max_tokens"},
        ),
        ({"detail": [{"input": "temperature"}]}, set()),
        ({"message": None, "param": 7}, set()),
        ({"detail": [None, {"loc": 3}]}, set()),
        ([], set()),
        (None, set()),
    ],
)
def test_refusals_are_read_in_any_shape(body: object, refused: set[str]) -> None:
    assert explained(body).refused(["json_object", "temperature", "max_tokens"]) == refused


# What is read.


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (Reply('{"clean": [1]}'), '{"clean": [1]}'),
        (Reply(""), ""),
        (Reply(None), ""),
        (Reply([{"type": "text", "text": "a"}, {"type": "image"}, "b", {"type": "text"}]), "a"),
        (Reply("", reasoning='{"clean": [1]}'), ""),
        (Reply(None, reasoning='{"clean": [1]}', reasoning_field="reasoning"), ""),
        (Reply("yes", reasoning="thoughts"), "yes"),
        (Reply("a\ud800b"), "a?b"),
    ],
)
async def test_text_is_the_content_alone(
    endpoint: ScriptedEndpoint, chat: OpenAiChat, reply: Reply, text: str
) -> None:
    endpoint.queue(reply)
    read = await chat.complete(question(), deadline=soon())
    assert read.text == text
    assert not read.is_cut
    assert not read.is_refused


@pytest.mark.parametrize("ending", ["length", "MAX_TOKENS", "model_length", "error", "unheard_of"])
async def test_ending_other_than_a_whole_reply_is_a_cut(
    endpoint: ScriptedEndpoint, chat: OpenAiChat, ending: str
) -> None:
    endpoint.queue(Reply('{"clean": [1]}', finish_reason=ending))
    assert (await chat.complete(question(), deadline=soon())).is_cut


@pytest.mark.parametrize(
    "reply",
    [
        Reply(None, refusal="I will not"),
        Reply("half", finish_reason="content_filter"),
        Reply("", finish_reason="SAFETY"),
        Reply([{"type": "refusal", "refusal": "no"}]),
        Reply(status=400, error={"message": "filtered", "code": "content_filter"}),
    ],
)
async def test_refusal_is_told_apart(
    endpoint: ScriptedEndpoint, chat: OpenAiChat, reply: Reply
) -> None:
    endpoint.queue(reply)
    read = await chat.complete(question(), deadline=soon())
    assert read.is_refused
    assert not read.is_cut
    assert read.usage.calls == 1


async def test_usage_and_model_are_reported(endpoint: ScriptedEndpoint, chat: OpenAiChat) -> None:
    usage = {
        "prompt_tokens": 30,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 20},
    }
    endpoint.queue(Reply(usage=usage, model="judge-1-2026"))
    reply = await chat.complete(question(), deadline=soon())
    assert reply.model == "judge-1-2026"
    assert (reply.usage.prompt_tokens, reply.usage.cached_tokens) == (30, 20)
    assert reply.usage.completion_tokens == 4


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {"prompt_tokens": -5, "completion_tokens": "7"},
        {"prompt_tokens": True, "completion_tokens": 1.5, "prompt_tokens_details": [1]},
        {"prompt_tokens": 10**30, "completion_tokens": None},
        {"prompt_tokens_details": {"cached_tokens": 99}},
    ],
)
async def test_usage_that_is_none_counts_as_zero(
    endpoint: ScriptedEndpoint, chat: OpenAiChat, usage: Any
) -> None:
    endpoint.queue(Reply(usage=usage))
    used = (await chat.complete(question(), deadline=soon())).usage
    assert (used.calls, used.prompt_tokens, used.cached_tokens) == (1, 0, 0)
    assert used.completion_tokens == 0


@pytest.mark.parametrize(
    "body",
    [
        "<html>",
        "",
        "[]",
        "null",
        '"text"',
        '{"choices": []}',
        '{"choices": null}',
        '{"choices": [null]}',
        '{"choices": [{"message": null}]}',
        '{"choices": [{"message": {"content": 7}}]}',
        '{"error": {"code": 502, "message": "upstream"}}',
        "[" * 100_000,
        "9" * 5_000,
        '{"choices": [{"message": {"content": "cut of',
    ],
)
async def test_unreadable_answer_is_an_error(
    endpoint: ScriptedEndpoint, chat: OpenAiChat, body: str
) -> None:
    endpoint.queue(Reply(body=body))
    with pytest.raises(ChatError) as caught:
        await chat.complete(question(max_calls=1), deadline=soon())
    assert not isinstance(caught.value, ChatTimeoutError)


async def test_answer_of_over_four_mebibytes_is_refused(
    endpoint: ScriptedEndpoint, chat: OpenAiChat
) -> None:
    endpoint.queue(Reply("x" * (4 * 2**20)), Reply("x" * (3 * 2**20)))
    with pytest.raises(ChatError, match="too long") as caught:
        await chat.complete(question(), deadline=soon())
    assert caught.value.calls == 1
    assert len((await chat.complete(question(), deadline=soon())).text) == 3 * 2**20


async def test_compressed_answer_is_refused(endpoint: ScriptedEndpoint, chat: OpenAiChat) -> None:
    endpoint.queue(Reply(headers={"content-encoding": "gzip"}))
    with pytest.raises(ChatError):
        await chat.complete(question(), deadline=soon())


async def test_redirect_is_not_followed(endpoint: ScriptedEndpoint, chat: OpenAiChat) -> None:
    endpoint.queue(Reply(status=307, headers={"location": "/v1/embeddings"}))
    with pytest.raises(ChatError, match="307"):
        await chat.complete(question(), deadline=soon())
    assert len(endpoint.calls) == 1


# What is retried.


@pytest.mark.parametrize(
    "reply",
    [
        *(Reply.failed(status, retry_after=0) for status in (429, 500, 502, 503, 504)),
        Reply(fault=Fault.DROP),
        Reply(fault=Fault.DROP_BODY),
        Reply(fault=Fault.GARBAGE),
    ],
)
async def test_passing_failure_costs_one_retry(
    endpoint: ScriptedEndpoint, chat: OpenAiChat, reply: Reply
) -> None:
    endpoint.queue(reply)
    answer = await chat.complete(question(), deadline=soon())
    assert answer.usage.calls == 2
    assert formats(endpoint) == ["json_schema", "json_schema"]


@pytest.mark.parametrize("status", [401, 403, 404, 413, 501])
async def test_lasting_failure_is_not_retried(
    endpoint: ScriptedEndpoint, chat: OpenAiChat, status: int
) -> None:
    endpoint.queue(Reply.failed(status))
    with pytest.raises(ChatError, match=str(status)) as caught:
        await chat.complete(question(), deadline=soon())
    assert caught.value.calls == 1


async def test_spent_quota_is_not_retried(endpoint: ScriptedEndpoint, chat: OpenAiChat) -> None:
    endpoint.queue(Reply(status=429, error={"code": "insufficient_quota", "message": "pay"}))
    with pytest.raises(ChatError) as caught:
        await chat.complete(question(), deadline=soon())
    assert caught.value.calls == 1


async def test_calls_are_bounded_and_counted(endpoint: ScriptedEndpoint, chat: OpenAiChat) -> None:
    endpoint.queue(*[Reply.failed(503, retry_after=0)] * 9)
    with pytest.raises(ChatError) as caught:
        await chat.complete(question(max_calls=2), deadline=soon())
    assert caught.value.calls == len(endpoint.calls) == 2


async def test_retry_waits_as_long_as_the_endpoint_asks(
    endpoint: ScriptedEndpoint, chat: OpenAiChat
) -> None:
    endpoint.queue(Reply.failed(429, retry_after=0.3))
    started = time.monotonic()
    await chat.complete(question(), deadline=soon())
    assert 0.3 <= time.monotonic() - started < 3


async def test_retry_that_does_not_fit_the_deadline_is_left_to_the_caller(
    endpoint: ScriptedEndpoint, chat: OpenAiChat
) -> None:
    endpoint.queue(Reply.failed(429, retry_after=20))
    started = time.monotonic()
    with pytest.raises(ChatError) as caught:
        await chat.complete(question(), deadline=soon(5))
    assert time.monotonic() - started < 2
    assert caught.value.retry_after == 20
    assert caught.value.calls == 1


async def test_server_restart_under_load_costs_at_most_one_retry(
    endpoint: ScriptedEndpoint, chat: OpenAiChat
) -> None:
    await asyncio.gather(*(chat.complete(question(), deadline=soon()) for _ in range(32)))
    endpoint.queue(*[Reply(fault=Fault.HANG)] * 32)
    under_way = [asyncio.create_task(chat.complete(question(), deadline=soon())) for _ in range(32)]
    assert await reached(endpoint, lambda e: len(e.calls) == 64)
    await asyncio.to_thread(restart, endpoint)
    replies = await asyncio.gather(*under_way)
    assert {reply.usage.calls for reply in replies} <= {2, 3}
    replies = await asyncio.gather(*(chat.complete(question(), deadline=soon()) for _ in range(32)))
    assert {reply.usage.calls for reply in replies} == {1}


async def test_old_connection_of_a_restarted_server_costs_at_most_one_retry(
    endpoint: ScriptedEndpoint, chat: OpenAiChat
) -> None:
    await chat.complete(question(), deadline=soon())
    endpoint.stop()
    endpoint.start()
    assert (await chat.complete(question(), deadline=soon())).usage.calls <= 2


async def test_retry_budget_keeps_load_near_the_calls(endpoint: ScriptedEndpoint) -> None:
    endpoint.queue(*[Reply.failed(429, retry_after=0)] * 300)
    async with OpenAiEndpoint(endpoint.base_url, None, concurrency=4) as opened:
        chat = OpenAiChat(opened, "m")
        for _ in range(50):
            with pytest.raises(ChatError):
                await chat.complete(question(), deadline=soon())
    assert len(endpoint.calls) <= 50 + 8 + 5


# The breaker.


async def test_breaker_opens_after_five_failures_and_probes_once(
    endpoint: ScriptedEndpoint, chat: OpenAiChat, clock: Clock
) -> None:
    endpoint.queue(*[Reply.failed(500)] * 6)
    for _ in range(5):
        with pytest.raises(ChatError):
            await chat.complete(question(max_calls=1), deadline=soon())
    with pytest.raises(ChatError) as caught:
        await chat.complete(question(), deadline=soon())
    assert caught.value.calls == 0
    assert caught.value.retry_after == 2
    assert len(endpoint.calls) == 5

    clock.now += 2  # the probe fails: left alone for twice as long
    with pytest.raises(ChatError):
        await chat.complete(question(), deadline=soon())
    assert len(endpoint.calls) == 6
    clock.now += 3
    with pytest.raises(ChatError, match="left alone"):
        await chat.complete(question(), deadline=soon())

    clock.now += 1
    await chat.complete(question(), deadline=soon())
    await chat.complete(question(), deadline=soon())
    assert len(endpoint.calls) == 8


@pytest.mark.parametrize("parallel", [1, 8])
async def test_retries_and_calls_at_once_count_as_one_failure(
    endpoint: ScriptedEndpoint, chat: OpenAiChat, parallel: int
) -> None:
    endpoint.script(Reply.failed(500, retry_after=0))
    for _ in range(4):
        calls = [chat.complete(question(), deadline=soon()) for _ in range(parallel)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all("answered 500" in str(result) for result in results)
    with pytest.raises(ChatError, match="answered 500"):
        await chat.complete(question(max_calls=1), deadline=soon())
    with pytest.raises(ChatError, match="left alone"):
        await chat.complete(question(), deadline=soon())


async def test_only_one_probe_is_sent_at_a_time(
    endpoint: ScriptedEndpoint, chat: OpenAiChat, clock: Clock
) -> None:
    endpoint.queue(*[Reply.failed(500)] * 5, Reply(fault=Fault.HANG))
    for _ in range(5):
        with pytest.raises(ChatError):
            await chat.complete(question(max_calls=1), deadline=soon())
    clock.now += 31
    probe = asyncio.create_task(chat.complete(question(), deadline=soon()))
    assert await reached(endpoint, lambda e: len(e.calls) == 6)
    with pytest.raises(ChatError, match="left alone"):
        await chat.complete(question(), deadline=soon())
    probe.cancel()  # which decides nothing: the next one is the probe
    await asyncio.gather(probe, return_exceptions=True)
    await chat.complete(question(), deadline=soon())


@pytest.mark.parametrize(
    "reply",
    [Reply.failed(429), Reply.failed(401), Reply(fault=Fault.HANG)],
    ids=["limited", "refused", "hurried caller"],
)
async def test_breaker_stays_closed_where_the_endpoint_is_not_to_blame(
    endpoint: ScriptedEndpoint, chat: OpenAiChat, reply: Reply
) -> None:
    endpoint.queue(*[reply] * 6)
    for _ in range(6):
        with pytest.raises(ChatError):
            await chat.complete(question(max_calls=1), deadline=soon(0.2))
    await chat.complete(question(), deadline=soon())


async def test_endpoint_that_hangs_opens_the_breaker(endpoint: ScriptedEndpoint) -> None:
    endpoint.queue(*[Reply(fault=Fault.HANG)] * 5)
    async with OpenAiEndpoint(endpoint.base_url, None, timeout=0.1) as opened:
        chat = OpenAiChat(opened, "m")
        for _ in range(5):
            with pytest.raises(ChatTimeoutError):
                await chat.complete(question(), deadline=soon())
        with pytest.raises(ChatError, match="left alone"):
            await chat.complete(question(), deadline=soon())


async def test_endpoint_that_is_down_opens_the_breaker(
    endpoint: ScriptedEndpoint, chat: OpenAiChat
) -> None:
    endpoint.stop()
    for _ in range(5):
        with pytest.raises(ChatError, match="cannot be reached"):
            await chat.complete(question(max_calls=1), deadline=soon())
    with pytest.raises(ChatError, match="left alone"):
        await chat.complete(question(), deadline=soon())


# Time.


@pytest.mark.parametrize("fault", [Fault.HANG, Fault.TRICKLE])
async def test_deadline_ends_the_call(
    endpoint: ScriptedEndpoint, chat: OpenAiChat, fault: Fault
) -> None:
    endpoint.queue(Reply("x" * 500, fault=fault))
    started = time.monotonic()
    with pytest.raises(ChatTimeoutError) as caught:
        await chat.complete(question(), deadline=soon(0.4))
    assert time.monotonic() - started < 1.5
    assert caught.value.calls == 1
    assert await reached(endpoint, lambda e: e.calls[0].has_left)


async def test_passed_deadline_sends_nothing(endpoint: ScriptedEndpoint, chat: OpenAiChat) -> None:
    with pytest.raises(ChatTimeoutError) as caught:
        await chat.complete(question(), deadline=soon(-1))
    assert caught.value.calls == 0
    assert endpoint.calls == []


async def test_cancelled_call_is_hung_up(endpoint: ScriptedEndpoint, chat: OpenAiChat) -> None:
    endpoint.queue(Reply(fault=Fault.HANG))
    asked = asyncio.create_task(chat.complete(question(), deadline=soon()))
    assert await reached(endpoint, lambda e: len(e.calls) == 1)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert await reached(endpoint, lambda e: e.calls[0].has_left)


async def test_calls_under_way_are_bounded(endpoint: ScriptedEndpoint) -> None:
    endpoint.queue(*[Reply(fault=Fault.HANG)] * 2)
    async with OpenAiEndpoint(endpoint.base_url, None, concurrency=2) as opened:
        chat = OpenAiChat(opened, "m")
        asked = [asyncio.create_task(chat.complete(question(), deadline=soon())) for _ in range(4)]
        assert await reached(endpoint, lambda e: len(e.calls) == 2)
        with pytest.raises(ChatBusyError):
            await chat.complete(question(), deadline=soon(0.2))
        assert len(endpoint.calls) == 2
        for task in asked[:2]:
            task.cancel()
        replies = await asyncio.gather(*asked[2:])
    assert [reply.usage.calls for reply in replies] == [1, 1]


async def test_wait_that_cannot_fit_is_refused_at_once(endpoint: ScriptedEndpoint) -> None:
    endpoint.queue(Reply(delay=0.5), Reply(fault=Fault.HANG))
    async with OpenAiEndpoint(endpoint.base_url, None, concurrency=1) as opened:
        chat = OpenAiChat(opened, "m")
        await chat.complete(question(), deadline=soon())
        holder = asyncio.create_task(chat.complete(question(), deadline=soon()))
        assert await reached(endpoint, lambda e: len(e.calls) == 2)
        started = time.monotonic()
        with pytest.raises(ChatBusyError) as caught:
            await chat.complete(question(), deadline=soon(0.4))
        assert time.monotonic() - started < 0.2
        holder.cancel()
        await asyncio.gather(holder, return_exceptions=True)
    assert caught.value.retry_after is not None
    assert 0.4 < caught.value.retry_after < 2


async def test_call_whose_time_went_by_in_the_queue_is_not_blamed_on_the_endpoint(
    endpoint: ScriptedEndpoint,
) -> None:
    endpoint.queue(*["{}"] * 3, Reply(delay=0.6), Reply(fault=Fault.HANG))
    async with OpenAiEndpoint(endpoint.base_url, None, concurrency=1) as opened:
        chat = OpenAiChat(opened, "m")
        for _ in range(3):
            await chat.complete(question(), deadline=soon())
        holder = asyncio.create_task(chat.complete(question(), deadline=soon()))
        assert await reached(endpoint, lambda e: len(e.calls) == 4)
        with pytest.raises(ChatBusyError):
            await chat.complete(question(), deadline=soon(0.9))
        await holder


async def test_open_breaker_is_no_busy_queue(endpoint: ScriptedEndpoint, chat: OpenAiChat) -> None:
    endpoint.queue(*[Reply.failed(500)] * 5)
    for _ in range(5):
        with pytest.raises(ChatError):
            await chat.complete(question(max_calls=1), deadline=soon())
    with pytest.raises(ChatError) as caught:
        await chat.complete(question(), deadline=soon())
    assert caught.value.calls == 0
    assert not issubclass(ChatBusyError, ChatError)


# Life and secrets.


async def test_endpoint_that_is_not_open_is_an_error(endpoint: ScriptedEndpoint) -> None:
    closed = OpenAiEndpoint(endpoint.base_url, None)
    with pytest.raises(ChatError, match="not open"):
        await OpenAiChat(closed, "m").complete(question(), deadline=soon())
    async with closed:
        await closed.open()
    await closed.close()
    with pytest.raises(ChatError, match="not open"):
        await OpenAiChat(closed, "m").complete(question(), deadline=soon())


async def test_closing_ends_what_waits_for_a_slot(endpoint: ScriptedEndpoint) -> None:
    endpoint.queue(Reply(fault=Fault.HANG))
    opened = OpenAiEndpoint(endpoint.base_url, None, concurrency=1)
    async with opened:
        chat = OpenAiChat(opened, "m")
        asked = [asyncio.create_task(chat.complete(question(), deadline=soon())) for _ in range(3)]
        assert await reached(endpoint, lambda e: len(e.calls) == 1)
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(result, ChatError) for result in results)


@pytest.mark.parametrize(
    "url", ["ftp://host/v1", "no url", "http://", "http://h:port/v1", "http://user:word@host/v1"]
)
def test_base_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InputError):
        OpenAiEndpoint(url, None)


@pytest.mark.parametrize("key", ["sk-ä", "sk\nx: y", "sk\x00"])
def test_key_that_is_no_header_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(InputError) as caught:
        OpenAiEndpoint("http://localhost/v1", SecretStr(key))
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=400, error={"message": f"you said: {PROMPT}"}),
        Reply(status=500, error={"message": f"you said: {PROMPT}"}),
        Reply(body=f"you said: {PROMPT}"),
        Reply(fault=Fault.DROP),
        Reply(fault=Fault.HANG),
    ],
)
async def test_errors_and_logs_hold_neither_key_nor_prompt(
    endpoint: ScriptedEndpoint,
    chat: OpenAiChat,
    shared_client: OpenAiEndpoint,
    reply: Reply,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    endpoint.queue(reply)
    with pytest.raises(ChatError) as caught:
        await chat.complete(question(max_calls=1), deadline=soon(0.5))
    shown = "".join(traceback.format_exception(caught.value))
    shown += caplog.text + repr(shared_client) + repr(chat) + repr(caught.value.__cause__)
    assert PROMPT not in shown
    assert KEY not in shown


async def test_every_request_is_observed(
    endpoint: ScriptedEndpoint, shared_client: OpenAiEndpoint
) -> None:
    seen: list[tuple[str, str]] = []
    chat = OpenAiChat(
        shared_client,
        "m",
        observe=lambda kind, outcome, seconds: seen.append((kind, outcome)),
    )
    endpoint.refuses.add("temperature")
    await chat.complete(question(), deadline=soon())
    endpoint.queue(Reply.failed(503, retry_after=0), Reply(fault=Fault.DROP))
    await chat.complete(question(kind="repair"), deadline=soon())
    endpoint.queue(Reply(fault=Fault.HANG))
    with pytest.raises(ChatTimeoutError):
        await chat.complete(question(), deadline=soon(0.2))
    assert seen == [
        ("judge", "refused"),
        ("judge", "answered"),
        ("repair", "limited"),
        ("repair", "lost"),
        ("repair", "answered"),
        ("judge", "timeout"),
    ]
