"""The audit of one message: checks, retrieval, judge, gate, feedback."""

import asyncio
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from rectifier.checks.suite import CheckResult, check
from rectifier.feedback import EMPTY_MESSAGE_FEEDBACK, feedback
from rectifier.gate import gate
from rectifier.general import general_for
from rectifier.judge import Judge, Question
from rectifier.policy import Policy
from rectifier.verdict import Degraded, Finding, Judgement, Reason, Unsupported, Verdict
from rectifier_core.chat import Usage
from rectifier_core.deadline import Deadline
from rectifier_core.embedding import Embedder, Vectors
from rectifier_core.errors import EmbeddingError
from rectifier_core.indicator import DEFAULT_TENANT, Indicator, IndicatorId
from rectifier_core.message import Message
from rectifier_core.pieces import pieces
from rectifier_core.snapshot import Hit, Ranking, Snapshot, diversify
from rectifier_core.words import is_mostly_latin

EMBEDDING_TIMEOUT_S = 10.0
INLINE_CHECK_CHARS = 8_192
INLINE_SEARCH_SIZE = 10_000
QUERY_SHOWN_CHARS = 500
SHORTEST_ANSWER_S = 0.1
MS = 1_000
CONTEXT_CHARS = 32_000  # of earlier messages that the judge sees


class SnapshotSource(Protocol):
    """Where the current snapshot comes from."""

    @property
    def current(self) -> Snapshot:
        """The newest snapshot of the active indicators."""
        ...

    @property
    def is_stale(self) -> bool:
        """True where the store or Redis has not confirmed it for a while."""
        ...

    def version(self, pools: Sequence[str] | None) -> str:
        """Version of these pools (of all where None)."""
        ...


@dataclass(frozen=True, slots=True)
class Case:
    """What is to be audited, and how.

    Attributes:
        task: Q, the question or goal of the run.
        message: The output.
        policy: The effective policy.
        context: Earlier messages, newest last.
        message_schema: A JSON Schema that the content must satisfy, checked itself.
        pools: Where to look; None for every pool of the tenant.
        tenant: Whose indicators.
        attempt: From 0.
        again: Indicators that this message violated at the attempt before.
    """

    task: str
    message: Message
    policy: Policy
    context: tuple[str, ...] = ()
    message_schema: Mapping[str, Any] | None = None
    pools: tuple[str, ...] | None = None
    tenant: str = DEFAULT_TENANT
    attempt: int = 0
    again: tuple[IndicatorId, ...] = ()


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

    @property
    def violated_ids(self) -> tuple[str, ...]:
        """Ids of the findings that are violations."""
        return tuple(finding.indicator_id for finding in self.findings if finding.violated)


@dataclass(slots=True)
class _Clock:
    """Milliseconds spent in each stage."""

    spent: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.spent[name] = round((time.perf_counter() - began) * MS, 3)

    def total(self) -> dict[str, float]:
        return {**self.spent, "total": round((time.perf_counter() - self.began) * MS, 3)}


@dataclass(frozen=True, slots=True)
class _Query:
    """What is searched with.

    Attributes:
        text: All of it.
        texts: The parts that are embedded.
        usage: Cost of making it.
        degraded: What was missing or cut.
    """

    text: str
    texts: tuple[str, ...]
    usage: Usage = Usage()
    degraded: tuple[Degraded, ...] = ()


@dataclass(frozen=True, slots=True)
class _Found:
    """What retrieval brings to the judge.

    Attributes:
        hits: The candidates, nearest first.
        lineup: The indicators to ask.
        again: Those of them that were violated before.
        query: What was searched with; None where nothing was.
        usage: Cost so far.
        degraded: What was missing or cut.
    """

    hits: tuple[Hit, ...] = ()
    lineup: tuple[Indicator, ...] = ()
    again: frozenset[IndicatorId] = frozenset()
    query: str | None = None
    usage: Usage = Usage()
    degraded: tuple[Degraded, ...] = ()


