"""The scripted endpoint, asked over real HTTP."""

import asyncio
import base64
import json
import math
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rectifier_core.testing.scripted_endpoint import (
    ChatCall,
    Fault,
    Latency,
    Reply,
    ScriptedEndpoint,
    hashed_vector,
    read_rules,
)
from tests.support.endpoint import endpoint

__all__ = ["endpoint"]

BODY = {"model": "m", "messages": [{"role": "user", "content": "x" * 26}]}


def chat(endpoint: ScriptedEndpoint, **fields: Any) -> httpx2.Response:
    return httpx2.post(f"{endpoint.base_url}/chat/completions", json={**BODY, **fields})


def embed(endpoint: ScriptedEndpoint, *texts: str, **fields: Any) -> httpx2.Response:
    body = {"model": "e", "input": list(texts), **fields}
    return httpx2.post(f"{endpoint.base_url}/embeddings", json=body)


def content(answer: httpx2.Response) -> Any:
    return answer.json()["choices"][0]["message"]["content"]


def test_queued_replies_come_before_the_script(endpoint: ScriptedEndpoint) -> None:
    endpoint.queue("one", Reply.json({"two": 2}))
    assert [content(chat(endpoint)) for _ in range(3)] == ["one", '{"two": 2}', "{}"]


def test_script_sees_the_parsed_request() -> None:
    def script(call: ChatCall) -> Reply:
        return Reply(f"{call.model} {call.system} {call.user} {call.format} {call.schema}")

    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    with ScriptedEndpoint(script) as endpoint:
        answer = chat(endpoint, messages=messages, response_format=wanted)
    assert content(answer) == "m s u json_schema {'type': 'object'}"


def test_calls_are_recorded(endpoint: ScriptedEndpoint) -> None:
    chat(endpoint)
    embed(endpoint, "a")
    first, second = endpoint.calls
    assert (first.kind, second.kind) == ("chat", "embeddings")
    assert first.body == BODY
    assert first.headers["content-type"] == "application/json"
    assert second.texts == ["a"]
    assert not first.has_left


def test_usage_is_counted_by_characters(endpoint: ScriptedEndpoint) -> None:
    endpoint.queue("y" * 14)
    usage = chat(endpoint).json()["usage"]
    assert usage == {"prompt_tokens": 10, "completion_tokens": 6, "total_tokens": 16}


def test_usage_can_be_given_or_left_out(endpoint: ScriptedEndpoint) -> None:
    endpoint.queue(Reply(usage={"prompt_tokens": -1}), Reply(usage=None))
    assert chat(endpoint).json()["usage"] == {"prompt_tokens": -1}
    assert "usage" not in chat(endpoint).json()


@pytest.mark.parametrize("status", [429, 500, 503])
def test_errors_carry_their_status_and_retry_after(endpoint: ScriptedEndpoint, status: int) -> None:
    endpoint.queue(Reply.failed(status, retry_after=2))
    answer = chat(endpoint)
    assert answer.status_code == status
    assert answer.headers["retry-after"] == "2"
    assert answer.json()["error"]["message"]


def test_reply_can_be_null_refused_cut_or_reasoned(endpoint: ScriptedEndpoint) -> None:
    endpoint.queue(
        Reply(None, refusal="no"),
        Reply("half", finish_reason="length"),
        Reply("", reasoning="{}", reasoning_field="reasoning"),
    )
    refused, cut, reasoned = (chat(endpoint).json()["choices"][0] for _ in range(3))
    assert refused["message"] == {"role": "assistant", "content": None, "refusal": "no"}
    assert cut["finish_reason"] == "length"
    assert reasoned["message"]["reasoning"] == "{}"


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.DROP_BODY])
def test_dropped_connection_is_a_protocol_error(endpoint: ScriptedEndpoint, fault: Fault) -> None:
    endpoint.queue(Reply(fault=fault))
    with pytest.raises(httpx2.RemoteProtocolError):
        chat(endpoint)
    assert content(chat(endpoint)) == "{}"


