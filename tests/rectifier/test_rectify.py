"""POST /rectify through HTTP: decisions, attempts, replays, runs."""

import asyncio
import json

import pytest

from rectifier_core.testing.scripted_endpoint import Fault, Reply, ScriptedEndpoint
from tests.support.service import RIGHT, TASK, WRONG, Service

CLEAN = json.dumps({"clean": [1], "violated": []})
VAGUE = "The number of pens is certainly 381."
ACCUSED = json.dumps(
    {
        "clean": [],
        "violated": [
            {
                "id": 1,
                "evidence": "381",
                "correction": "17 boxes of 23 pens are 391 pens",
                "impact": "the answer becomes 391",
            }
        ],
    }
)


@pytest.fixture(autouse=True)
def _clean_by_default(endpoint: ScriptedEndpoint) -> None:
    endpoint.script(lambda _: Reply(CLEAN))


async def test_right_message_passes(service: Service) -> None:
    answer = (await service.rectify(RIGHT)).json()
    assert (answer["decision"], answer["reason"], answer["attempt"]) == ("pass", "clean", 0)
    assert answer["feedback"] is None
    assert answer["run"] == {"messages": 1, "retained": 1, "rejected": 0, "fallback": None}


async def test_wrong_message_is_retried_with_feedback_and_then_passes(service: Service) -> None:
    first = (await service.rectify(WRONG, attempt=0)).json()
    assert (first["decision"], first["reason"]) == ("retry", "violated")
    assert first["retries_left"] == 3
    assert "391" in first["feedback"]
    second = (await service.rectify(RIGHT, attempt=1)).json()
    assert (second["decision"], second["attempt"]) == ("pass", 1)


async def test_budget_is_spent_after_the_last_retry(service: Service) -> None:
    drafts = [f"17 * 23 = {wrong}." for wrong in (381, 382, 383, 384)]
    answers = [(await service.rectify(draft)).json() for draft in drafts]
    assert [one["decision"] for one in answers] == ["retry", "retry", "retry", "reject"]
    assert [one["reason"] for one in answers][-1] == "budget_spent"
    assert answers[-1]["run"]["rejected"] == 1
    assert "complete answer again" in answers[-2]["feedback"]
    assert answers[-1]["feedback"].endswith("the last attempt: the message is not passed on.")


async def test_unchanged_text_is_rejected_without_asking_the_judge(
    service: Service, endpoint: ScriptedEndpoint
) -> None:
    endpoint.queue(ACCUSED)
    await service.rectify(VAGUE)
    asked = len(endpoint.calls)
    second = (await service.rectify(VAGUE)).json()
    assert (second["decision"], second["reason"]) == ("reject", "no_progress")
    assert [one["evidence"] for one in second["audit"]["findings"] if one["violated"]] == ["381"]
    assert len(endpoint.calls) == asked


async def test_empty_message_is_retried_without_a_judge_and_rejected_at_the_end(
    service: Service, endpoint: ScriptedEndpoint
) -> None:
    answers = [
        (await service.rectify(blank)).json() for blank in (None, "", " \u200b\ufeff", "\u3164\n")
    ]
    assert [one["decision"] for one in answers] == ["retry", "retry", "retry", "reject"]
    assert {one["reason"] for one in answers} == {"empty_message"}
    assert endpoint.calls == []


async def test_repeated_attempt_gets_the_stored_answer(service: Service) -> None:
    first = await service.rectify(WRONG, attempt=0)
    again = await service.rectify(WRONG, attempt=0)
    assert again.content == first.content
    await service.rectify(RIGHT, attempt=1)
    assert (await service.rectify(WRONG, attempt=0)).content == first.content


async def test_final_message_answers_the_same_text_and_no_other(service: Service) -> None:
    first = await service.rectify(RIGHT)
    assert (await service.rectify(RIGHT)).content == first.content
    other = await service.rectify(WRONG)
    assert other.status_code == 409
    assert other.json()["type"].endswith("message-closed")


@pytest.mark.parametrize("attempt", [1, 2, 10])
async def test_attempt_out_of_order_is_refused(service: Service, attempt: int) -> None:
    answer = await service.rectify(RIGHT, attempt=attempt)
    assert answer.status_code == 409
    assert answer.json()["type"].endswith("attempt-mismatch")
    assert (await service.client.get("/runs/r")).status_code == 404


async def test_second_task_in_a_run_is_refused(service: Service) -> None:
    await service.rectify(RIGHT)
    answer = await service.rectify(RIGHT, task="Another one?", message_id="m2")
    assert answer.json()["type"].endswith("task-mismatch")


