"""A snapshot: every indicator of a process in memory, searched by meaning and by word.

Fusion is by reciprocal rank: score(i) = sum over rankings r of w_r / (k + rank_r(i)), k = 60.
Source: Cormack, Clarke and Buettcher, Reciprocal Rank Fusion Outperforms Condorcet and Individual
Rank Learning Methods, SIGIR 2009.

Words are scored by BM25. Source: Robertson and Zaragoza, The Probabilistic Relevance Framework:
BM25 and Beyond, 2009; the idf of Lucene, ln(1 + (N - n + 0.5) / (n + 0.5)).
"""

import logging
import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import bm25s  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from rectifier_core.embedding import Vectors
from rectifier_core.indicator import Indicator, IndicatorId, Mode, Status
from rectifier_core.store import StoredIndicator
from rectifier_core.words import words

Ranking = Literal["hybrid", "trigger", "meaning", "words"]

RRF_K = 60
# The text behind a definition vector ends with the trigger condition, which so counts already.
TRIGGER_WEIGHT = 0.5
DEPTH = 256  # how far down a ranking an indicator still scores; a long tail only adds cost
# Saturates early and hardly favours short texts: indicators are short and repeat themselves.
BM25_K1, BM25_B = 0.9, 0.4
DECIMALS = 6  # of a cosine; what differs below is rounding, and equal texts must tie
NOWHERE = np.float32(-np.inf)  # the score of what a ranking does not hold

Rows = NDArray[np.intp]
Scores = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Hit:
    """An indicator that was found.

    Attributes:
        indicator: The indicator.
        score: What it was ranked by, higher is better: a sum of reciprocal ranks (``hybrid``,
            ``meaning``), a cosine in [-1, 1] (``trigger``) or BM25 (``words``).
        definition: Unit vector of its definition, by which `diversify` tells hits apart.
    """

    indicator: Indicator
    score: float
    definition: Vectors = field(repr=False, compare=False)


class Snapshot:
    """An immutable view of all indicators, of every tenant, pool and status.

    It is safe to search from several threads. A change makes a new snapshot.
    """

    def __init__(self, shelves: Mapping[str, "_Shelf"], *, dimension: int) -> None:
        """Use `build`."""
        self._shelves = shelves
        self._dimension = dimension

    @classmethod
    def build(cls, stored: Iterable[StoredIndicator], *, dimension: int) -> "Snapshot":
        """Return a snapshot of ``stored``. Takes about 50 us an indicator: call it in a thread.

        Args:
            stored: In any order; of equal ids in one tenant the last one counts.
            dimension: Length of every vector.

        Raises:
            ValueError: A vector has another length.
        """
        tenants: dict[str, dict[IndicatorId, StoredIndicator]] = defaultdict(dict)
        for one in stored:
            if one.trigger.shape != (dimension,) or one.definition.shape != (dimension,):
                raise ValueError(
                    f"a vector of indicator {one.indicator.id} is not {dimension} long"
                )
            tenants[one.indicator.tenant][one.indicator.id] = one
        shelves = {tenant: _Shelf(list(kept.values())) for tenant, kept in tenants.items()}
        return cls(shelves, dimension=dimension)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._dimension

    def pools(self, tenant: str) -> frozenset[str]:
        """Return the names of the tenant's pools that have an indicator."""
        shelf = self._shelves.get(tenant)
        return frozenset() if shelf is None else shelf.pools

    def __len__(self) -> int:
        return sum(len(shelf.indicators) for shelf in self._shelves.values())

    def get(self, ids: Sequence[IndicatorId], *, tenant: str) -> list[Indicator]:
        """Return those of the tenant's indicators that exist, in the order of ``ids``."""
        shelf = self._shelves.get(tenant)
        if shelf is None:
            return []
        return [shelf.indicators[shelf.row_of[i]] for i in ids if i in shelf.row_of]

    def among(
        self,
        *,
        tenant: str,
        pools: Collection[str] | None = None,
        status: Status | None = Status.ACTIVE,
        mode: Mode | None = None,
    ) -> list[Indicator]:
        """Return the indicators that a search with these filters looks through, by pool and id."""
        shelf = self._shelves.get(tenant)
        if shelf is None:
            return []
        return [shelf.indicators[row] for row in shelf.rows(pools, status, mode)]

    def search(
        self,
        vectors: Vectors | None,
        text: str,
        *,
        tenant: str,
        limit: int,
        pools: Collection[str] | None = None,
        ranking: Ranking = "hybrid",
        status: Status | None = Status.ACTIVE,
        mode: Mode | None = None,
    ) -> list[Hit]:
        """Return the best hits, best first, equal ones by id.

        Ranks are taken among the indicators that the filters leave. ``hybrid`` fuses the rankings
        by trigger vector, by definition vector and by word; ``meaning`` the first two. An indicator
        counts in a ranking by vector with its best rank over the pieces.

        Args:
            vectors: Unit vectors of the query's pieces, shape (pieces, dimension); None where
                there are none, then only words count.
            text: The whole query, for the words.
            tenant: Whose indicators.
            limit: Hits at most.
            pools: Their pools; None for all. A pool that does not exist is empty.
            ranking: What to rank by; ``trigger`` is the paper's cosine with trigger vectors alone.
            status: Only these; None for all.
            mode: Only these; None for all.

        Returns:
            At most ``limit`` hits; by words alone only those that share one.
        """
        shelf = self._shelves.get(tenant)
        if shelf is None or limit < 1:
            return []
        rows = shelf.rows(pools, status, mode)
        if not rows.size:
            return []
        scores = _scores(shelf, rows, vectors, text, ranking, depth=max(DEPTH, limit))
        found = [shelf.hit(rows[place], float(scores[place])) for place in _best(scores, limit)]
        return sorted(found, key=lambda hit: (-hit.score, hit.indicator.id))[:limit]

    def sample(
        self,
        seed: int | str | bytes,
        *,
        tenant: str,
        limit: int,
        pools: Collection[str] | None = None,
        status: Status | None = Status.ACTIVE,
        mode: Mode | None = None,
    ) -> list[Hit]:
        """Return ``limit`` different indicators, each as likely as any; their score is 0.

        The same seed over the same indicators gives the same sample.
        """
        shelf = self._shelves.get(tenant)
        if shelf is None:
            return []
        rows = shelf.rows(pools, status, mode)
        drawn = random.Random(seed).sample(range(rows.size), k=max(0, min(limit, rows.size)))  # noqa: S311 - no secret
        return [shelf.hit(rows[place], 0.0) for place in drawn]


