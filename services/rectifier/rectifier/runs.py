"""The state of runs in Redis: attempts are claimed before the judge is asked, committed after.

A run has four keys: its state with that of its messages, the order of the messages, the answers that
were given, and the contents. They stand under one hash tag, so that a script touches one cluster
slot, and expire together, a day after the last message. The scripts stand in ``lua/``.
"""

import hashlib
import json
import math
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from rectifier.policy import Policy
from rectifier.scripts import Script
from rectifier.waits import Waits
from rectifier_core.adapters.redis_client import translated
from rectifier_core.deadline import Deadline
from rectifier_core.errors import ConflictError, NotFoundError, StateError, UnavailableError
from rectifier_core.message import Message

TTL_S = 24 * 3600
LEASE_MARGIN_S = 1.0
RELEASE_S = 1.0  # seconds that giving a claim back may take
CONTENT_LIMIT = 16 * 1024 * 1024  # bytes of contents that a run keeps
OF_ATTEMPTS = frozenset({"hash", "record"})  # fields of the state that also name an attempt
RANKED_RUNS = 1_000
RANKED_AT_LEAST = 20
RANKS_TTL_S = 90 * 24 * 3600
TRAJECTORIES = "rectifier:trajectories"

CONFLICTS: Mapping[str, str] = {
    "run_closed": "the run is finished",
    "task_mismatch": "the run has another task",
    "fallback_mismatch": "the run began without that fallback_of",
    "message_closed": "the message has its final decision, on another text",
    "attempt_mismatch": "that is not the next attempt, nor a repeated one",
    "in_progress": "an attempt at this message is under way",
}

NUMBER_LIMIT = 1_000  # characters
_NUMBER = re.compile(r"[+-]?(?=\.?\d)(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?")


@dataclass(frozen=True, slots=True)
class MessageRef:
    """Names one message.

    Attributes:
        tenant: Whose run it is.
        run_id: The run, any text.
        message_id: The message within it, any text.
    """

    tenant: str
    run_id: str
    message_id: str


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to decide on one attempt; commit or release it.

    Attributes:
        ref: The message.
        attempt: Which attempt it is, from 0.
        fence: Tells this claim from a later one.
        is_unchanged: The text is that of the attempt before.
        in_shadow: The run repeats another one unpruned.
        previous: What was committed as ``previous`` with the attempt before; None at the first.
    """

    ref: MessageRef
    attempt: int
    fence: str
    is_unchanged: bool = False
    in_shadow: bool = False
    previous: str | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The attempt is decided already; this is the stored answer."""

    answer: bytes


@dataclass(frozen=True, slots=True)
class RunCounts:
    """What has become of a run's messages so far.

    Attributes:
        messages: Messages with at least one committed decision.
        retained: Of these, passed.
        rejected: Of these, pruned.
        fallback: Null until the run is finished; true earlier where it cannot be avoided.
    """

    messages: int
    retained: int
    rejected: int
    fallback: bool | None = None


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One committed attempt.

    Attributes:
        attempt: From 0.
        decision: pass, retry or reject.
        reason: Why.
        verdict: The audit's verdict.
        pass_rate: The audit's pass rate; null without a verdict.
        feedback: What the agent was told; null on pass, or where contents are not stored.
    """

    attempt: int
    decision: str
    reason: str
    verdict: str
    pass_rate: float | None = None
    feedback: str | None = None


@dataclass(frozen=True, slots=True)
class MessageView:
    """One message of a run.

    Attributes:
        message_id: Its id.
        agent: Who wrote it.
        decision: The last decision.
        attempts: All of them, in order.
    """

    message_id: str
    agent: str
    decision: str
    attempts: tuple[AttemptView, ...]


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as it stands.

    Attributes:
        run_id: Its id.
        closed: Whether it is finished.
        run: Its counts.
        messages: Those with a committed decision, in the order of their first attempt.
        rectification_depth: Mean attempts used a message, a rejected one counting max_retries + 1;
            null without messages. Source: AgentDropoutV2, arXiv 2602.23258, section 5.
        difficulty: Share in [0, 1] of the pool's last 1,000 finished runs that are less deep, ties
            counted half; null until the run is finished, and where the pool has fewer than 20.
        fallback_of: The run that this one repeats unpruned.
    """

    run_id: str
    closed: bool
    run: RunCounts
    messages: tuple[MessageView, ...]
    rectification_depth: float | None
    difficulty: float | None
    fallback_of: str | None


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished run.

    Attributes:
        run_id: Its id.
        retained_ids: Ids of the messages that passed, in order, for the decision maker.
        fallback: Whether the team is to run again unpruned: at least one message was rejected, and
            fewer than min(gamma, messages) were retained.
        run: Its counts.
    """

    run_id: str
    retained_ids: tuple[str, ...]
    fallback: bool
    run: RunCounts


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was made of a run's outcome.

    Attributes:
        correct: Whether the final answer is right; null where that is unknown.
        queued: Whether the run was queued as a trajectory to learn from.
        reason: Why it was not; null where it was.
        trajectory_id: Its id in the queue.
    """

    correct: bool | None
    queued: bool
    reason: str | None = None
    trajectory_id: str | None = None


