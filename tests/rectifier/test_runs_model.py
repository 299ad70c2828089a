"""The attempt rules of `Runs`, held against a model in plain Python: two processes, any order."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from redis.asyncio import Redis

from rectifier.policy import PRESETS, Policy
from rectifier.runs import Answered, Claim, MessageRef, Runs
from rectifier_core.deadline import Deadline
from rectifier_core.errors import ConflictError, NotFoundError
from rectifier_core.message import Message
from tests.support.redis import stray_keys

PATIENT_S = 20.0  # seconds: outlives every example
CRASH_S = 1.0  # seconds: with the margin below, a lease of some 30 ms
MARGIN_S = -0.97
WAITERS = 3
POLICY: Policy = PRESETS["fast"]

MESSAGES = st.sampled_from(["{m}", "n:0"])
TEXTS = st.sampled_from(["one", "two"])
DECISIONS = st.sampled_from(["pass", "retry", "retry", "reject"])
SIDES = st.sampled_from([0, 1])
ATTEMPTS = st.sampled_from(["absent", "next", "last", "last", "beyond"])

Attempt = Literal["absent", "next", "last", "beyond"]


@dataclass
class Modelled:
    """One message as the rules see it."""

    decided: list[tuple[str, str, bytes]] = field(default_factory=list)  # text, decision, answer
    holder: Claim | None = None
    held_text: str = ""
    waiters: list["asyncio.Task[Claim | Answered]"] = field(default_factory=list)

    @property
    def has_passed(self) -> bool:
        return bool(self.decided) and self.decided[-1][1] == "pass"

    @property
    def is_final(self) -> bool:
        return bool(self.decided) and self.decided[-1][1] != "retry"


class AttemptRules(RuleBasedStateMachine):
    """Claims, commits, releases, crashes and looks, in any order and from two clients."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.clients = [Redis.from_url(self.url, decode_responses=True) for _ in range(2)]
        self.sides = [Runs(client, content=True) for client in self.clients]
        self.run_(self.clients[0].flushall())
        self._forget()

    def _forget(self) -> None:
        self.order: list[str] = []
        self.messages: dict[str, Modelled] = {}
        self.is_closed = False
        self.stale: list[Claim] = getattr(self, "stale", [])

    def run_(self, work: Any) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(PATIENT_S):
                return await work

        return self.loop.run(bounded())

    async def _claimed(
        self, side: int, message_id: str, text: str, attempt: int | None, *, within: float
    ) -> Claim | Answered:
        return await self.sides[side].claim(
            MessageRef("default", "{r}", message_id),
            content_hash=text,
            attempt=attempt,
            task_hash="task",
            deadline=Deadline.after(within),
        )

    async def _committed(self, side: int, claim: Claim, decision: str, text: str) -> bytes:
        return await self.sides[side].commit(
            claim,
            decision=decision,
            answer=b'{"text":"%s"' % text.encode(),
            record={
                "agent": "a",
                "reason": "r",
                "verdict": "v",
                "pass_rate": None,
                "feedback": text,
            },
            previous=text.encode(),
            policy=POLICY,
            task="the task",
            message=Message(content=text),
        )

    def _of(self, message_id: str) -> Modelled:
        return self.messages.setdefault(message_id, Modelled())

    def _held(self, message_id: str, claim: Claim | Answered, text: str) -> None:
        message = self._of(message_id)
        assert isinstance(claim, Claim)
        assert claim.attempt == len(message.decided)
        before = message.decided[-1] if message.decided else None
        assert claim.is_unchanged is (before is not None and before[0] == text)
        assert claim.previous == (before[0] if before else None)
        message.holder, message.held_text = claim, text
        if message_id not in self.order:
            self.order.append(message_id)

    def _expected(self, message: Modelled, text: str, attempt: int | None) -> str | bytes:
        """Return the conflict's kind, the stored answer, ``wait`` or ``claim``."""
        decided = message.decided
        if self.is_closed:
            return "run_closed"
        if attempt is not None and attempt < len(decided) and decided[attempt][0] == text:
            return decided[attempt][2]
        if message.is_final:
            return decided[-1][2] if decided[-1][0] == text else "message_closed"
        if attempt not in {None, len(decided)}:
            return "attempt_mismatch"
        if message.holder is not None:
            return "wait" if message.held_text == text else "in_progress"
        return "claim"

    @rule(message_id=MESSAGES, text=TEXTS, decision=DECISIONS, side=SIDES)
    def decide(self, message_id: str, text: str, decision: str, side: int) -> None:
        message = self._of(message_id)
        if self._expected(message, text, None) == "claim":
            self.claim(message_id, text, "next", side)
            for waiting in range(2):
                self.claim(message_id, text, "absent", waiting)
        self.commit(message_id, decision, 1 - side)

    @rule(message_id=MESSAGES, text=TEXTS, which=ATTEMPTS, side=SIDES)
    def claim(self, message_id: str, text: str, which: Attempt, side: int) -> None:
        message = self._of(message_id)
        decided = len(message.decided)
        numbers = {"absent": None, "next": decided, "last": max(decided - 1, 0)}
        attempt = numbers.get(which, decided + 2)
        expected = self._expected(message, text, attempt)
        asked = self._claimed(side, message_id, text, attempt, within=PATIENT_S)
        match expected:
            case "claim":
                self._held(message_id, self.run_(asked), text)
            case "wait" if len(message.waiters) < WAITERS:
                message.waiters.append(self.loop.get_loop().create_task(asked))
                self.run_(asyncio.sleep(0))
            case "wait":
                asked.close()
            case bytes():
                assert self.run_(asked) == Answered(expected)
            case _:
                with pytest.raises(ConflictError) as refused:
                    self.run_(asked)
                assert refused.value.kind == expected

    @rule(message_id=MESSAGES, decision=DECISIONS, side=SIDES)
    def commit(self, message_id: str, decision: str, side: int) -> None:
        message = self._of(message_id)
        if message.holder is None:
            return
        text = message.held_text
        answer = self.run_(self._committed(side, message.holder, decision, text))
        message.decided.append((text, decision, answer))
        message.holder = None
        assert json.loads(answer)["run"] == {**self._counts(), "fallback": None}
        shared = self.run_(asyncio.gather(*message.waiters))
        message.waiters.clear()
        assert all(one == Answered(answer) for one in shared)

    @rule(message_id=MESSAGES, side=SIDES)
    def release(self, message_id: str, side: int) -> None:
        message = self._of(message_id)
        if message.holder is None:
            return
        text = message.held_text
        self.run_(self.sides[side].release(message.holder))
        self.stale.append(message.holder)
        message.holder = None
        if not message.decided and not message.waiters:
            self.order.remove(message_id)
        if message.waiters:
            if not message.decided and self.order[-1] != message_id:
                self.order.remove(message_id)
                self.order.append(message_id)
            done, _ = self.run_(asyncio.wait(message.waiters, return_when=asyncio.FIRST_COMPLETED))
            assert len(done) == 1, "more than one took over"
            message.waiters = [one for one in message.waiters if one not in done]
            self._held(message_id, done.pop().result(), text)

    @precondition(lambda self: any(one.waiters for one in self.messages.values()))
    @rule()
    def hang_up(self) -> None:
        message = next(one for one in self.messages.values() if one.waiters)
        leaver = message.waiters.pop(0)
        leaver.cancel()
        self.run_(asyncio.wait([leaver]))
        assert leaver.cancelled()
        assert not any(one.done() for one in message.waiters)

    @rule(message_id=MESSAGES, text=TEXTS, side=SIDES)
    def crash_and_be_taken_over(self, message_id: str, text: str, side: int) -> None:
        message = self._of(message_id)
        if self.is_closed or message.is_final or message.holder is not None:
            return
        attempt = len(message.decided)
        crashed = self.run_(self._claimed(side, message_id, text, attempt, within=CRASH_S))
        self._held(message_id, crashed, text)
        taken = self.run_(self._claimed(1 - side, message_id, text, None, within=PATIENT_S))
        assert taken.fence != crashed.fence
        self._held(message_id, taken, text)
        self.stale.append(crashed)

    @precondition(lambda self: not any(one.holder for one in self.messages.values()))
    @rule(message_id=MESSAGES, text=TEXTS, side=SIDES)
    def crash_and_be_finished(self, message_id: str, text: str, side: int) -> None:
        message = self._of(message_id)
        if self.is_closed or message.is_final:
            return
        crashed = self.run_(self._claimed(side, message_id, text, None, within=CRASH_S))
        self._held(message_id, crashed, text)
        message.holder = None
        while not self._has_finished(1 - side):  # until the lease is over, some 30 ms
            pass
        with pytest.raises(ConflictError) as refused:
            self.run_(self._committed(side, crashed, "pass", text))
        assert refused.value.kind == "run_closed"

    def _has_finished(self, side: int) -> bool:
        try:
            self.finish(side)
        except ConflictError as exc:
            assert exc.kind == "in_progress"  # noqa: PT017 - the caller asks again
            return False
        return True

    @precondition(lambda self: self.stale)
    @rule(side=SIDES, decision=DECISIONS)
    def commit_too_late(self, side: int, decision: str) -> None:
        with pytest.raises(ConflictError):
            self.run_(self._committed(side, self.stale[-1], decision, "late"))
        self.run_(self.sides[side].release(self.stale[-1]))

    @rule(side=SIDES)
    def finish(self, side: int) -> None:
        if any(one.waiters for one in self.messages.values()):
            return
        finishing = self.sides[side].finish("default", "{r}")
        if any(one.holder for one in self.messages.values()):
            with pytest.raises(ConflictError) as refused:
                self.run_(finishing)
            assert refused.value.kind == "in_progress"
        elif not self.order:
            with pytest.raises(NotFoundError):
                self.run_(finishing)
        else:
            finished = self.run_(finishing)
            self.is_closed = True
            kept = [id_ for id_ in self.order if self._of(id_).has_passed]
            assert list(finished.retained_ids) == kept
            counts = self._counts()
            is_due = counts["rejected"] > 0 and len(kept) < min(POLICY.gamma, counts["messages"])
            assert finished.fallback is is_due

    @precondition(lambda self: self.order and not any(m.waiters for m in self.messages.values()))
    @rule(side=SIDES)
    def delete(self, side: int) -> None:
        self.run_(self.sides[side].delete("default", "{r}"))
        self.stale += [one.holder for one in self.messages.values() if one.holder]
        self._forget()
        left = self.run_(self.clients[0].keys("*"))
        assert all(key.endswith(":depths") for key in left), left

    @invariant()
    def the_run_shows_what_was_committed(self) -> None:
        viewing = self.sides[0].view("default", "{r}")
        if not self.order:
            with pytest.raises(NotFoundError):
                self.run_(viewing)
            return
        view = self.run_(viewing)
        assert view.closed is self.is_closed
        counts = {name: getattr(view.run, name) for name in ("messages", "retained", "rejected")}
        assert counts == self._counts()
        shown = [
            (one.message_id, [attempt.decision for attempt in one.attempts])
            for one in view.messages
        ]
        assert shown == [
            (id_, [decision for _, decision, _ in self._of(id_).decided])
            for id_ in self.order
            if self._of(id_).decided
        ]

    def _counts(self) -> dict[str, int]:
        ends = [one.decided[-1][1] for one in self.messages.values() if one.decided]
        return {
            "messages": len(ends),
            "retained": ends.count("pass"),
            "rejected": ends.count("reject"),
        }

    def teardown(self) -> None:
        for message in self.messages.values():
            for waiter in message.waiters:
                waiter.cancel()
            if message.waiters:
                self.run_(asyncio.wait(message.waiters))
        stray = self.run_(stray_keys(self.clients[0]))
        for client in self.clients:
            self.run_(client.aclose())
        self.loop.close()
        assert not stray, f"left without an expiry: {stray}"


def test_attempts_follow_the_rules_in_any_order(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rectifier.runs.LEASE_MARGIN_S", MARGIN_S)
    monkeypatch.setattr(AttemptRules, "url", redis_url)
    run_state_machine_as_test(
        AttemptRules,
        settings=settings(
            max_examples=30,
            stateful_step_count=25,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