class Auditor:
    """Audits messages. It holds no state of its own."""

    def __init__(
        self, *, judge: Judge | None, embedder: Embedder, snapshots: SnapshotSource
    ) -> None:
        self._judge = judge
        self._embedder = embedder
        self._snapshots = snapshots

    async def audit(self, case: Case, *, deadline: Deadline) -> Audit:
        """Audit one message.

        Raises:
            DeadlineError: The deadline passed before there was a verdict.
        """
        clock = _Clock()
        if case.message.is_empty:
            return self._empty(case, clock)
        text = case.message.audited_text
        with clock.stage("checks"):
            checked = await _checked(text, case)
        found = await self._retrieve(case, text, clock, deadline)
        with clock.stage("judge"):
            judgement = await self._judged(case, text, found, deadline)
        return self._concluded(case, checked, found, judgement, clock)

    def _empty(self, case: Case, clock: _Clock) -> Audit:
        return self._answer(
            case,
            clock,
            verdict=Verdict.INDETERMINATE,
            reason=Reason.EMPTY_MESSAGE,
            feedback_text=EMPTY_MESSAGE_FEEDBACK,
        )

    async def _retrieve(self, case: Case, text: str, clock: _Clock, deadline: Deadline) -> _Found:
        """Find the candidates, and choose whom the judge is asked about."""
        policy = case.policy
        general = general_for(case.pools or (), case.task)
        snapshot = self._snapshots.current
        if policy.retrieval == "general":
            return _Found(lineup=(general,))
        if policy.retrieval == "random":
            hits = tuple(
                snapshot.sample(
                    case.message.content_hash,
                    tenant=case.tenant,
                    pools=case.pools,
                    limit=policy.k_act,
                )
            )
            return _Found(hits, tuple(hit.indicator for hit in hits) or (general,))
        query = await self._query(case, text, clock, deadline)
        degraded = list(query.degraded)
        if not is_mostly_latin(query.text):
            degraded.append(Degraded.LANGUAGE)
        if self._snapshots.is_stale:
            degraded.append(Degraded.STORE_STALE)
        with clock.stage("embed"):
            vectors = await self._embedded(query.texts, deadline)
        if vectors is None:
            degraded.append(Degraded.EMBEDDING_UNAVAILABLE)
        with clock.stage("search"):
            hits = tuple(await _searched(snapshot, vectors, query.text, case))
        found = _Found(hits, query=query.text, usage=query.usage, degraded=tuple(degraded))
        return await self._lined_up(case, text, found, general, clock, deadline)

    async def _query(self, case: Case, text: str, clock: _Clock, deadline: Deadline) -> _Query:
        if case.policy.query == "keywords" and self._judge is not None:
            with clock.stage("keywords"):
                made = await self._judge.keywords(_question(case, text), deadline=deadline)
            return _Query(made.text, pieces(made.text).texts, made.usage, made.degraded)
        whole = f"{case.task}\n{text}"
        cut = pieces(whole)
        return _Query(whole, cut.texts, degraded=(Degraded.QUERY_CUT,) if cut.is_cut else ())

    async def _embedded(self, texts: Sequence[str], deadline: Deadline) -> Vectors | None:
        try:
            async with asyncio.timeout(deadline.left(at_most=EMBEDDING_TIMEOUT_S)):
                return await self._embedder.embed(texts)
        except (EmbeddingError, TimeoutError):
            deadline.left()
            return None

    async def _lined_up(
        self,
        case: Case,
        text: str,
        found: _Found,
        general: Indicator,
        clock: _Clock,
        deadline: Deadline,
    ) -> _Found:
        """Choose the indicators to ask among the candidates, as the policy says."""
        candidates = [hit.indicator for hit in found.hits]
        if self._judge is None or case.policy.audit == "none":
            return found
        match case.policy.select:
            case "same_call":
                # The judge chooses; what was violated before is asked again on top.
                before = self._snapshots.current.get(case.again, tenant=case.tenant)
                distinct = {one.id: one for one in (*before, *candidates, general)}
                return replace(
                    found,
                    lineup=tuple(distinct.values()),
                    again=frozenset(distinct) & frozenset(case.again),
                )
            case "rerank":
                with clock.stage("rerank"):
                    chosen = await self._judge.rerank(
                        _question(case, text), candidates, case.policy.k_act, deadline=deadline
                    )
                return replace(
                    found,
                    lineup=chosen.indicators or (general,),
                    usage=found.usage + chosen.usage,
                    degraded=(*found.degraded, *chosen.degraded),
                )
            case "none":
                return replace(found, lineup=tuple(candidates[: case.policy.k_act]) or (general,))

    async def _judged(
        self, case: Case, text: str, found: _Found, deadline: Deadline
    ) -> Judgement | None:
        if self._judge is None or case.policy.audit == "none":
            return None
        judgement = await self._judge.judge(
            _question(case, text),
            found.lineup,
            policy=case.policy,
            again=found.again,
            deadline=deadline,
        )
        if Degraded.JUDGE_UNAVAILABLE in judgement.degraded:
            # A judge that was only given too little time is the caller's deadline, no verdict.
            Deadline(deadline.at - SHORTEST_ANSWER_S).left()
        return judgement

    def _concluded(
        self,
        case: Case,
        checked: CheckResult,
        found: _Found,
        judgement: Judgement | None,
        clock: _Clock,
    ) -> Audit:
        degraded = [*found.degraded]
        if checked.is_cut:
            degraded.append(Degraded.CHECKS_CUT)
        if len(_newest(case.context)) < len(case.context):
            degraded.append(Degraded.CONTEXT_CUT)
        if judgement is None:
            if self._judge is None:
                degraded.append(Degraded.NO_JUDGE)
            judgement = Judgement()
            verdict, reason, rate = Verdict.PASS, Reason.NO_JUDGE, 1.0
            asked: tuple[str, ...] = ()
        else:
            degraded += judgement.degraded
            violated = sum(finding.violated for finding in judgement.findings)
            undecided = len(judgement.undecided)
            asked = (*(f.indicator_id for f in judgement.findings), *judgement.undecided)
            verdict, reason = gate(
                asked=len(asked), violated=violated, undecided=undecided, tau=case.policy.tau
            )
            rate = (len(asked) - violated) / len(asked) if asked else 0.0
        if checked.findings:
            # A violated check is proof, whatever tau says.
            verdict, reason = Verdict.FAIL, Reason.VIOLATED
            rate = rate if asked else 0.0
        findings = (*checked.findings, *judgement.findings)
        return self._answer(
            case,
            clock,
            verdict=verdict,
            reason=reason,
            pass_rate=None if verdict is Verdict.INDETERMINATE else rate,
            findings=findings,
            found=found,
            judgement=judgement,
            active=asked,
            degraded=tuple(dict.fromkeys(degraded)),
            feedback_text=_feedback(case, verdict, findings),
        )

    def _answer(
        self,
        case: Case,
        clock: _Clock,
        *,
        verdict: Verdict,
        reason: Reason,
        feedback_text: str | None,
        pass_rate: float | None = None,
        findings: tuple[Finding, ...] = (),
        found: _Found = _Found(),
        judgement: Judgement = Judgement(),  # noqa: B008 - frozen and empty
        active: tuple[str, ...] = (),
        degraded: tuple[Degraded, ...] = (),
    ) -> Audit:
        return Audit(
            audit_id=str(uuid.uuid4()),
            verdict=verdict,
            reason=reason,
            pass_rate=pass_rate,
            tau=case.policy.tau,
            findings=findings,
            unsupported=judgement.unsupported,
            feedback=feedback_text,
            retrieval=RetrievalAnswer(
                mode=case.policy.retrieval,
                query=found.query and found.query[:QUERY_SHOWN_CHARS],
                candidates=tuple(_candidate(hit) for hit in found.hits),
                active=active,
            ),
            policy=EffectivePolicy.of(case.policy),
            judge_model=judgement.model or None,
            pool_version=self._snapshots.version(case.pools),
            usage=found.usage + judgement.usage,
            timing_ms=clock.total(),
            degraded=degraded,
            agent=case.message.agent,
        )


