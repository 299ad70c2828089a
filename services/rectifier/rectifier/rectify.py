"""The gatekeeper: one message of a run, from claim to committed decision."""

import asyncio
import hashlib
from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from rectifier.audit import Audit, Auditor
from rectifier.case import Case
from rectifier.decision import Decision, Ruling, decide
from rectifier.metrics import Metrics
from rectifier.runs import Answered, Claim, MessageRef, RunCounts, Runs
from rectifier.verdict import Reason
from rectifier_core.chat import Usage
from rectifier_core.deadline import Deadline
from rectifier_core.errors import DeadlineError
from rectifier_core.indicator import IndicatorId
from rectifier_core.shielded import to_its_end


@dataclass(frozen=True, slots=True)
class RectifyAnswer:
    """The answer to one attempt.

    Attributes:
        decision: What the host is to do: broadcast, ask the agent again, or prune.
        reason: Why.
        would_be: What the decision would have been, pass or retry, where the policy, the run or an
            indicator that is violated is in shadow.
        would_feedback: In shadow, the feedback that would have been given.
        attempt: Which attempt this was, from 0.
        retries_left: How often the agent may still try.
        feedback: For the agent; null unless it is to try again or was pruned.
        audit: The audit behind the decision.
        run: The run's counts; null where nothing is kept.
    """

    decision: Decision
    reason: Reason
    would_be: Decision | None
    would_feedback: str | None
    attempt: int
    retries_left: int
    feedback: str | None
    audit: Audit
    run: RunCounts | None = None


NO_PROGRESS_FEEDBACK = (
    "The text did not change after the feedback, so its objections stand and the message is pruned."
)

NO_PROGRESS = Ruling(Decision.REJECT, Reason.NO_PROGRESS)
NO_PROGRESS_IN_SHADOW = Ruling(Decision.PASS, Reason.SHADOW, Decision.RETRY)

ANSWER: TypeAdapter[RectifyAnswer] = TypeAdapter(RectifyAnswer)
AUDIT: TypeAdapter[Audit] = TypeAdapter(Audit)


@dataclass(frozen=True, slots=True)
class Turn:
    """One attempt at one message of a run.

    Attributes:
        case: What is to be audited.
        run_id: The run; None where nothing is kept.
        message_id: Names the output across its attempts.
        attempt: As the caller counts, or None for the next.
        expected_messages: How many messages the run will have, where that is known.
        fallback_of: The run that this one repeats unpruned.
    """

    case: Case
    run_id: str | None = None
    message_id: str | None = None
    attempt: int | None = None
    expected_messages: int | None = None
    fallback_of: str | None = None


class Gatekeeper:
    """Gates messages: claims the attempt, audits it, commits the decision."""

    def __init__(self, auditor: Auditor, runs: Runs, metrics: Metrics) -> None:
        self._auditor = auditor
        self._runs = runs
        self._metrics = metrics

    async def rectify(self, turn: Turn, *, deadline: Deadline) -> bytes:
        """Return the answer as JSON; a repeated request gets the stored one, byte for byte.

        Raises:
            ConflictError: The attempt, message or run does not take it.
            DeadlineError: The deadline passed; nothing is decided.
            UnavailableError: Redis is away, or there is no verdict and the policy wants an error.
        """
        if turn.run_id is None:
            return await self._unkept(turn, deadline)
        ref = MessageRef(turn.case.tenant, turn.run_id, turn.message_id or "")
        claim = await self._runs.claim(
            ref,
            content_hash=turn.case.message.content_hash,
            attempt=turn.attempt,
            task_hash=hashlib.sha256(turn.case.task.encode()).hexdigest(),
            fallback_of=turn.fallback_of,
            pool=",".join(turn.case.pools or ()),
            deadline=deadline,
        )
        if isinstance(claim, Answered):
            return claim.answer
        try:
            return await self._decided(turn, claim, deadline)
        except BaseException:
            # Also on cancellation: a client that hung up must not hold the message.
            await to_its_end(self._runs.release(claim))
            raise

    async def _unkept(self, turn: Turn, deadline: Deadline) -> bytes:
        attempt = turn.attempt or 0
        audit = await self._auditor.audit(replace(turn.case, attempt=attempt), deadline=deadline)
        ruling = decide(
            audit.verdict,
            audit.reason,
            attempt=attempt,
            policy=turn.case.policy,
            in_shadow=turn.case.policy.mode == "shadow",
            would_fail=audit.would_feedback is not None,
        )
        self._metrics.audit(audit)
        self._metrics.decision(ruling.decision, ruling.reason)
        return ANSWER.dump_json(_answer(turn, audit, ruling, attempt))

    async def _decided(self, turn: Turn, claim: Claim, deadline: Deadline) -> bytes:
        in_shadow = claim.in_shadow or turn.case.policy.mode == "shadow"
        before = None if claim.previous is None else AUDIT.validate_json(claim.previous)
        if before is not None and claim.is_unchanged and not turn.case.message.is_empty:
            ruling = NO_PROGRESS_IN_SHADOW if in_shadow else NO_PROGRESS
            feedback = before.feedback if in_shadow else NO_PROGRESS_FEEDBACK
            # The findings stand; what they cost was told with the attempt before.
            audit = replace(before, feedback=feedback, usage=Usage(), timing_ms={})
        else:
            again = before.violated_ids if before is not None else ()
            case = replace(
                turn.case,
                attempt=claim.attempt,
                again=tuple(IndicatorId(found) for found in again),
            )
            audit = await self._auditor.audit(case, deadline=deadline)
            ruling = decide(
                audit.verdict,
                audit.reason,
                attempt=claim.attempt,
                policy=turn.case.policy,
                in_shadow=in_shadow,
                would_fail=audit.would_feedback is not None,
            )
            self._metrics.audit(audit)
        try:
            async with asyncio.timeout(deadline.left()):
                committed = await self._commit(turn, claim, audit, ruling)
        except TimeoutError as exc:
            raise DeadlineError("the decision was not stored at the deadline") from exc
        self._metrics.decision(ruling.decision, ruling.reason)
        return committed

    async def _commit(self, turn: Turn, claim: Claim, audit: Audit, ruling: Ruling) -> bytes:
        answer = _answer(turn, audit, ruling, claim.attempt)
        opened = ANSWER.dump_json(answer, exclude={"run"})[:-1]
        record = {
            "agent": turn.case.message.agent,
            "reason": ruling.reason,
            "verdict": audit.verdict,
            "pass_rate": audit.pass_rate,
            "feedback": answer.feedback,
        }
        return await self._runs.commit(
            claim,
            decision=ruling.decision.value,
            answer=opened,
            record=record,
            previous=AUDIT.dump_json(audit),
            expected_messages=turn.expected_messages,
            policy=turn.case.policy,
            task=turn.case.task,
            message=turn.case.message,
        )


def _answer(turn: Turn, audit: Audit, ruling: Ruling, attempt: int) -> RectifyAnswer:
    in_shadow = ruling.would_be is not None
    feedback = None if ruling.decision is Decision.PASS else audit.feedback
    return RectifyAnswer(
        decision=ruling.decision,
        reason=ruling.reason,
        would_be=ruling.would_be,
        would_feedback=(audit.would_feedback or audit.feedback) if in_shadow else None,
        attempt=attempt,
        retries_left=_retries_left(turn, ruling, attempt),
        feedback=feedback,
        audit=audit,
    )


def _retries_left(turn: Turn, ruling: Ruling, attempt: int) -> int:
    is_open = ruling.decision is Decision.RETRY
    return max(turn.case.policy.max_retries - attempt, 0) if is_open else 0