class Runs:
    """Claims, commits and shows; every method raises StateError where Redis does not answer."""

    def __init__(self, redis: Redis, *, content: bool, ttl_s: int = TTL_S) -> None:
        """Keep the client.

        Args:
            redis: Opened and closed by the caller; it decodes responses.
            content: Whether tasks and texts are stored, and feedback is shown later. An answer is
                kept in any case, with what it quotes: it is owed to a repeated request.
            ttl_s: Seconds after the last message until a run is forgotten.
        """
        # redis-py types every reply as bytes or text; this client decodes.
        self._redis: Any = redis
        self._content = content
        self._ttl_ms = ttl_s * 1000
        self._claim = Script(redis, "claim")
        self._commit = Script(redis, "commit")
        self._release = Script(redis, "release")
        self._finish = Script(redis, "finish")
        self._outcome = Script(redis, "outcome")
        self._enqueue = Script(redis, "enqueue")
        self._dequeue = Script(redis, "dequeue")
        self._waits = Waits()

    async def check(self) -> None:
        """Return where Redis answers."""
        with translated():
            await self._redis.ping()

    async def claim(
        self,
        ref: MessageRef,
        *,
        content_hash: str,
        attempt: int | None,
        task_hash: str,
        deadline: Deadline,
        fallback_of: str | None = None,
        pool: str = "",
    ) -> Claim | Answered:
        """Claim an attempt, or return the answer that it has; wait for one that is under way.

        Args:
            ref: The message.
            content_hash: Tells texts apart.
            attempt: From 0, or None for the next.
            task_hash: Tells tasks apart; a run has one.
            deadline: When the claim expires, and how long an attempt under way is waited for.
            fallback_of: The run that a new run repeats.
            pool: The pool that a new run's difficulty is ranked in.

        Raises:
            ConflictError: Another text is under way (``in_progress``), ``attempt`` is neither the
                next nor a repeated one (``attempt_mismatch``), the message is decided on another
                text (``message_closed``), the run is finished (``run_closed``) or has another task
                (``task_mismatch``).
            DeadlineError: The attempt under way was not decided in time.
        """
        asked = attempt
        while True:
            fence = uuid.uuid4().hex
            lease_ms = math.ceil((deadline.left() + LEASE_MARGIN_S) * 1000)
            arguments: list[str | int] = [ref.message_id, content_hash]
            arguments += [-1 if asked is None else asked, task_hash, fence, lease_ms, self._ttl_ms]
            arguments += [fallback_of or "", pool]
            try:
                result = await self._claim(_keys(ref), arguments, deadline=deadline)
            except BaseException:
                # The script may have run all the same.
                await self._give_back(ref, fence)
                raise
            match result:
                case ["claim", number, unchanged, in_shadow, *rest]:
                    previous = rest[0] if rest else None
                    return Claim(ref, number, fence, bool(unchanged), bool(in_shadow), previous)
                case ["answer", answer]:
                    return Answered(answer.encode())
                case ["wait", number, holder, left_ms]:
                    await self._until_over(ref, holder, left_ms / 1000, deadline)
                    # What was waited for is the answer, also where it is not the last by now.
                    asked = number
                case ["conflict", "attempt_mismatch", _] if asked != attempt:
                    asked = attempt  # another text took that number meanwhile
                case ["conflict", "attempt_mismatch", expected]:
                    detail = f"{CONFLICTS['attempt_mismatch']}; the next is {expected}"
                    raise ConflictError("attempt_mismatch", detail)
                case _:
                    raise _conflict(result)

    async def commit(
        self,
        claim: Claim,
        *,
        decision: str,
        answer: bytes,
        record: Mapping[str, object],
        previous: bytes,
        policy: Policy,
        task: str,
        message: Message,
        expected_messages: int | None = None,
    ) -> bytes:
        """Store the decision and return the whole answer.

        A commit whose answer was lost with the connection is sent once more: it counts once.

        Args:
            claim: What was claimed.
            decision: pass, retry or reject.
            answer: The answer's JSON object without its closing brace; the counts are appended.
            record: What `view` shows of the attempt.
            previous: Handed to the next claim.
            policy: The effective policy.
            task: The run's task.
            message: The audited message.
            expected_messages: How many messages the run will have, where that is known.

        Raises:
            ConflictError: The claim expired and another one was made, or the run was finished.
        """
        kept = {**record, "decision": decision}
        content = ""
        if self._content:
            content = json.dumps(_content(message), ensure_ascii=False)
        else:
            kept["feedback"] = None
        arguments: list[str | int] = [claim.ref.message_id, claim.fence, decision, answer.decode()]
        arguments += [json.dumps(kept, ensure_ascii=False), previous.decode(), content]
        arguments += [policy.gamma, expected_messages or 0, policy.max_retries, self._ttl_ms]
        arguments += [task if self._content else "", CONTENT_LIMIT]
        try:
            result = await self._commit(_keys(claim.ref), arguments)
        except StateError as exc:
            if not isinstance(exc.__cause__, RedisConnectionError):
                raise
            result = await self._commit(_keys(claim.ref), arguments)
        self._waits.wake((claim.ref, claim.fence))
        if result[0] == "conflict":
            raise _conflict(result)
        committed: str = result[1]
        return committed.encode()

    async def release(self, claim: Claim) -> None:
        """Give a claim back undecided. A claim that was committed or lost is left alone.

        Raises nothing where Redis is away: the claim then ends with its lease.
        """
        await self._give_back(claim.ref, claim.fence)

    async def view(self, tenant: str, run_id: str) -> RunView:
        """Return a run as it stands.

        Raises:
            NotFoundError: There is none, or it expired.
        """
        run, messages = await self._read(tenant, run_id)
        views = tuple(_message_view(id_, fields) for id_, fields in messages)
        depth = _depth(messages)
        closed = "closed" in run
        difficulty = None
        if closed and depth is not None:
            difficulty = await self._difficulty(tenant, run.get("pool", ""), depth)
        return RunView(
            run_id=run_id,
            closed=closed,
            run=_counts(run),
            messages=views,
            rectification_depth=depth,
            difficulty=difficulty,
            fallback_of=run.get("fallback_of"),
        )

    async def finish(self, tenant: str, run_id: str) -> Finished:
        """Close a run; a second call answers the same.

        Raises:
            NotFoundError: There is none, or it expired.
            ConflictError: An attempt is under way (``in_progress``).
        """
        result = await self._finish(_run_keys(tenant, run_id), [])
        if result[0] == "missing":
            raise _missing(run_id)
        if result[0] == "conflict":
            raise _conflict(result)
        _, is_new, due, retained = result
        run, messages = await self._read(tenant, run_id)
        depth = _depth(messages)
        # A rerun in shadow asks no agent twice: its depth says nothing.
        if is_new and depth is not None and "fallback_of" not in run:
            await self._rank(tenant, run.get("pool", ""), depth)
        return Finished(run_id, tuple(retained), bool(due), _counts(run))

    async def outcome(
        self,
        tenant: str,
        run_id: str,
        *,
        final_answer: str,
        correct: bool | None = None,
        ground_truth: str | None = None,
    ) -> Outcome:
        """Record how a run ended, and queue a wrong one to be learnt from, once.

        Args:
            tenant: Whose run it is.
            run_id: The run.
            final_answer: What the team answered.
            correct: Whether that is right, where the caller knows: it decides.
            ground_truth: The reference; alone it decides where both are plain numbers.

        Raises:
            NotFoundError: There is none, or it expired.
            ConflictError: Another outcome is recorded, and it is known (``outcome_recorded``).
        """
        known = correct if correct is not None else _agrees(final_answer, ground_truth)
        digest = _digest([final_answer, known, ground_truth])
        state = _run_keys(tenant, run_id)[0]
        recorded = await self._outcome([state], [digest, int(known is not None)])
        if recorded == "missing":
            raise _missing(run_id)
        if recorded == "conflict":
            raise ConflictError("outcome_recorded", "another outcome of this run is recorded")
        if known is None:
            return Outcome(correct=None, queued=False, reason="the outcome is unknown")
        if known:
            return Outcome(correct=True, queued=False, reason="the run ended right")
        if not self._content:
            return Outcome(correct=False, queued=False, reason="contents are not stored")
        run, messages = await self._read(tenant, run_id)
        if not messages:
            return Outcome(correct=False, queued=False, reason="the run has no messages")
        if "is_cut" in run:
            reason = f"its contents are more than {CONTENT_LIMIT:,} bytes"
            return Outcome(correct=False, queued=False, reason=reason)
        trajectory_id = _trajectory_id(state, digest)
        contents = await self._contents(tenant, run_id)
        trajectory = _trajectory(trajectory_id, contents, messages, final_answer, ground_truth)
        await self._queue(trajectory, tenant=tenant, pool=run.get("pool", ""))
        with translated():
            kept = await self._redis.hget(state, "outcome")
        if kept != digest:  # deleted meanwhile, and what it queues with it
            await self._unqueue(trajectory_id)
            raise _missing(run_id)
        return Outcome(correct=False, queued=True, trajectory_id=trajectory_id)

    async def delete(self, tenant: str, run_id: str) -> None:
        """Remove a run and what it queued.

        Raises:
            NotFoundError: There is none, or it expired.
        """
        keys = _run_keys(tenant, run_id)
        with translated():
            digest = await self._redis.hget(keys[0], "outcome")
        if digest is not None:
            await self._unqueue(_trajectory_id(keys[0], digest))
        with translated():
            removed = await self._redis.delete(*keys)
        if not removed:
            raise _missing(run_id)

    async def _until_over(
        self, ref: MessageRef, holder: str, left_s: float, deadline: Deadline
    ) -> None:
        state = _keys(ref)[0]

        async def is_pending() -> bool:
            with translated():
                found = await self._redis.hget(state, f"fence:{ref.message_id}")
            return bool(found == holder)

        name = (ref, holder)
        await self._waits.until_over(name, is_pending, deadline=deadline, at_most=left_s)

    async def _give_back(self, ref: MessageRef, fence: str) -> None:
        with suppress(UnavailableError):
            arguments = [ref.message_id, fence]
            await self._release(_keys(ref), arguments, deadline=Deadline.after(RELEASE_S))
        self._waits.wake((ref, fence))

    async def _queue(self, trajectory: Mapping[str, object], *, tenant: str, pool: str) -> None:
        name = str(trajectory["id"])
        text = json.dumps(trajectory, ensure_ascii=False)
        fields = ["id", name, "tenant", tenant, "pool", pool, "trajectory", text]
        await self._enqueue(_queue_keys(name), [self._ttl_ms, *fields])

    async def _unqueue(self, trajectory_id: str) -> None:
        await self._dequeue(_queue_keys(trajectory_id), [])

    async def _read(
        self, tenant: str, run_id: str
    ) -> tuple[dict[str, str], list[tuple[str, dict[str, str]]]]:
        """Return the run's fields, and id and fields of its decided messages, in order."""
        state, order, *_ = _run_keys(tenant, run_id)
        with translated():
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.hgetall(state)
                pipe.lrange(order, 0, -1)
                fields, ids = await pipe.execute()
        if not fields:
            raise _missing(run_id)
        return _parted(fields, ids)

    async def _contents(self, tenant: str, run_id: str) -> dict[str, str]:
        with translated():
            found: dict[str, str] = await self._redis.hgetall(_run_keys(tenant, run_id)[3])
        return found

    async def _rank(self, tenant: str, pool: str, depth: float) -> None:
        key = _ranks_key(tenant, pool)
        with translated():
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.lpush(key, depth)
                pipe.ltrim(key, 0, RANKED_RUNS - 1)
                pipe.expire(key, RANKS_TTL_S)
                await pipe.execute()

    async def _difficulty(self, tenant: str, pool: str, depth: float) -> float | None:
        with translated():
            found = await self._redis.lrange(_ranks_key(tenant, pool), 0, -1)
        depths = [float(one) for one in found]
        if len(depths) < RANKED_AT_LEAST:
            return None
        below = sum(one < depth for one in depths)
        equal = sum(one == depth for one in depths)
        return (below + equal / 2) / len(depths)