async def _checked(text: str, case: Case) -> CheckResult:
    def checked() -> CheckResult:
        return check(text, task=case.task, context=case.context, message_schema=case.message_schema)

    return checked() if len(text) <= INLINE_CHECK_CHARS else await asyncio.to_thread(checked)


async def _searched(
    snapshot: Snapshot, vectors: Vectors | None, query: str, case: Case
) -> list[Hit]:
    def search() -> list[Hit]:
        hits = snapshot.search(
            vectors,
            query,
            tenant=case.tenant,
            pools=case.pools,
            limit=case.policy.k_cand,
            ranking=_ranking(case.policy, vectors),
        )
        keep = case.policy.mmr_k
        return diversify(hits, keep=keep) if keep else hits

    if len(snapshot) <= INLINE_SEARCH_SIZE:
        return search()
    return await asyncio.to_thread(search)


def _question(case: Case, text: str) -> Question:
    return Question(
        task=case.task,
        role=case.message.role,
        text=text,
        context=_newest(case.context),
        attempt=case.attempt,
    )


def _newest(context: Sequence[str]) -> tuple[str, ...]:
    """Return the newest messages, whole ones, that fit into `CONTEXT_CHARS` together."""
    left, kept = CONTEXT_CHARS, []
    for text in reversed(context):
        left -= len(text)
        if left < 0:
            break
        kept.append(text)
    return tuple(reversed(kept))


def _ranking(policy: Policy, vectors: Vectors | None) -> Ranking:
    if vectors is None:
        return "words"
    return "trigger" if policy.retrieval == "trigger" else "hybrid"


def _candidate(hit: Hit) -> Candidate:
    indicator = hit.indicator
    return Candidate(indicator.id, indicator.name, indicator.pool, round(hit.score, 6))


def _feedback(case: Case, verdict: Verdict, findings: Collection[Finding]) -> str | None:
    if verdict is not Verdict.FAIL:
        return None
    violated = [finding for finding in findings if finding.violated]
    return feedback(violated, attempt=case.attempt, max_attempts=case.policy.max_retries + 1)