def diversify(hits: Sequence[Hit], *, keep: int, lam: float = 0.7) -> list[Hit]:
    """Return ``keep`` of ``hits`` that are good and differ, in the order they are chosen.

    The next is the one with the largest lam * s - (1 - lam) * c, where s is its score scaled to
    [0, 1] over ``hits`` and c the largest cosine of its definition with one that was chosen.

    Args:
        hits: Best first; of equal ones the first is chosen.
        keep: How many at most.
        lam: Weight of the score in [0, 1].

    Source: Carbonell and Goldstein, The Use of MMR, Diversity-Based Reranking for Reordering
    Documents and Producing Summaries, SIGIR 1998.
    """
    if not hits or keep < 1:
        return []
    definitions = np.stack([hit.definition for hit in hits])
    likeness = np.round(definitions @ definitions.T, DECIMALS)
    worth = lam * _scaled(np.array([hit.score for hit in hits]))
    chosen = [int(worth.argmax())]
    while len(chosen) < min(keep, len(hits)):
        gain = worth - (1 - lam) * likeness[chosen].max(axis=0)
        gain[chosen] = -np.inf
        chosen.append(int(gain.argmax()))
    return [hits[i] for i in chosen]


class _Shelf:
    """One tenant's indicators by pool and id: a pool is one run of rows, so its matrix is a view.

    Words are weighed over the tenant's indicators: a score does not depend on the filter, and
    nothing is learnt of another tenant.
    """

    def __init__(self, stored: list[StoredIndicator]) -> None:
        stored.sort(key=lambda one: (one.indicator.pool, one.indicator.id))
        self.indicators = [one.indicator for one in stored]
        self.row_of = {indicator.id: row for row, indicator in enumerate(self.indicators)}
        self.trigger = _matrix(one.trigger for one in stored)
        self.definition = _matrix(one.definition for one in stored)
        self._pools = dict(_runs([indicator.pool for indicator in self.indicators]))
        self.pools = frozenset(self._pools)
        self._statuses = _codes([indicator.status for indicator in self.indicators], Status)
        self._modes = _codes([indicator.mode for indicator in self.indicators], Mode)
        self._words = _bm25([indicator.whole_text for indicator in self.indicators])

    def rows(self, pools: Collection[str] | None, status: Status | None, mode: Mode | None) -> Rows:
        """Return the rows that the filters leave, ascending."""
        if pools is None:
            rows = np.arange(len(self.indicators))
        else:
            runs = [np.arange(*self._pools[pool]) for pool in sorted(set(pools) & set(self._pools))]
            rows = np.concatenate(runs) if runs else np.arange(0)
        if status is not None:
            rows = rows[self._statuses[rows] == list(Status).index(status)]
        if mode is not None:
            rows = rows[self._modes[rows] == list(Mode).index(mode)]
        return rows

    def hit(self, row: int, score: float) -> Hit:
        return Hit(self.indicators[row], score, self.definition[row])

    def word_scores(self, text: str, rows: Rows) -> Scores:
        """Return BM25 of ``text`` for each of ``rows``, `NOWHERE` where no word is shared.

        Each word of the query counts once: what an agent repeats is its notation, not its subject.
        """
        if self._words is None:
            return np.full(rows.size, NOWHERE)
        ids = self._words.get_tokens_ids(list(dict.fromkeys(words(text))))
        scores = np.asarray(self._words.get_scores_from_ids(ids), dtype=np.float32)[rows]
        return np.where(scores > 0, scores, NOWHERE)