def test_garbage_is_answered_with_200(endpoint: ScriptedEndpoint) -> None:
    endpoint.queue(Reply(fault=Fault.GARBAGE), Reply(fault=Fault.NO_CHOICES))
    garbage = chat(endpoint)
    assert garbage.status_code == 200
    with pytest.raises(json.JSONDecodeError):
        garbage.json()
    assert chat(endpoint).json()["choices"] == []


def test_trickle_arrives_whole_and_slowly(endpoint: ScriptedEndpoint) -> None:
    endpoint.queue(Reply(body="[1,2,3]", fault=Fault.TRICKLE))
    started = time.monotonic()
    assert chat(endpoint).json() == [1, 2, 3]
    assert time.monotonic() - started > 0.1


async def test_client_that_leaves_is_noticed(endpoint: ScriptedEndpoint) -> None:
    endpoint.queue(Reply(fault=Fault.HANG), Reply(delay=30), Reply(fault=Fault.TRICKLE))
    async with httpx2.AsyncClient() as client:
        url = f"{endpoint.base_url}/chat/completions"
        asked = [asyncio.create_task(client.post(url, json=BODY)) for _ in range(3)]
        assert await asyncio.to_thread(endpoint.wait_until, lambda e: len(e.calls) == 3)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        left = await asyncio.to_thread(
            endpoint.wait_until, lambda e: all(call.is_done for call in e.calls)
        )
    assert left
    assert all(call.has_left for call in endpoint.calls)


@pytest.mark.parametrize(
    ("feature", "fields"),
    [
        ("json_schema", {"response_format": {"type": "json_schema", "json_schema": {}}}),
        ("json_object", {"response_format": {"type": "json_object"}}),
        ("temperature", {"temperature": 0}),
        ("max_tokens", {"max_tokens": 1}),
        ("max_completion_tokens", {"max_completion_tokens": 1}),
        ("seed", {"seed": 1}),
    ],
)
def test_refused_field_is_named(feature: Any, fields: Any) -> None:
    with ScriptedEndpoint(refuses=[feature]) as endpoint:
        refused = chat(endpoint, **fields)
        assert chat(endpoint).status_code == 200
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] in {feature, "response_format"}
    assert refused.json()["error"]["code"] == "unsupported_parameter"


def test_refusals_come_in_the_shapes_that_servers_use() -> None:
    answers = []
    for style in ("text", "validation", "silent"):
        with ScriptedEndpoint(refuses=["seed"], refusal_style=style) as endpoint:
            answers.append(chat(endpoint, seed=1))
    text, validation, silent = answers
    assert "'seed'" in text.json()["error"]
    assert validation.status_code == 422
    assert validation.json()["detail"][0]["loc"] == ["body", "seed"]
    assert "seed" not in silent.text


def test_latency_is_waited_for() -> None:
    with ScriptedEndpoint("y" * 26, latency=Latency(100, 100, 0.05)) as endpoint:
        started = time.monotonic()
        chat(endpoint)
        assert time.monotonic() - started >= 0.25


def test_modelled_latency_is_reported_and_not_waited_for() -> None:
    latency = Latency(prefill_rate=1, decode_rate=0.5, first_token=3, is_modelled=True)
    with ScriptedEndpoint("y" * 26, latency=latency) as endpoint:
        answer = chat(endpoint)
        chat(endpoint)
        state = httpx2.get(endpoint.base_url.removesuffix("/v1") + "/scripted").json()
    assert float(answer.headers["x-modelled-seconds"]) == 33.0
    assert endpoint.modelled_seconds == 66.0
    assert state == {"calls": 2, "modelled_seconds": 66.0}


def test_vectors_are_unit_and_near_where_words_are_shared(endpoint: ScriptedEndpoint) -> None:
    texts = ["an off by one error", "off by one error here", "wholly unlike"]
    rows = embed(endpoint, *texts).json()["data"]
    first, near, far = (row["embedding"] for row in rows)
    assert [row["index"] for row in rows] == [0, 1, 2]
    assert len(first) == 384
    assert math.hypot(*first) == pytest.approx(1)
    assert _dot(first, near) > 0.5
    assert abs(_dot(first, far)) < 0.3
    assert first == hashed_vector(texts[0], 384)