def _run_keys(tenant: str, run_id: str) -> list[str]:
    # Ids are any text: hashed, they can neither collide nor close the hash tag.
    tag = f"rectifier:{{{_digest([tenant, run_id])[:40]}}}"
    return [f"{tag}:state", f"{tag}:order", f"{tag}:answers", f"{tag}:contents"]


def _keys(ref: MessageRef) -> list[str]:
    return _run_keys(ref.tenant, ref.run_id)


def _ranks_key(tenant: str, pool: str) -> str:
    return f"rectifier:{{{_digest([tenant, pool])[:40]}}}:depths"


def _queue_keys(trajectory_id: str) -> list[str]:
    # The stream's name is the mark's hash tag: both are in one slot.
    return [TRAJECTORIES, f"{{{TRAJECTORIES}}}:mark:{trajectory_id}"]


def _trajectory_id(state: str, digest: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{state}:{digest}"))


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _conflict(result: list[Any]) -> ConflictError:
    return ConflictError(result[1], CONFLICTS[result[1]])


def _missing(run_id: str) -> NotFoundError:
    return NotFoundError(f"there is no run {run_id!r}, or it expired")


def _counts(run: Mapping[str, str]) -> RunCounts:
    closed = run.get("closed")
    return RunCounts(
        messages=int(run.get("messages", 0)),
        retained=int(run.get("retained", 0)),
        rejected=int(run.get("rejected", 0)),
        fallback=None if closed is None else closed == "fallback",
    )


def _parted(
    fields: Mapping[str, str], ids: list[str]
) -> tuple[dict[str, str], list[tuple[str, dict[str, str]]]]:
    """Part the run's own fields from those of its messages, whose names end in the message's id."""
    run: dict[str, str] = {}
    messages: dict[str, dict[str, str]] = {id_: {} for id_ in ids}
    for field, value in fields.items():
        name, is_of_message, rest = field.partition(":")
        if not is_of_message:
            run[name] = value
            continue
        if name in OF_ATTEMPTS:
            number, _, rest = rest.partition(":")
            name = f"{name}:{number}"
        messages.setdefault(rest, {})[name] = value
    return run, [(id_, messages[id_]) for id_ in ids if "decided" in messages[id_]]


def _message_view(message_id: str, fields: Mapping[str, str]) -> MessageView:
    records = _records(fields)
    shown = ("decision", "reason", "verdict", "pass_rate", "feedback")
    attempts = tuple(
        AttemptView(number, **{name: record[name] for name in shown})
        for number, record in enumerate(records)
    )
    return MessageView(message_id, records[-1]["agent"], records[-1]["decision"], attempts)


# A record is what `commit` was given: JSON of our own.
def _records(fields: Mapping[str, str]) -> list[dict[str, Any]]:
    return [json.loads(fields[f"record:{number}"]) for number in range(int(fields["decided"]))]


def _depth(messages: list[tuple[str, dict[str, str]]]) -> float | None:
    if not messages:
        return None
    used = [
        int(fields["max_retries"]) + 1
        if _records(fields)[-1]["decision"] == "reject"
        else int(fields["decided"])
        for _, fields in messages
    ]
    return sum(used) / len(used)


def _content(message: Message) -> dict[str, object]:
    return {
        "agent": message.agent,
        "role": message.role,
        "content": message.content,
        "tool_calls": [
            {"name": call.name, "arguments": call.arguments} for call in message.tool_calls
        ],
    }


def _agrees(final_answer: str, ground_truth: str | None) -> bool | None:
    """Return whether two plain numbers are equal; None where one of them is none."""
    first, second = _number(final_answer), _number(ground_truth or "")
    return None if first is None or second is None else first == second


def _number(text: str) -> Decimal | None:
    plain = text.strip().replace("\N{MINUS SIGN}", "-")
    if len(plain) > NUMBER_LIMIT or not _NUMBER.fullmatch(plain):
        return None
    return Decimal(plain.replace(",", ""))


def _trajectory(
    trajectory_id: str,
    contents: Mapping[str, str],
    messages: list[tuple[str, dict[str, str]]],
    final_answer: str,
    ground_truth: str | None,
) -> dict[str, object]:
    """Return the run as a trajectory: every attempt a step, with what was decided on it."""
    steps: list[dict[str, object]] = []
    for message_id, fields in messages:
        for attempt, record in enumerate(_records(fields)):
            content = json.loads(contents.get(f"{attempt}:{message_id}", "{}"))
            decided = {"attempt": attempt, "decision": record["decision"]}
            steps.append({"index": len(steps), "message_id": message_id, **content, **decided})
    return {
        "schema": "neutral-trajectory/1",
        "id": trajectory_id,
        "failed": True,
        "question": contents.get("task", ""),
        "ground_truth": ground_truth,
        "final_answer": final_answer,
        "steps": steps,
    }