def _scores(
    shelf: _Shelf, rows: Rows, vectors: Vectors | None, text: str, ranking: Ranking, *, depth: int
) -> Scores:
    """Return one score for each of ``rows``, `NOWHERE` for what is not found at all."""
    queries = np.empty((0, 0), dtype=np.float32) if vectors is None else np.atleast_2d(vectors)
    if ranking == "words" or not len(queries):
        return shelf.word_scores(text, rows)
    by_trigger = _cosines(shelf.trigger, rows, queries)
    if ranking == "trigger":
        return np.asarray(by_trigger.max(axis=0))
    by_definition = _cosines(shelf.definition, rows, queries)
    fused = TRIGGER_WEIGHT * _reciprocal(by_trigger, depth) + _reciprocal(by_definition, depth)
    if ranking == "hybrid":
        fused += _reciprocal(shelf.word_scores(text, rows)[None], depth)
    return fused


def _cosines(matrix: Vectors, rows: Rows, queries: Vectors) -> Scores:
    """Return the cosine of each query (one a line) with each of ``rows``."""
    first, last = int(rows[0]), int(rows[-1])
    # Not a matrix product: that one wakes BLAS threads, which cost more than they save here, and
    # sums a row in another order where its neighbours change.
    cosines = np.ascontiguousarray(np.vecdot(matrix[first : last + 1, None, :], queries[None]).T)
    if rows.size != cosines.shape[1]:
        cosines = cosines[:, rows - first]
    return np.round(cosines, DECIMALS)


def _reciprocal(lines: Scores, depth: int) -> Scores:
    """Return 1 / (k + rank) for each column, its best rank over the lines; 0 beyond ``depth``.

    Equal scores rank in the order of their columns.
    """
    ranks = np.full(lines.shape[1], np.inf, dtype=np.float32)
    for scores in lines:
        places = _best(scores, depth)
        ordered = places[np.argsort(-scores[places], kind="stable")]
        ranks[ordered] = np.minimum(ranks[ordered], np.arange(1, ordered.size + 1))
    return np.asarray(1 / (RRF_K + ranks), dtype=np.float32)


def _best(scores: Scores, count: int) -> Rows:
    """Return, ascending, the places of the ``count`` best scores and of all that tie the last."""
    least = NOWHERE
    if scores.size > count:
        least = np.partition(scores, scores.size - count)[scores.size - count]
    return np.flatnonzero((scores >= least) & (scores > NOWHERE))


def _scaled(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = scores.min(), scores.max()
    if high == low:
        return np.ones_like(scores)
    return np.asarray((scores - low) / (high - low))


def _matrix(vectors: Iterable[Vectors]) -> Vectors:
    matrix = np.stack(list(vectors)).astype(np.float32, copy=False)
    matrix.flags.writeable = False
    return matrix


def _runs(pools: Sequence[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    start = 0
    for row, pool in enumerate(pools):
        if row + 1 == len(pools) or pools[row + 1] != pool:
            yield pool, (start, row + 1)
            start = row + 1


def _codes(values: Sequence[Any], kinds: Iterable[Any]) -> NDArray[np.int8]:
    code = {kind: number for number, kind in enumerate(kinds)}
    return np.array([code[value] for value in values], dtype=np.int8)


def _bm25(texts: Sequence[str]) -> Any:  # bm25s carries no types
    """Return the index, or None where no text has a word."""
    tokens = [words(text) for text in texts]
    if not any(tokens):
        return None
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it asks for every message on import
    index = bm25s.BM25(k1=BM25_K1, b=BM25_B, method="lucene")
    index.index(tokens, show_progress=False)
    return index