def _dot(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_vectors_come_in_the_asked_length_and_encoding(endpoint: ScriptedEndpoint) -> None:
    row = embed(endpoint, "a", dimensions=5, encoding_format="base64").json()["data"][0]
    vector = struct.unpack("<5f", base64.b64decode(row["embedding"]))
    assert vector == pytest.approx(hashed_vector("a", 5))


def test_vector_faults(endpoint: ScriptedEndpoint) -> None:
    for fault in (Fault.WRONG_COUNT, Fault.WRONG_DIMENSION, Fault.NAN):
        endpoint.queue(Reply(fault=fault))
    counted, long, broken = (embed(endpoint, "a", "b").json()["data"] for _ in range(3))
    assert len(counted) == 1
    assert {len(row["embedding"]) for row in long} == {385}
    assert math.isnan(broken[0]["embedding"][0])


def test_unknown_paths_and_bodies_are_refused(endpoint: ScriptedEndpoint) -> None:
    assert httpx2.post(f"{endpoint.base_url}/responses", json={}).status_code == 404
    url = f"{endpoint.base_url}/chat/completions"
    assert httpx2.post(url, content=b"[]").status_code == 400
    assert httpx2.post(url, content=b"{").status_code == 400
    assert endpoint.calls == []


def test_restart_keeps_the_port_and_cuts_what_hangs(endpoint: ScriptedEndpoint) -> None:
    url = endpoint.base_url
    chat(endpoint)
    endpoint.stop()
    with pytest.raises(httpx2.ConnectError):
        chat(endpoint)
    endpoint.start()
    assert endpoint.base_url == url
    assert content(chat(endpoint)) == "{}"


def test_stop_does_not_wait_for_what_hangs() -> None:
    endpoint = ScriptedEndpoint(Reply(fault=Fault.HANG))
    endpoint.start()
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import httpx2; httpx2.post('{endpoint.base_url}/chat/completions', json={{}}, timeout=60)",
        ],
        stderr=subprocess.DEVNULL,
    )
    assert endpoint.wait_until(lambda e: bool(e.calls), timeout=20)
    started = time.monotonic()
    endpoint.stop()
    assert time.monotonic() - started < 1
    assert process.wait(10) != 0


def test_script_that_fails_is_heard_of() -> None:
    def script(call: ChatCall) -> Reply:
        raise AssertionError(f"{call.model} was not expected")

    with pytest.raises(AssertionError, match="m was not expected"), ScriptedEndpoint(script) as it:
        assert chat(it).status_code == 500


def test_rules_answer_in_order_and_run_out() -> None:
    script = read_rules(
        json.dumps(
            {
                "rules": [
                    {"when": {"contains": "x", "format": "text"}, "reply": {"content": "a"}},
                    {"when": {"kind": "embeddings"}, "reply": {"fault": "nan"}},
                    {"reply": {"status": 503}, "times": 1},
                ]
            }
        )
    )
    asked = ChatCall("chat", BODY, {})
    other = ChatCall("chat", {"messages": []}, {})
    vectors = ChatCall("embeddings", {"input": "y"}, {})
    assert script(asked).content == "a"
    assert script(vectors).fault is Fault.NAN
    assert [script(other).status for _ in range(2)] == [503, 200]


@pytest.mark.parametrize("text", ["", "{}", '{"rules": [{"when": {"contain": "typo"}}]}'])
def test_rules_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="validation error"):
        read_rules(text)


def test_it_runs_as_a_process_of_its_own(tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text('{"rules": [{"reply": {"content": "from the file"}}]}', encoding="utf-8")
    command = [sys.executable, "-m", "rectifier_core.testing.scripted_endpoint"]
    options = ["--rules", str(rules), "--decode-rate", "1", "--modelled", "--refuses", "seed"]
    with subprocess.Popen(command + options, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["base_url"] + "/chat/completions"
        answer = httpx2.post(url, json=BODY)
        refused = httpx2.post(url, json={**BODY, "seed": 1})
        process.send_signal(signal.SIGTERM)
        process.wait(10)
    assert content(answer) == "from the file"
    assert answer.headers["x-modelled-seconds"] == "5.000000"
    assert refused.status_code == 400
