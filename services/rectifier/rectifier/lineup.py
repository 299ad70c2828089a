"""The line-up: which indicators the judge is asked about, found and chosen as the policy says."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rectifier.case import Case
from rectifier.clock import Clock
from rectifier.general import general_for
from rectifier.judge import Judge
from rectifier.policy import Policy
from rectifier.verdict import Degraded
from rectifier_core.chat import Usage
from rectifier_core.deadline import Deadline
from rectifier_core.embedding import Embedder, Vectors
from rectifier_core.errors import EmbeddingError
from rectifier_core.indicator import Indicator, IndicatorId, Mode
from rectifier_core.pieces import pieces
from rectifier_core.snapshot import Hit, Ranking, Snapshot, diversify
from rectifier_core.words import is_mostly_latin

EMBEDDING_TIMEOUT_S = 10.0
INLINE_SEARCH_SIZE = 10_000
SHADOW_LIMIT = 2  # indicators in shadow that are asked on top


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
class LineUp:
    """The indicators to ask, and how they were found.

    Attributes:
        indicators: To be asked; those in shadow among them.
        again: Ids of those that were violated before: they must be asked.
        shadow: Ids of those that are asked and not counted.
        hits: The candidates, nearest first.
        query: What was searched with; None where nothing was.
        usage: Cost of keywords and reranking.
        degraded: What was missing or cut.
        pool_version: Version of the pools that were searched; empty where none was.
    """

    indicators: tuple[Indicator, ...] = ()
    again: frozenset[IndicatorId] = frozenset()
    shadow: frozenset[IndicatorId] = frozenset()
    hits: tuple[Hit, ...] = ()
    query: str | None = None
    usage: Usage = Usage()
    degraded: tuple[Degraded, ...] = ()
    pool_version: str = ""


@dataclass(frozen=True, slots=True)
class _Query:
    """What is searched with: all of it, its parts that are embedded, what making it cost."""

    text: str
    texts: tuple[str, ...]
    usage: Usage = Usage()
    degraded: tuple[Degraded, ...] = ()


class Retriever:
    """Finds and chooses indicators. It holds no state of its own."""

    def __init__(
        self, *, judge: Judge | None, embedder: Embedder, snapshots: SnapshotSource
    ) -> None:
        """Keep the parts; ``judge`` makes keywords and reranks where a policy says so."""
        self._judge = judge
        self._embedder = embedder
        self._snapshots = snapshots

    async def line_up(self, case: Case, clock: Clock, *, deadline: Deadline) -> LineUp:
        """Return whom to ask about ``case``; the general indicator where nobody else applies.

        Raises:
            DeadlineError: The deadline passed.
        """
        match case.policy.retrieval:
            case "general":
                return LineUp((_general(case),))
            case "random":
                found = self._sampled(case)
            case "hybrid" | "trigger":
                found = await self._found(case, clock, deadline)
        if self._judge is None or case.policy.audit == "none":
            return found
        return await self._chosen(self._judge, case, found, clock, deadline)

    def _sampled(self, case: Case) -> LineUp:
        snapshot = self._snapshots.current
        drawn = snapshot.sample(
            case.message.content_hash, tenant=case.tenant, pools=case.pools, limit=len(snapshot)
        )
        hits = [hit for hit in drawn if not case.is_in_shadow(hit.indicator)]
        shadow = [hit for hit in drawn if case.is_in_shadow(hit.indicator)]
        return LineUp(
            indicators=tuple(_as_shadow(hit).indicator for hit in shadow[:SHADOW_LIMIT]),
            shadow=frozenset(hit.indicator.id for hit in shadow[:SHADOW_LIMIT]),
            hits=tuple(hits[: case.policy.k_act]),
            pool_version=self._snapshots.version(case.pools),
        )

    async def _found(self, case: Case, clock: Clock, deadline: Deadline) -> LineUp:
        query = await self._query(case, clock, deadline)
        degraded = list(query.degraded)
        if not is_mostly_latin(query.text):
            degraded.append(Degraded.LANGUAGE)
        if self._snapshots.is_stale:
            degraded.append(Degraded.STORE_STALE)
        with clock.stage("embed"):
            vectors = await self._embedded(query.texts, deadline)
        if vectors is None:
            degraded.append(Degraded.EMBEDDING_UNAVAILABLE)
        version = self._snapshots.version(case.pools)
        with clock.stage("search"):
            hits, shadow = await _searched(self._snapshots.current, vectors, query.text, case)
        return LineUp(
            indicators=tuple(hit.indicator for hit in shadow),
            shadow=frozenset(hit.indicator.id for hit in shadow),
            hits=tuple(hits),
            query=query.text,
            usage=query.usage,
            degraded=tuple(degraded),
            pool_version=version,
        )

    async def _query(self, case: Case, clock: Clock, deadline: Deadline) -> _Query:
        if case.policy.query == "keywords" and self._judge is not None:
            with clock.stage("keywords"):
                made = await self._judge.keywords(case.question, deadline=deadline)
            return _Query(made.text, pieces(made.text).texts, made.usage, made.degraded)
        whole = f"{case.task}\n{case.text}"
        cut = pieces(whole)
        return _Query(whole, cut.texts, degraded=(Degraded.QUERY_CUT,) if cut.is_cut else ())

    async def _embedded(self, texts: Sequence[str], deadline: Deadline) -> Vectors | None:
        try:
            async with asyncio.timeout(deadline.left(at_most=EMBEDDING_TIMEOUT_S)):
                return await self._embedder.embed(texts)
        except (EmbeddingError, TimeoutError):
            deadline.left()
            return None

    async def _chosen(
        self, judge: Judge, case: Case, found: LineUp, clock: Clock, deadline: Deadline
    ) -> LineUp:
        """Choose among the candidates; those in shadow stay on top."""
        candidates = [hit.indicator for hit in found.hits]
        general = _general(case)
        match case.policy.select:
            case "same_call":
                # The judge chooses; what was violated before is asked again on top.
                before = self._snapshots.current.get(case.again, tenant=case.tenant)
                asked = {one.id: one for one in (*before, *candidates, general)}
                found = replace(found, again=frozenset(asked) & frozenset(case.again))
                chosen = tuple(asked.values())
            case "rerank":
                with clock.stage("rerank"):
                    selection = await judge.rerank(
                        case.question, candidates, case.policy.k_act, deadline=deadline
                    )
                found = replace(
                    found,
                    usage=found.usage + selection.usage,
                    degraded=(*found.degraded, *selection.degraded),
                )
                chosen = selection.indicators or (general,)
            case "none":
                chosen = tuple(candidates[: case.policy.k_act]) or (general,)
        return replace(found, indicators=(*chosen, *found.indicators))


def _general(case: Case) -> Indicator:
    return general_for(case.pools or (), case.task)


async def _searched(
    snapshot: Snapshot, vectors: Vectors | None, query: str, case: Case
) -> tuple[list[Hit], list[Hit]]:
    """Return the candidates, and of those in shadow the nearest."""
    if len(snapshot) <= INLINE_SEARCH_SIZE:
        return _search(snapshot, vectors, query, case)
    return await asyncio.to_thread(_search, snapshot, vectors, query, case)


def _search(
    snapshot: Snapshot, vectors: Vectors | None, query: str, case: Case
) -> tuple[list[Hit], list[Hit]]:
    def search(mode: Mode | None, limit: int) -> list[Hit]:
        return snapshot.search(
            vectors,
            query,
            tenant=case.tenant,
            pools=case.pools,
            limit=limit,
            ranking=_ranking(case.policy, vectors),
            mode=mode,
        )

    wanted = case.policy.k_cand
    hits = search(None, wanted)
    shadow = [hit for hit in hits if case.is_in_shadow(hit.indicator)]
    if shadow:
        # They must not crowd out those that count.
        room = wanted + sum(hit.indicator.pool in case.shadow_pools for hit in shadow)
        hits = [one for one in search(Mode.ENFORCE, room) if not case.is_in_shadow(one.indicator)]
    keep = case.policy.mmr_k
    kept = diversify(hits[:wanted], keep=keep) if keep else hits[:wanted]
    return kept, [_as_shadow(hit) for hit in shadow[:SHADOW_LIMIT]]


def _as_shadow(hit: Hit) -> Hit:
    return replace(hit, indicator=replace(hit.indicator, mode=Mode.SHADOW))


def _ranking(policy: Policy, vectors: Vectors | None) -> Ranking:
    if vectors is None:
        return "words"
    return "trigger" if policy.retrieval == "trigger" else "hybrid"