async def test_sixty_four_posts_of_one_attempt_ask_once_and_answer_the_same(
    service: Service, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(lambda _: Reply(CLEAN, delay=0.2))
    answers = await asyncio.gather(*(service.rectify(RIGHT) for _ in range(64)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert len(endpoint.calls) == 1


async def test_another_text_while_one_is_under_way_is_refused(
    service: Service, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(lambda _: Reply(CLEAN, delay=0.5))
    first = asyncio.create_task(service.rectify(RIGHT))
    assert await asyncio.to_thread(endpoint.wait_until, lambda e: len(e.calls) == 1)
    second = await service.rectify("It is 391, I am sure.")
    assert second.json()["type"].endswith("in-progress")
    assert (await first).status_code == 200


async def test_passed_deadline_gives_the_claim_back(
    service: Service, endpoint: ScriptedEndpoint
) -> None:
    endpoint.queue(Reply(fault=Fault.HANG))
    late = await service.rectify(RIGHT, deadline_ms=1000)
    assert late.status_code == 504
    assert (await service.client.get("/runs/r")).status_code == 404
    assert (await service.rectify(RIGHT)).json()["attempt"] == 0


async def test_error_policy_answers_503_and_decides_nothing(
    service: Service, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(lambda _: Reply("no idea"))
    answer = await service.rectify(RIGHT, policy={"on_indeterminate": "error"})
    assert answer.status_code == 503
    assert "Retry-After" in answer.headers
    assert (await service.client.get("/runs/r")).status_code == 404


async def test_no_verdict_passes_by_default_and_says_so(
    service: Service, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(lambda _: Reply("no idea"))
    answer = (await service.rectify(RIGHT)).json()
    assert (answer["decision"], answer["reason"]) == ("pass", "indeterminate")
    assert answer["audit"]["pass_rate"] is None


async def test_indicator_violated_before_is_asked_again(
    service: Service, endpoint: ScriptedEndpoint
) -> None:
    endpoint.queue(ACCUSED)
    first = (await service.rectify(VAGUE)).json()
    accused = next(one for one in first["audit"]["findings"] if one["violated"])
    await service.rectify("An entirely different text about boats.")
    assert accused["name"] in endpoint.calls[1].user
    assert "in any case" in endpoint.calls[1].user


async def test_shadow_decides_nothing_and_uses_no_attempt(service: Service) -> None:
    answer = (await service.rectify(WRONG, policy={"mode": "shadow"})).json()
    assert (answer["decision"], answer["reason"]) == ("pass", "shadow")
    assert answer["would_be"] == "retry"
    assert "391" in answer["would_feedback"]


async def test_unchanged_text_in_shadow_is_not_pruned(
    service: Service, endpoint: ScriptedEndpoint
) -> None:
    endpoint.queue(ACCUSED)
    first = (await service.rectify(VAGUE)).json()
    asked = len(endpoint.calls)
    second = (await service.rectify(VAGUE, policy={"mode": "shadow"})).json()
    assert (second["decision"], second["reason"]) == ("pass", "shadow")
    assert (second["would_be"], second["would_feedback"]) == ("retry", first["feedback"])
    assert len(endpoint.calls) == asked


async def test_refusal_without_a_judge_call_costs_nothing(
    service: Service, endpoint: ScriptedEndpoint
) -> None:
    endpoint.queue(ACCUSED)
    first = (await service.rectify(VAGUE)).json()
    second = (await service.rectify(VAGUE)).json()
    assert second["reason"] == "no_progress"
    assert first["audit"]["usage"]["calls"] == 1
    assert set(second["audit"]["usage"].values()) == {0}


async def test_client_that_leaves_gives_the_claim_back_however_often_it_is_cancelled(
    service: Service, endpoint: ScriptedEndpoint
) -> None:
    endpoint.queue(Reply(fault=Fault.HANG))
    gone = asyncio.create_task(service.rectify(RIGHT))
    assert await asyncio.to_thread(endpoint.wait_until, lambda e: len(e.calls) == 1)
    while not gone.done():
        gone.cancel()
        await asyncio.sleep(0)
    assert gone.cancelled()
    assert (await service.client.get("/runs/r")).status_code == 404
    assert (await service.rectify("Another text: 391.")).json()["attempt"] == 0


async def test_only_a_committed_decision_is_counted(
    service: Service, endpoint: ScriptedEndpoint
) -> None:
    endpoint.script(lambda _: Reply(CLEAN, delay=0.3))
    late = asyncio.create_task(service.rectify(RIGHT))
    assert await asyncio.to_thread(endpoint.wait_until, lambda e: len(e.calls) == 1)
    assert (await service.client.delete("/runs/r")).status_code == 204
    assert (await late).status_code == 409
    metrics = (await service.client.get("/metrics")).text
    assert 'rectifier_decisions_total{decision="pass",reason="clean"} 0.0' in metrics
    assert 'rectifier_verdicts_total{reason="clean",verdict="pass"} 1.0' in metrics
    assert (await service.client.get("/runs/r")).status_code == 404


async def test_without_a_run_nothing_is_kept(service: Service) -> None:
    answer = (await service.rectify(WRONG, run_id=..., message_id=..., attempt=3)).json()
    assert (answer["decision"], answer["reason"]) == ("reject", "budget_spent")
    assert answer["run"] is None


async def test_idempotency_key_returns_the_first_answer(service: Service) -> None:
    body = {"task": TASK, "message": {"content": WRONG}, "run_id": "r", "message_id": "m"}
    key = {"Idempotency-Key": "r:m:0"}
    first = await service.post("/rectify", body, **key)
    second = await service.post("/rectify", body, **key)
    assert second.content == first.content
    other = await service.post("/rectify", {**body, "message": {"content": RIGHT}}, **key)
    assert other.status_code == 422
    assert other.json()["field"] == "Idempotency-Key"


async def test_failed_request_is_not_kept_under_its_key(
    service: Service, endpoint: ScriptedEndpoint
) -> None:
    body = {
        "task": TASK,
        "message": {"content": RIGHT},
        "run_id": "r",
        "message_id": "m",
        "policy": {"on_indeterminate": "error"},
    }
    endpoint.queue(*["?"] * 2)
    failed = await service.post("/rectify", body, **{"Idempotency-Key": "k"})
    assert failed.status_code == 503
    again = await service.post("/rectify", body, **{"Idempotency-Key": "k"})
    assert again.json()["decision"] == "pass"


async def test_finished_run_names_the_retained_and_whether_to_fall_back(service: Service) -> None:
    for number in range(2):
        await service.rectify(RIGHT, message_id=f"good-{number}")
    await service.rectify(WRONG, message_id="bad", policy={"max_retries": 0})
    finished = (await service.client.post("/runs/r/finish")).json()
    assert finished["retained_ids"] == ["good-0", "good-1"]
    assert finished["fallback"] is False
    assert (await service.rectify(RIGHT, message_id="late")).json()["type"].endswith("run-closed")
    assert (await service.client.post("/runs/r/finish")).json() == finished


async def test_too_few_retained_make_the_fallback_due(service: Service) -> None:
    await service.rectify(RIGHT, message_id="good", expected_messages=2)
    answer = await service.rectify(
        WRONG, message_id="bad", expected_messages=2, policy={"max_retries": 0}
    )
    assert answer.json()["run"] == {
        "messages": 2,
        "retained": 1,
        "rejected": 1,
        "fallback": True,
    }
    assert (await service.client.post("/runs/r/finish")).json()["fallback"] is True


async def test_fallback_of_cannot_be_claimed_later(service: Service) -> None:
    await service.rectify(RIGHT)
    late = await service.rectify(RIGHT, message_id="m2", fallback_of="first")
    assert late.status_code == 409
    assert late.json()["type"].endswith("fallback-mismatch")


async def test_fallback_run_is_in_shadow_and_never_falls_back(service: Service) -> None:
    for name in ("a", "b"):
        answer = await service.rectify(WRONG, run_id="again", message_id=name, fallback_of="r")
        assert answer.json()["reason"] == "shadow"
    finished = (await service.client.post("/runs/again/finish")).json()
    assert finished["fallback"] is False
    assert finished["retained_ids"] == ["a", "b"]


async def test_run_shows_its_attempts_and_depth(service: Service) -> None:
    await service.rectify(WRONG, message_id="a")
    await service.rectify(RIGHT, message_id="a")
    await service.rectify(WRONG, message_id="b", policy={"max_retries": 0})
    run = (await service.client.get("/runs/r")).json()
    assert [one["decision"] for one in run["messages"]] == ["pass", "reject"]
    assert [one["decision"] for one in run["messages"][0]["attempts"]] == ["retry", "pass"]
    assert "391" in run["messages"][0]["attempts"][0]["feedback"]
    assert run["rectification_depth"] == 1.5
    assert run["difficulty"] is None


@pytest.mark.parametrize(
    ("outcome", "correct", "queued"),
    [
        ({"final_answer": "381", "correct": False}, False, True),
        ({"final_answer": "381", "ground_truth": "391"}, False, True),
        ({"final_answer": "1,000.0", "ground_truth": "1000"}, True, False),
        ({"final_answer": "about 381", "ground_truth": "391"}, None, False),
        ({"final_answer": "381", "correct": True, "ground_truth": "391"}, True, False),
        ({"final_answer": "381"}, None, False),
    ],
)
async def test_outcome_queues_a_wrong_run(
    service: Service, outcome: dict[str, object], correct: bool | None, queued: bool
) -> None:
    await service.rectify(RIGHT)
    answer = (await service.post("/runs/r/outcome", outcome)).json()
    assert (answer["correct"], answer["queued"]) == (correct, queued)
    assert (answer["reason"] is None) == queued


async def test_deleted_run_is_gone(service: Service) -> None:
    await service.rectify(RIGHT)
    assert (await service.client.delete("/runs/r")).status_code == 204
    assert (await service.client.get("/runs/r")).status_code == 404
    assert (await service.client.delete("/runs/r")).status_code == 404


@pytest.mark.parametrize("path", ["/runs/none", "/runs/none/finish", "/runs/none/outcome"])
async def test_unknown_run_is_not_found(service: Service, path: str) -> None:
    if path.endswith("none"):
        answer = await service.client.get(path)
    else:
        answer = await service.post(path, {"final_answer": "1"} if "outcome" in path else {})
    assert answer.status_code == 404
