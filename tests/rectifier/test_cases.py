"""The shared hard cases that an audit decides, through HTTP with the first release's replies."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from rectifier_core.testing.scripted_endpoint import Fault, Reply, ScriptedEndpoint
from tests.support.cases import Case, load_cases
from tests.support.service import Json, Service

# The first release's way of asking and reading, without its extra keyword call.
POLICY = {"preset": "reference", "query": "message"}
SURROGATE = "\ud83d"


def replies(case: Case) -> list[str]:
    """What the case's judge says, call by call."""
    return [str(reply) for reply in case.input["scripted_judge_replies"]]


async def audited(service: Service, case: Case, **fields: object) -> Json:
    """Store the case's indicators in a pool of their own, and audit its message."""
    pool = f"case-{case.id.lower()}"
    await service.client.put(f"/pools/{pool}")
    for indicator in case.input["indicators"]:
        stored = await service.post(f"/pools/{pool}/indicators", indicator)
        assert stored.status_code == 201, stored.text
    body = {"task": case.input["task"], "message": case.input["message"], "pool": pool}
    answer = await service.post("/audit", {**body, "policy": POLICY, **fields})
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


@pytest.fixture
def cases(shared: Path) -> dict[str, Case]:
    return load_cases(shared)


@pytest.mark.parametrize(
    ("name", "verdict", "calls"),
    [
        ("H01", "fail", 1),
        ("H02", "fail", 1),
        ("H03", "pass", 1),
        ("H04", "pass", 1),
        ("H07", "fail", 1),
        ("H08", "pass", 1),
        ("H11", "pass", 1),
        ("H12", "pass", 1),
    ],
)
async def test_reply_is_read_as_one_verdict(
    service: Service,
    endpoint: ScriptedEndpoint,
    cases: dict[str, Case],
    name: str,
    verdict: str,
    calls: int,
) -> None:
    endpoint.queue(*replies(cases[name]))
    found = await audited(service, cases[name])
    assert found["verdict"] == verdict
    assert found["usage"]["calls"] == calls == len(endpoint.calls)


async def test_suggestion_is_kept_word_for_word(
    service: Service, endpoint: ScriptedEndpoint, cases: dict[str, Case]
) -> None:
    endpoint.queue(*replies(cases["H01"]))
    found = await audited(service, cases["H01"])
    violated = [one for one in found["findings"] if one["violated"] and one["source"] == "judge"]
    assert violated[0]["suggestion"] == "convert 3 km to 3000 m first"


async def test_unparseable_reply_is_no_verdict_and_fast(
    service: Service, endpoint: ScriptedEndpoint, cases: dict[str, Case]
) -> None:
    endpoint.queue(*replies(cases["H06"]) * 3)
    began = time.process_time()
    found = await audited(service, cases["H06"])
    assert found["verdict"] == "indeterminate"
    assert "judge_unreadable" in found["degraded"]
    assert time.process_time() - began < 3


async def test_message_cannot_close_its_data_block(
    service: Service, endpoint: ScriptedEndpoint, cases: dict[str, Case]
) -> None:
    endpoint.queue(*replies(cases["H07"]))
    await audited(service, cases["H07"])
    assert "\n</message>" not in endpoint.calls[0].user
    assert "</message>\n" not in endpoint.calls[0].user


async def test_prompt_holds_indicator_text_as_stored(
    service: Service, endpoint: ScriptedEndpoint, cases: dict[str, Case]
) -> None:
    endpoint.queue(*replies(cases["H08"]))
    await audited(service, cases["H08"], policy={**POLICY, "audit": "batch"})
    prompt = endpoint.calls[0].user
    assert "{x : x > 0}" in prompt
    assert "{task}" in prompt
    assert "80%% of cases" in prompt


