"""The audit of one message: checks, line-up, judge, gate, feedback."""

import asyncio
import uuid
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache

from rectifier.case import Case
from rectifier.checks.suite import CheckResult, check
from rectifier.clock import Clock
from rectifier.feedback import EMPTY_MESSAGE_FEEDBACK, feedback
from rectifier.gate import gate
from rectifier.judge import Judge
from rectifier.lineup import LineUp, Retriever, SnapshotSource
from rectifier.policy import Policy
from rectifier.verdict import Degraded, Finding, Judgement, Reason, Unsupported, Verdict
from rectifier_core.chat import Usage
from rectifier_core.deadline import Deadline
from rectifier_core.embedding import Embedder
from rectifier_core.snapshot import Hit

INLINE_CHECK_CHARS = 8_192
QUERY_SHOWN_CHARS = 500
SHORTEST_ANSWER_S = 0.1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A retrieved indicator.

    Attributes:
        indicator_id: Its id.
        name: Its name.
        pool: Its pool.
        score: What it was ranked by; comparable within one answer only.
    """

    indicator_id: str
    name: str
    pool: str
    score: float


@dataclass(frozen=True, slots=True)
class RetrievalAnswer:
    """What was retrieved, and how.

    Attributes:
        mode: How candidates were found.
        query: The beginning of the text that was searched with; null where nothing was.
        candidates: Nearest first.
        active: Ids of the indicators that were audited.
    """

    mode: str
    query: str | None
    candidates: tuple[Candidate, ...] = ()
    active: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """The policy that was applied, field by field, and its hash."""

    preset: str
    query: str
    retrieval: str
    k_cand: int
    mmr_k: int
    select: str
    k_act: int
    audit: str
    tau: float
    max_retries: int
    gamma: int
    on_indeterminate: str
    mode: str
    hash: str

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, policy: Policy) -> "EffectivePolicy":
        """Return the answer's form of ``policy``."""
        return cls(
            **{name: getattr(policy, name) for name in policy.__dataclass_fields__},
            hash=policy.hash,
        )


@dataclass(frozen=True, slots=True)
class Audit:
    """The answer to one audit.

    Attributes:
        audit_id: A UUID.
        verdict: What is said of the message.
        reason: Why.
        pass_rate: p = (k - v) / k over the active indicators; 1 or 0 where only checks ran; null
            where the verdict is indeterminate.
        tau: The threshold.
        findings: One for each active indicator with a verdict, and one for each violated check.
        unsupported: Accusations that do not count.
        feedback: Ready to give to the agent; null on pass.
        retrieval: What was retrieved.
        policy: The effective policy.
        judge_model: The model that answered; null where none did.
        pool_version: Version of the pools that were searched.
        usage: Cost of the judge model.
        timing_ms: Milliseconds a stage.
        degraded: What was missing or cut.
        agent: The agent's name, as it was sent.
        would_feedback: What the agent would be told if the indicators in shadow counted; null
            where that changes nothing.
    """

    audit_id: str
    verdict: Verdict
    reason: Reason
    pass_rate: float | None
    tau: float
    findings: tuple[Finding, ...]
    unsupported: tuple[Unsupported, ...]
    feedback: str | None
    retrieval: RetrievalAnswer
    policy: EffectivePolicy
    judge_model: str | None
    pool_version: str
    usage: Usage
    timing_ms: dict[str, float]
    degraded: tuple[Degraded, ...]
    agent: str = ""
    would_feedback: str | None = None

    @property
    def violated_ids(self) -> tuple[str, ...]:
        """Ids of the findings that are violations and count."""
        return tuple(
            finding.indicator_id
            for finding in self.findings
            if finding.violated and not finding.in_shadow
        )


@dataclass(frozen=True, slots=True)
class _Conclusion:
    """What findings amount to.

    Attributes:
        verdict: What is said of the message.
        reason: Why.
        pass_rate: See `Audit`.
        asked: Ids of the indicators that count.
        would_fail: Whether it would fail if those in shadow counted too, and does not without.
    """

    verdict: Verdict
    reason: Reason
    pass_rate: float | None
    asked: tuple[str, ...] = ()
    would_fail: bool = False


