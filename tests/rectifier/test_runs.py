"""Runs: claims, commits, waits, views, outcomes, on a real valkey-server.

The rules of attempts in any order are held against a model in ``test_runs_model.py``.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from rectifier.runs import TRAJECTORIES, Answered, Claim, MessageRef, Runs
from rectifier_core.adapters.redis_client import open_redis
from rectifier_core.errors import (
    ConflictError,
    DeadlineError,
    NotFoundError,
    StateError,
)
from tests.support.runs import Driver

DAY_MS = 24 * 3600 * 1000
SHORT_LEASE = -29.99  # seconds, as a margin: a claim within 30 s is held for 10 ms or less


@pytest.fixture
async def runs(redis: Redis) -> Runs:
    return Runs(redis, content=True)


@pytest.fixture
async def run(runs: Runs) -> Driver:
    return Driver(runs)


@pytest.fixture
async def elsewhere(redis: Redis, redis_url: str) -> AsyncIterator[Driver]:
    """The same run, seen by another process: it shares nothing but the server."""
    async with open_redis(redis_url) as client:
        yield Driver(Runs(client, content=True))


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await condition():  # noqa: ASYNC110  # it is Redis that is waited for
            await asyncio.sleep(0.001)


async def conflict(attempt: Awaitable[object]) -> str:
    with pytest.raises(ConflictError) as caught:
        await attempt
    return caught.value.kind


# Claims


async def test_sixty_four_claims_of_one_text_make_one_and_share_its_answer(run: Driver) -> None:
    claims = 0

    async def post() -> bytes:
        nonlocal claims
        found = await run.claim()
        if isinstance(found, Answered):
            return found.answer
        claims += 1
        await asyncio.sleep(0)
        return await run.commit(found)

    answers = await asyncio.gather(*(post() for _ in range(64)))
    assert claims == 1
    assert len(set(answers)) == 1
    assert json.loads(answers[0])["run"]["messages"] == 1


@pytest.mark.parametrize("decision", ["pass", "retry", "reject"])
async def test_processes_share_one_claim_whatever_is_decided(
    run: Driver, elsewhere: Driver, decision: str
) -> None:
    claim = await run.claimed()
    waiting = [asyncio.create_task(side.claim()) for side in (run, elsewhere) for _ in range(4)]
    await until(lambda: holds(run, waiting=4))
    await until(lambda: holds(elsewhere, waiting=4))
    answer = await run.commit(claim, decision)
    assert await asyncio.gather(*waiting) == [Answered(answer)] * 8


async def holds(run: Driver, *, waiting: int) -> bool:
    return sum(wait.waiters for wait in run.runs._waits._waits.values()) == waiting


async def test_released_claim_goes_to_one_of_those_who_wait(run: Driver, elsewhere: Driver) -> None:
    first = await run.claimed()
    claims: list[Claim] = []

    async def post(side: Driver) -> bytes:
        found = await side.claim()
        if isinstance(found, Answered):
            return found.answer
        claims.append(found)
        return await side.commit(found)

    waiting = [asyncio.create_task(post(side)) for side in (run, elsewhere) for _ in range(8)]
    await until(lambda: holds(run, waiting=8))
    await until(lambda: holds(elsewhere, waiting=8))
    await run.runs.release(first)
    assert len(set(await asyncio.gather(*waiting))) == 1
    assert [claim.attempt for claim in claims] == [0]


async def test_who_waits_never_gets_the_answer_to_another_text(
    run: Driver, elsewhere: Driver
) -> None:
    first = await run.claimed("a")
    waiting = asyncio.create_task(elsewhere.claim("a", attempt=0))
    unnumbered = asyncio.create_task(elsewhere.claim("a"))
    await until(lambda: holds(elsewhere, waiting=2))
    await run.runs.release(first)
    await run.decide("retry", "b")
    assert await conflict(waiting) == "attempt_mismatch"
    next_ = await unnumbered
    assert isinstance(next_, Claim)
    assert (next_.attempt, next_.is_unchanged) == (1, False)


@pytest.mark.parametrize("end", ["commit", "release"])
async def test_who_waits_in_the_same_process_is_woken_without_a_poll(
    run: Driver, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("rectifier.waits.POLL_S", 1_000.0)
    claim = await run.claimed()
    waiting = asyncio.create_task(run.claim(attempt=0))
    await until(lambda: holds(run, waiting=1))
    await (run.commit(claim) if end == "commit" else run.runs.release(claim))
    async with asyncio.timeout(10):
        assert isinstance(await waiting, Answered if end == "commit" else Claim)


async def test_another_text_under_way_is_a_conflict(run: Driver, elsewhere: Driver) -> None:
    await run.claimed("a")
    assert await conflict(elsewhere.claim("b")) == "in_progress"


async def test_waiting_ends_with_the_deadline_and_leaves_no_task(run: Driver) -> None:
    await run.claimed()
    tasks = len(asyncio.all_tasks())
    with pytest.raises(DeadlineError):
        await run.claim(within=0.05)
    assert len(asyncio.all_tasks()) == tasks
    assert await holds(run, waiting=0)


async def test_cancelled_wait_does_not_disturb_the_others(run: Driver) -> None:
    claim = await run.claimed()
    first, second = (asyncio.create_task(run.claim()) for _ in range(2))
    await until(lambda: holds(run, waiting=2))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    answer = await run.commit(claim)
    assert await second == Answered(answer)
    assert await holds(run, waiting=0)


async def test_claim_of_a_dead_holder_expires_with_its_deadline(
    run: Driver, elsewhere: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("rectifier.runs.LEASE_MARGIN_S", -29.5)
        dead = await run.claimed()
    heir = await elsewhere.claimed()
    assert heir.attempt == dead.attempt
    assert heir.fence != dead.fence
    assert await conflict(run.commit(dead)) == "in_progress"
    await run.runs.release(dead)
    answer = await elsewhere.commit(heir)
    assert await conflict(run.commit(dead)) == "in_progress"
    assert await run.claim() == Answered(answer)
    assert (await run.runs.finish("t", "r")).retained_ids == ("m",)


async def test_late_commit_counts_where_nobody_else_claimed(
    run: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rectifier.runs.LEASE_MARGIN_S", SHORT_LEASE)
    late = await run.claimed()
    await until(lambda: is_over(run))
    assert json.loads(await run.commit(late))["run"]["retained"] == 1


async def is_over(run: Driver) -> bool:
    """Whether the lease of message ``m`` ran out."""
    redis: Any = run.runs._redis
    (state,) = [key async for key in redis.scan_iter("*:state")]
    seconds, micros = await redis.time()
    return bool(float(await redis.hget(state, "lease:m")) < seconds * 1000 + micros / 1000)


async def test_claim_cancelled_while_redis_takes_it_holds_nothing(
    run: Driver, redis: Redis
) -> None:
    await redis.client_pause(60_000, all=False)
    claiming = asyncio.create_task(run.claim("a"))

    async def is_blocked() -> bool:
        return bool((await redis.info("clients"))["blocked_clients"] == 1)

    await until(is_blocked)
    claiming.cancel()
    await asyncio.sleep(0)
    await redis.client_unpause()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    await run.claimed("b")


async def test_redis_that_hangs_is_waited_for_until_the_deadline(run: Driver, redis: Redis) -> None:
    await redis.client_pause(60_000, all=False)
    try:
        with pytest.raises(DeadlineError):
            await run.claim(within=0.05)
    finally:
        await redis.client_unpause()


async def test_released_message_leaves_no_trace(run: Driver, redis: Redis) -> None:
    await run.runs.release(await run.claimed())
    assert await redis.dbsize() == 0
    with pytest.raises(NotFoundError):
        await run.runs.view("t", "r")


async def test_release_spares_what_was_decided_and_what_others_claimed(run: Driver) -> None:
    claim = await run.claimed(id_="a")
    other = await run.claimed(id_="b")
    await run.commit(claim, "retry")
    await run.runs.release(claim)
    await run.runs.release(other)
    assert [one.message_id for one in (await run.runs.view("t", "r")).messages] == ["a"]


async def test_claim_hands_on_what_the_last_attempt_left(run: Driver) -> None:
    first = await run.claimed("a")
    assert (first.previous, first.is_unchanged) == (None, False)
    await run.commit(first, "retry", text="a")
    second = await run.claimed("b")
    assert (second.attempt, second.previous, second.is_unchanged) == (1, "findings of a", False)
    await run.commit(second, "retry", text="b")
    third = await run.claimed("b")
    assert (third.previous, third.is_unchanged) == ("findings of b", True)


async def test_text_of_two_attempts_ago_is_not_unchanged(run: Driver) -> None:
    await run.decide("retry", "a")
    await run.decide("retry", "b")
    assert not (await run.claimed("a")).is_unchanged


async def test_closed_run_and_other_task_are_refused(run: Driver) -> None:
    await run.decide()
    assert await conflict(run.claim(id_="n", task="other")) == "task_mismatch"
    await run.runs.finish("t", "r")
    assert await conflict(run.claim(id_="n")) == "run_closed"
    assert await conflict(run.claim()) == "run_closed"


# Commits


async def test_commit_sent_twice_counts_once(run: Driver) -> None:
    claim = await run.claimed()
    answer = await run.commit(claim)
    assert await run.commit(claim) == answer
    assert (await run.runs.view("t", "r")).run.retained == 1


async def test_commit_into_a_run_that_was_closed_is_refused(
    run: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run.decide(id_="n")
    monkeypatch.setattr("rectifier.runs.LEASE_MARGIN_S", SHORT_LEASE)
    late = await run.claimed()
    await until(lambda: is_over(run))
    await run.runs.finish("t", "r")
    assert await conflict(run.commit(late)) == "run_closed"


@pytest.mark.parametrize(
    ("decisions", "expected", "gamma", "fallback"),
    [
        (["pass", "reject"], None, 2, None),
        (["pass", "reject"], 2, 2, True),
        (["pass", "reject"], 3, 2, None),
        (["reject"], 3, 2, None),
        (["reject", "reject"], 3, 2, True),
        (["reject"], 1, 2, True),
        (["reject"], 1, 0, None),
        (["pass", "pass"], 2, 5, None),
        (["retry"], 1, 2, None),
        (["pass", "pass", "pass", "reject"], 1, 2, None),  # more came than were expected
        (["reject"] * 9, 100_000, 1_000, None),
    ],
)
async def test_fallback_is_told_early_where_it_cannot_be_avoided(
    run: Driver, decisions: list[str], expected: int | None, gamma: int, fallback: bool | None
) -> None:
    for number, decision in enumerate(decisions):
        answer = await run.decide(decision, id_=str(number), expected=expected, gamma=gamma)
    assert answer["run"]["fallback"] is fallback


async def test_every_key_of_a_run_expires_a_day_after_its_last_message(
    run: Driver, redis: Redis
) -> None:
    await run.decide("retry", id_="old")
    keys = [key async for key in redis.scan_iter()]
    assert len(keys) == 4
    for message in (run.claimed(id_="under way"), run.decide(id_="new")):
        for key in keys:
            await redis.pexpire(key, 5_000)
        await message
        assert {key async for key in redis.scan_iter()} == set(keys)
        for key in keys:
            assert DAY_MS - 60_000 < await redis.pttl(key) <= DAY_MS


async def test_decision_renews_the_time_of_its_run(run: Driver, redis: Redis) -> None:
    claim = await run.claimed()
    for key in [key async for key in redis.scan_iter()]:
        await redis.pexpire(key, 5_000)
    await run.commit(claim)
    async for key in redis.scan_iter():
        assert await redis.pttl(key) > DAY_MS - 60_000


async def test_run_is_forgotten_after_its_time(redis: Redis) -> None:
    run = Driver(Runs(redis, content=True, ttl_s=1))
    await run.decide()

    async def is_empty() -> bool:
        return int(await redis.dbsize()) == 0

    await until(is_empty)
    with pytest.raises(NotFoundError):
        await run.runs.finish("t", "r")


@pytest.mark.parametrize(
    "id_", ["a:b", "0:m", "}{", "m\nm", " ", "decided:m", "ü🙂", "%s%d", "x" * 256, "-1"]
)
async def test_any_id_names_its_own_message_and_run(run: Driver, runs: Runs, id_: str) -> None:
    await run.decide(id_="m")
    await run.decide("retry", id_=id_)
    await run.decide("reject", "b", id_=id_)
    view = await runs.view("t", "r")
    assert [(one.message_id, one.decision) for one in view.messages] == [
        ("m", "pass"),
        (id_, "reject"),
    ]
    assert [one.decision for one in view.messages[1].attempts] == ["retry", "reject"]
    await Driver(runs, run_id=id_, tenant="r").decide()
    assert (await runs.view("r", id_)).run.messages == 1
    with pytest.raises(NotFoundError):
        await runs.view("t", id_)


async def test_stored_answer_is_the_text_to_the_byte(run: Driver) -> None:
    text = 'NaN 1e400 ü \u2028 "quoted" \\ 0.30000000000000004 [] {} %s'
    answer = await run.commit(await run.claimed(text), text=text)
    assert json.loads(answer)["text"] == text
    assert await run.claim(text) == Answered(answer)


# Views and the end of runs


async def test_view_shows_counts_attempts_and_depth(run: Driver) -> None:
    await run.decide("retry", "a", id_="m")
    await run.decide("pass", "b", id_="m")
    await run.decide("reject", id_="n", max_retries=4)
    await run.claimed(id_="under way")
    view = await run.runs.view("t", "r")
    assert (view.run.messages, view.run.retained, view.run.rejected) == (2, 1, 1)
    assert (view.closed, view.run.fallback, view.difficulty) == (False, None, None)
    assert [one.message_id for one in view.messages] == ["m", "n"]
    assert [one.attempt for one in view.messages[0].attempts] == [0, 1]
    assert view.messages[0].attempts[0].feedback == "mend a"
    assert view.rectification_depth == (2 + 5) / 2


async def test_retained_are_named_in_the_order_of_their_first_claim(run: Driver) -> None:
    claims = [await run.claimed(id_=id_) for id_ in ("c", "a", "b", "d")]
    for claim, decision in zip(reversed(claims), ["pass", "reject", "retry", "pass"], strict=True):
        await run.commit(claim, decision)
    await run.decide("pass", "b", id_="a")
    assert (await run.runs.finish("t", "r")).retained_ids == ("c", "a", "d")


@pytest.mark.parametrize(
    ("decisions", "gamma", "fallback"),
    [
        (["pass"], 2, False),
        (["reject"], 2, True),
        (["pass", "reject"], 2, True),
        (["pass", "pass", "reject"], 2, False),
        (["pass", "retry"], 2, False),  # nothing was rejected
        (["reject"], 0, False),
        (["pass"] * 3 + ["reject"], 1_000, True),
    ],
)
async def test_fallback_is_due_where_too_few_were_retained(
    run: Driver, decisions: list[str], gamma: int, fallback: bool
) -> None:
    for number, decision in enumerate(decisions):
        await run.decide(decision, id_=str(number), gamma=gamma)
    finished = await run.runs.finish("t", "r")
    assert finished.fallback is finished.run.fallback is fallback
    assert await run.runs.finish("t", "r") == finished


async def test_run_with_an_attempt_under_way_is_not_finished(run: Driver) -> None:
    claim = await run.claimed()
    assert await conflict(run.runs.finish("t", "r")) == "in_progress"
    await run.commit(claim)
    assert (await run.runs.finish("t", "r")).retained_ids == ("m",)


async def test_run_that_repeats_another_is_in_shadow_and_never_falls_back(run: Driver) -> None:
    first = await run.claimed(id_="a", fallback_of="q")
    second = await run.claimed(id_="b")
    assert first.in_shadow
    assert second.in_shadow
    for claim in (first, second):
        answer = await run.commit(claim, "reject", expected=2)
        assert json.loads(answer)["run"]["fallback"] is None
    assert not (await run.runs.finish("t", "r")).fallback
    assert (await run.runs.view("t", "r")).fallback_of == "q"


async def test_first_message_says_once_for_all_what_a_run_repeats(run: Driver) -> None:
    await run.decide(id_="a")
    with pytest.raises(ConflictError) as refused:
        await run.claimed(id_="b", fallback_of="q")
    assert refused.value.kind == "fallback_mismatch"


async def test_difficulty_ranks_a_run_among_the_finished_ones_of_its_pool(runs: Runs) -> None:
    for number in range(20):
        run = Driver(runs, run_id=str(number))
        if number % 2:
            await run.decide("retry", "other")
        await run.decide()
        await runs.finish("t", str(number))
        view = await runs.view("t", str(number))
        assert (view.difficulty is None) == (number < 19)
    assert (await runs.view("t", "0")).difficulty == 0.25
    assert (await runs.view("t", "1")).difficulty == 0.75
    await Driver(runs, tenant="u").decide()
    await runs.finish("u", "r")
    assert (await runs.view("u", "r")).difficulty is None


async def test_run_that_repeats_another_is_not_ranked(runs: Runs) -> None:
    for number in range(20):
        run = Driver(runs, run_id=str(number))
        await run.commit(await run.claimed(fallback_of="q" if number == 0 else None))
        await runs.finish("t", str(number))
    assert (await runs.view("t", "1")).difficulty is None


# Outcomes


async def queued(redis: Redis) -> list[dict[str, Any]]:
    entries: Any = await redis.xrange(TRAJECTORIES)
    return [json.loads(fields["trajectory"]) for _, fields in entries]


async def test_wrong_run_is_queued_with_all_its_steps(run: Driver, redis: Redis) -> None:
    await run.decide("retry", "first", id_="m")
    await run.decide("pass", "second", id_="m")
    outcome = await run.runs.outcome("t", "r", final_answer="41", correct=False, ground_truth="40")
    assert (outcome.correct, outcome.queued, outcome.reason) == (False, True, None)
    (trajectory,) = await queued(redis)
    assert trajectory["id"] == outcome.trajectory_id
    assert trajectory["failed"] is True
    assert trajectory["question"] == "Add 17 and 23."
    assert (trajectory["final_answer"], trajectory["ground_truth"]) == ("41", "40")
    assert [step["content"] for step in trajectory["steps"]] == ["first", "second"]
    assert [step["index"] for step in trajectory["steps"]] == [0, 1]
    assert {(step["agent"], step["role"]) for step in trajectory["steps"]} == {
        ("solver", "the role")
    }


async def test_outcome_sent_many_times_queues_once(
    run: Driver, elsewhere: Driver, redis: Redis
) -> None:
    await run.decide()

    def send(side: Driver) -> Awaitable[object]:
        return side.runs.outcome("t", "r", final_answer="1", correct=False)

    outcomes = await asyncio.gather(*(send(side) for side in (run, elsewhere) * 8))
    assert len(set(outcomes)) == 1
    assert len(await queued(redis)) == 1


async def test_known_outcome_stands_and_an_unknown_one_gives_way(run: Driver) -> None:
    await run.decide()
    outcome = run.runs.outcome
    assert (await outcome("t", "r", final_answer="?")).correct is None
    assert (await outcome("t", "r", final_answer="1", correct=True)).correct is True
    assert await conflict(outcome("t", "r", final_answer="1", correct=False)) == "outcome_recorded"
    assert await conflict(outcome("t", "r", final_answer="?")) == "outcome_recorded"
    assert (await outcome("t", "r", final_answer="1", correct=True)).correct is True


async def test_outcome_comes_after_the_end_of_a_run(run: Driver) -> None:
    await run.decide()
    await run.runs.finish("t", "r")
    assert (await run.runs.outcome("t", "r", final_answer="1", correct=False)).queued


@pytest.mark.parametrize(
    ("final_answer", "ground_truth", "correct"),
    [
        ("391", "391", True),
        (" 391\n", "391.0", True),
        ("391.", "391", True),
        ("1,234,567.50", "1234567.5", True),
        ("+7", "007", True),
        ("-0", "0", True),
        ("\N{MINUS SIGN}3", "-3", True),
        (".5", "0.50", True),
        ("0.1", "0.10000000000000001", False),
        ("9007199254740993", "9007199254740992", False),
        ("-7", "7", False),
        ("12,34", "1234", None),
        ("1,5", "1.5", None),
        ("1/2", "0.5", None),
        ("50%", "50", None),
        ("$5", "5", None),
        ("1e3", "1000", None),
        ("NaN", "NaN", None),
        ("Infinity", "Infinity", None),
        ("1_000", "1000", None),
        ("", "", None),
        (".", ".", None),
        ("+", "+", None),
        ("yes", "yes", None),
        ("the answer is 5", "5", None),
        ("5", None, None),
        ("9" * 200_000, "9" * 200_000, None),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_ground_truth_decides_where_both_are_plain_numbers(
    run: Driver, final_answer: str, ground_truth: str | None, correct: bool | None
) -> None:
    await run.decide()
    outcome = await run.runs.outcome("t", "r", final_answer=final_answer, ground_truth=ground_truth)
    assert outcome.correct is correct
    assert outcome.queued is (correct is False)


@pytest.mark.parametrize("correct", [True, False])
async def test_what_the_caller_knows_decides_over_the_ground_truth(
    run: Driver, correct: bool
) -> None:
    await run.decide()
    outcome = await run.runs.outcome(
        "t", "r", final_answer="1", correct=correct, ground_truth="1" if not correct else "2"
    )
    assert outcome.correct is correct


async def test_without_contents_nothing_of_them_is_kept_or_queued(redis: Redis) -> None:
    run = Driver(Runs(redis, content=False))
    claim = await run.claimed("hash")
    await run.commit(claim, "retry", text="")
    view = await run.runs.view("t", "r")
    assert view.messages[0].attempts[0].feedback is None
    assert not [key async for key in redis.scan_iter("*:contents")]
    outcome = await run.runs.outcome("t", "r", final_answer="1", correct=False)
    assert (outcome.correct, outcome.queued) == (False, False)
    assert outcome.reason == "contents are not stored"
    (state,) = [key async for key in redis.scan_iter("*:state")]
    assert "mend" not in str(await redis.hgetall(state))
    assert "Add 17" not in str(await redis.hgetall(state))


async def test_contents_of_a_run_are_bounded(
    run: Driver, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rectifier.runs.CONTENT_LIMIT", 1_000)
    for number in range(3):
        await run.decide("pass", "x" * 500, id_=str(number))
    (contents,) = [key async for key in redis.scan_iter("*:contents")]
    assert set(await redis.hgetall(contents)) == {"task", "0:0"}
    outcome = await run.runs.outcome("t", "r", final_answer="1", correct=False)
    assert not outcome.queued
    assert outcome.reason is not None
    assert "1,000 bytes" in outcome.reason


async def test_run_without_messages_is_not_queued(run: Driver) -> None:
    await run.claimed()
    outcome = await run.runs.outcome("t", "r", final_answer="1", correct=False)
    assert (outcome.queued, outcome.reason) == (False, "the run has no messages")


async def test_deleted_run_takes_what_it_queued_with_it(run: Driver, redis: Redis) -> None:
    await run.decide()
    await run.runs.outcome("t", "r", final_answer="1", correct=False)
    other = Driver(run.runs, run_id="other")
    await other.decide()
    await other.runs.outcome("t", "other", final_answer="1", correct=False)
    await run.runs.delete("t", "r")
    (left,) = await queued(redis)
    assert left["final_answer"] == "1"
    await other.runs.delete("t", "other")
    assert await queued(redis) == []
    assert [key async for key in redis.scan_iter()] == [TRAJECTORIES]


async def test_run_deleted_while_its_outcome_is_queued_takes_it_along(
    redis: Redis, redis_url: str
) -> None:
    run = Driver(Runs(redis, content=True))
    await run.decide()
    deleting = Driver(Deleting(redis, content=True))
    with pytest.raises(NotFoundError):
        await deleting.runs.outcome("t", "r", final_answer="1", correct=False)
    assert await queued(redis) == []


class Deleting(Runs):
    """Another process deletes the run right before the trajectory is queued."""

    async def _queue(self, trajectory: Mapping[str, object], *, tenant: str, pool: str) -> None:
        await self.delete("t", "r")
        await super()._queue(trajectory, tenant=tenant, pool=pool)


async def test_commit_into_a_deleted_run_brings_nothing_back(run: Driver, redis: Redis) -> None:
    claim = await run.claimed()
    await run.runs.delete("t", "r")
    assert await conflict(run.commit(claim)) == "in_progress"
    assert await redis.dbsize() == 0


async def test_runs_of_another_tenant_do_not_exist(run: Driver) -> None:
    await run.decide()
    for attempt in calls(run.runs, tenant="u"):
        with pytest.raises(NotFoundError):
            await attempt


def calls(runs: Runs, *, tenant: str = "t") -> list[Awaitable[object]]:
    return [
        runs.view(tenant, "r"),
        runs.finish(tenant, "r"),
        runs.outcome(tenant, "r", final_answer="1", correct=False),
        runs.delete(tenant, "r"),
    ]


# Faults of Redis


async def test_redis_away_is_a_state_error_and_never_a_decision(tmp_path: Path) -> None:
    async with open_redis(f"unix://{tmp_path}/none.sock") as client:
        run = Driver(Runs(client, content=True))
        claim = Claim(MessageRef("t", "r", "m"), attempt=0, fence="f")
        attempts = [run.claim(), run.commit(claim), run.runs.check(), *calls(run.runs)]
        for attempt in attempts:
            with pytest.raises(StateError):
                await attempt
        await run.runs.release(claim)


async def test_redis_without_memory_is_a_state_error(run: Driver, redis: Redis) -> None:
    await redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(StateError):
            await run.claim()
    finally:
        await redis.config_set("maxmemory", 0)
    assert (await run.claimed()).attempt == 0


async def test_forgotten_scripts_are_sent_again(run: Driver, redis: Redis) -> None:
    await run.decide("retry")
    await redis.script_flush()
    assert (await run.decide("pass", "b"))["attempt"] == 1


async def test_commit_whose_reply_was_lost_counts_once(
    run: Driver, redis_url: str, tmp_path: Path
) -> None:
    async with losing_replies(redis_url, tmp_path / "p") as (url, lose), open_redis(url) as client:
        side = Driver(Runs(client, content=True))
        await side.decide(id_="n")  # the scripts are known from here on
        claim = await side.claimed()
        lose.set()
        answer = await side.commit(claim, "retry")
        assert not lose.is_set()
    assert await run.claim(attempt=0) == Answered(answer)
    assert (await run.runs.view("t", "r")).run.messages == 2


async def test_claim_whose_reply_was_lost_holds_nothing(
    run: Driver, redis_url: str, tmp_path: Path
) -> None:
    async with losing_replies(redis_url, tmp_path / "p") as (url, lose), open_redis(url) as client:
        side = Driver(Runs(client, content=True))
        await side.decide(id_="n")  # the scripts are known from here on
        lose.set()
        with pytest.raises(StateError):
            await side.claim("a")
        assert not lose.is_set()
    assert (await run.claimed("b")).attempt == 0


@asynccontextmanager
async def losing_replies(redis_url: str, socket: Path) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """A way to the server that drops one reply, and its connection, once it is told to."""
    server_path = redis_url.removeprefix("unix://").partition("?")[0]
    lose = asyncio.Event()

    async def forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            sink.write(data)
        sink.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        replies, commands = await asyncio.open_unix_connection(server_path)
        forwarding = asyncio.create_task(forward(reader, commands))
        while data := await replies.read(65_536):
            if lose.is_set():
                lose.clear()
                break
            writer.write(data)
        writer.close()
        await forwarding

    async with await asyncio.start_unix_server(serve, socket):
        yield f"unix://{socket}?db=0", lose