@pytest.mark.parametrize("field", ["content", "agent", "role"])
async def test_lone_surrogate_is_refused_by_name(service: Service, field: str) -> None:
    message: dict[str, Any] = {"content": "answer 3200 m", field: f"a{SURROGATE}b"}
    body = ('{"task": "t", "message": ' + _ascii(message) + "}").encode()
    answer = await service.client.post(
        "/audit", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422
    assert answer.json()["field"] == f"message.{field}"


async def test_tool_call_is_what_is_audited(
    service: Service, endpoint: ScriptedEndpoint, cases: dict[str, Case]
) -> None:
    endpoint.queue(*replies(cases["H11"]))
    await audited(service, cases["H11"])
    prompt = endpoint.calls[0].user
    assert "get_order" in prompt
    assert "#W1" in prompt
    assert "None" not in prompt


async def test_agent_name_comes_back_and_is_never_sent_as_a_name(
    service: Service, endpoint: ScriptedEndpoint, cases: dict[str, Case]
) -> None:
    endpoint.queue(*replies(cases["H12"]))
    found = await audited(service, cases["H12"])
    assert found["agent"] == "评审 Agent #2"
    assert all("name" not in message for message in endpoint.calls[0].body["messages"])


async def test_judge_that_never_answers_is_told_apart_from_a_pass(
    service: Service, endpoint: ScriptedEndpoint, cases: dict[str, Case]
) -> None:
    endpoint.queue(*[Reply.failed(503)] * 10)
    found = await audited(service, cases["H18"])
    assert found["verdict"] == "indeterminate"
    assert found["pass_rate"] is None
    assert "judge_unavailable" in found["degraded"]
    scrape = (await service.client.get("/metrics")).text
    assert 'rectifier_degraded_total{cause="judge_unavailable"} 1.0' in scrape


async def test_judge_that_hangs_past_the_deadline_is_no_decision(
    service: Service, endpoint: ScriptedEndpoint
) -> None:
    endpoint.queue(Reply(fault=Fault.HANG))
    body = {"task": "t", "message": {"content": "m"}, "deadline_ms": 1000}
    answer = await service.post("/audit", body)
    assert answer.status_code == 504
    assert answer.json()["type"].endswith("deadline-passed")


async def test_indicator_without_trigger_is_found_by_its_definition(
    service: Service, cases: dict[str, Case]
) -> None:
    await service.client.put("/pools/case-h14")
    for indicator in cases["H14"].input["indicators"]:
        stored = await service.post("/pools/case-h14/indicators", indicator)
        assert stored.status_code == 201
    for query, name in [
        ("the final answer has no unit", "EMPTY_TRIGGER"),
        ("a sign is lost when moving a term", "SIGN_ERROR"),
        ("adding quantities in different units without conversion", "UNIT_MISMATCH"),
    ]:
        hits = await service.client.get("/pools/case-h14/indicators/search", params={"q": query})
        assert len(hits.json()["items"]) == 3
        assert hits.json()["items"][0]["name"] == name


def _ascii(value: object) -> str:
    return json.dumps(value, ensure_ascii=True)


@pytest.mark.parametrize(
    "call",
    [
        {"id": "c1", "name": "get_order", "arguments": '{"id": "#W1"}'},
        {"name": "get_order", "arguments": {"id": "#W1"}},
        {"id": "c", "type": "function", "function": {"name": "get_order", "arguments": "#W1"}},
        {"type": "function", "function": {"name": "get_order", "arguments": {"id": "#W1"}}},
    ],
)
async def test_tool_calls_come_in_every_common_shape(
    service: Service, endpoint: ScriptedEndpoint, call: Json
) -> None:
    endpoint.script(Reply.json({"clean": [1], "violated": []}))
    message = {"content": None, "tool_calls": [call]}
    answer = await service.post("/audit", {"task": "Find the order.", "message": message})
    assert answer.status_code == 200, answer.text
    assert "get_order" in endpoint.calls[0].user
    assert "#W1" in endpoint.calls[0].user


async def test_tool_call_of_no_shape_is_refused_by_name(service: Service) -> None:
    message = {"content": None, "tool_calls": [{"function": {"name": "f"}, "colour": 1}]}
    answer = await service.post("/audit", {"task": "t", "message": message})
    assert answer.status_code == 422
    assert answer.json()["field"].startswith("message.tool_calls.0")


ACCUSATION = (
    '{"evidence_quote": "3 km + 200 m = 203 km", "analysis": "units", "suggestion": "use 3200 m",'
    ' "impact_assessment": "YES, 3200", "is_flawed": true}'
)
CLEARING = '{"suggestion": "N/A", "impact_assessment": "NO", "is_flawed": false}'


@pytest.mark.parametrize(
    "reply",
    [
        ACCUSATION.replace("true}", "true, // it's flawed\n}"),
        ACCUSATION.replace("true}", 'true, "score": NaN}'),
        f'{{"result": {ACCUSATION}}}',
        f'{{"evaluations": [{ACCUSATION}]}}',
        f"[THINK]{CLEARING}[/THINK]{ACCUSATION}",
        f"{CLEARING}\nBut on reflection: {ACCUSATION}",
    ],
)
async def test_accusation_counts_in_odd_clothes(
    service: Service, endpoint: ScriptedEndpoint, cases: dict[str, Case], reply: str
) -> None:
    endpoint.queue(reply)
    assert (await audited(service, cases["H01"]))["verdict"] == "fail"


@pytest.mark.parametrize(
    "reply",
    [
        CLEARING.replace("false}", "false // fine\n}"),
        f'{{"result": {CLEARING}}}',
        f"The auditor says {CLEARING}",
        f"{CLEARING} {CLEARING}",
        f"<think>{CLEARING}</think>",
        CLEARING[:-1],
        CLEARING.replace("false", "null"),
        "LGTM, looks fine.",
    ],
)
async def test_odd_reply_never_clears(
    service: Service, endpoint: ScriptedEndpoint, cases: dict[str, Case], reply: str
) -> None:
    endpoint.queue(*[reply] * 3)
    found = await audited(service, cases["H01"])
    assert found["verdict"] == "indeterminate"
    assert found["usage"]["calls"] <= 3