class Auditor:
    """Audits messages. It holds no state of its own."""

    def __init__(
        self, *, judge: Judge | None, embedder: Embedder, snapshots: SnapshotSource
    ) -> None:
        self._judge = judge
        self._snapshots = snapshots
        self._retriever = Retriever(judge=judge, embedder=embedder, snapshots=snapshots)

    async def audit(self, case: Case, *, deadline: Deadline) -> Audit:
        """Audit one message.

        Raises:
            DeadlineError: The deadline passed before there was a verdict.
        """
        clock = Clock()
        if case.message.is_empty:
            empty = _Conclusion(Verdict.INDETERMINATE, Reason.EMPTY_MESSAGE, pass_rate=None)
            return self._answer(case, clock, empty, LineUp(), Judgement(), (), ())
        with clock.stage("checks"):
            checked = await _checked(case)
        lineup = await self._retriever.line_up(case, clock, deadline=deadline)
        with clock.stage("judge"):
            judgement = await self._judged(case, lineup, deadline)
        degraded = [*lineup.degraded]
        if checked.is_cut:
            degraded.append(Degraded.CHECKS_CUT)
        if len(case.shown_context) < len(case.context):
            degraded.append(Degraded.CONTEXT_CUT)
        if self._judge is None:
            degraded.append(Degraded.NO_JUDGE)
        conclusion = _concluded(case, checked, lineup, judgement)
        judgement = judgement or Judgement()
        findings = (*checked.findings, *_marked(judgement.findings, lineup))
        degraded += judgement.degraded
        return self._answer(
            case, clock, conclusion, lineup, judgement, findings, tuple(dict.fromkeys(degraded))
        )

    async def _judged(self, case: Case, lineup: LineUp, deadline: Deadline) -> Judgement | None:
        if self._judge is None or case.policy.audit == "none":
            return None
        judgement = await self._judge.judge(
            case.question,
            lineup.indicators,
            policy=case.policy,
            again=lineup.again,
            deadline=deadline,
        )
        if Degraded.JUDGE_UNAVAILABLE in judgement.degraded:
            # A judge that was only given too little time is the caller's deadline, no verdict.
            Deadline(deadline.at - SHORTEST_ANSWER_S).left()
        return judgement

    def _answer(
        self,
        case: Case,
        clock: Clock,
        conclusion: _Conclusion,
        lineup: LineUp,
        judgement: Judgement,
        findings: tuple[Finding, ...],
        degraded: tuple[Degraded, ...],
    ) -> Audit:
        would_feedback = _feedback(case, findings) if conclusion.would_fail else None
        return Audit(
            audit_id=str(uuid.uuid4()),
            verdict=conclusion.verdict,
            reason=conclusion.reason,
            pass_rate=conclusion.pass_rate,
            tau=case.policy.tau,
            findings=findings,
            unsupported=judgement.unsupported,
            feedback=_feedback_on(conclusion, case, findings),
            retrieval=RetrievalAnswer(
                mode=case.policy.retrieval,
                query=lineup.query and lineup.query[:QUERY_SHOWN_CHARS],
                candidates=tuple(_candidate(hit) for hit in lineup.hits),
                active=conclusion.asked,
            ),
            policy=EffectivePolicy.of(case.policy),
            judge_model=judgement.model or None,
            pool_version=lineup.pool_version or self._snapshots.version(case.pools),
            usage=lineup.usage + judgement.usage,
            timing_ms=clock.total(),
            degraded=degraded,
            agent=case.message.agent,
            would_feedback=would_feedback,
        )


async def _checked(case: Case) -> CheckResult:
    def checked() -> CheckResult:
        return check(
            case.text, task=case.task, context=case.context, message_schema=case.message_schema
        )

    is_short = len(case.text) <= INLINE_CHECK_CHARS
    return checked() if is_short else await asyncio.to_thread(checked)


def _concluded(
    case: Case, checked: CheckResult, lineup: LineUp, judgement: Judgement | None
) -> _Conclusion:
    """Gate on the indicators that count; a violated check is proof, whatever tau says."""
    if judgement is None:
        verdict, reason, rate = Verdict.PASS, Reason.NO_JUDGE, 1.0
        asked: tuple[str, ...] = ()
        would_fail = False
    else:
        verdict, reason, rate, asked = _gated(case, judgement, without=lineup.shadow)
        would_fail = bool(lineup.shadow) and _gated(case, judgement, without=())[0] is Verdict.FAIL
    if checked.findings:
        verdict, reason, rate = Verdict.FAIL, Reason.VIOLATED, rate if asked else 0.0
    return _Conclusion(
        verdict,
        reason,
        pass_rate=None if verdict is Verdict.INDETERMINATE else rate,
        asked=asked,
        would_fail=would_fail and verdict is not Verdict.FAIL,
    )


def _gated(
    case: Case, judgement: Judgement, *, without: Collection[str]
) -> tuple[Verdict, Reason, float, tuple[str, ...]]:
    """Return verdict, reason, pass rate and the ids that counted."""
    decided = [one for one in judgement.findings if one.indicator_id not in without]
    undecided = [one for one in judgement.undecided if one not in without]
    asked = (*(one.indicator_id for one in decided), *undecided)
    violated = sum(one.violated for one in decided)
    verdict, reason = gate(
        asked=len(asked), violated=violated, undecided=len(undecided), tau=case.policy.tau
    )
    return verdict, reason, (len(asked) - violated) / len(asked) if asked else 0.0, asked


def _marked(findings: Collection[Finding], lineup: LineUp) -> tuple[Finding, ...]:
    if not lineup.shadow:
        return tuple(findings)
    return tuple(replace(one, in_shadow=one.indicator_id in lineup.shadow) for one in findings)


def _candidate(hit: Hit) -> Candidate:
    indicator = hit.indicator
    return Candidate(indicator.id, indicator.name, indicator.pool, round(hit.score, 6))


def _feedback_on(conclusion: _Conclusion, case: Case, findings: Collection[Finding]) -> str | None:
    if conclusion.reason is Reason.EMPTY_MESSAGE:
        return EMPTY_MESSAGE_FEEDBACK
    if conclusion.verdict is not Verdict.FAIL:
        return None
    return _feedback(case, [finding for finding in findings if not finding.in_shadow])


def _feedback(case: Case, findings: Collection[Finding]) -> str:
    violated = [finding for finding in findings if finding.violated]
    return feedback(violated, attempt=case.attempt, max_attempts=case.policy.max_retries + 1)
