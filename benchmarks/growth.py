"""How search and rebuild of the snapshot grow with the number of indicators.

    python -m benchmarks.growth [--sizes 2000 20000 100000] [--searches 200]

Each size is measured in a process of its own, so that its memory is its own. Indicators are the
released ones, repeated with a few words changed; queries are real messages with their tasks, as an
audit searches with them (a vector for each piece, hybrid ranking, 20 candidates, one thread); vectors
come from the embedder without a model, 384 dimensions. Without the shared data folder both are made.

Recall compares the top 20 with a plain reference of the same formula: full sorts in float64, BM25
written out here. It is given for the formula as it stands, where an indicator scores down to a fixed
depth of a ranking, and for the formula without that depth
("uncut").
"""

import argparse
import asyncio
import json
import math
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.cost import stratified
from benchmarks.replay import DATA, agent_steps
from rectifier_core.embedding import Vectors
from rectifier_core.indicator import Indicator, IndicatorId
from rectifier_core.pieces import pieces
from rectifier_core.snapshot import (
    BM25_B,
    BM25_K1,
    DECIMALS,
    DEPTH,
    RRF_K,
    TRIGGER_WEIGHT,
    Snapshot,
)
from rectifier_core.store import StoredIndicator
from rectifier_core.testing.embedding import HashedEmbedder
from rectifier_core.vectors import with_vectors
from rectifier_core.words import words

RELEASED = DATA / "indicators_released_math.jsonl"
SIZES = (2_000, 20_000, 100_000)
DIMENSION = 384
SCORE_DECIMALS = 7
TOP = 20
COMPARED = 10  # queries whose top is compared with the reference
WARM_UP = 5
TENANT = "default"

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Query:
    """What is searched with.

    Attributes:
        vectors: Unit vectors, shape (pieces, dimension).
        text: The whole of it.
    """

    vectors: Vectors
    text: str


def measured(size: int, searches: int) -> dict[str, float]:
    """Return the figures of one size: seconds, milliseconds, MB, and recall in [0, 1]."""
    stored = asyncio.run(_stored(size))
    before_mb = _rss_mb()
    began = time.perf_counter(), time.process_time()
    snapshot = Snapshot.build(stored, dimension=DIMENSION)
    build_s, build_cpu_s = time.perf_counter() - began[0], time.process_time() - began[1]
    after_mb = _rss_mb()
    queries = asyncio.run(_queries(searches))
    for query in queries[:WARM_UP]:
        _search(snapshot, query)
    wall_ms, cpu_ms = [], []
    for query in queries:
        wall, cpu = time.perf_counter(), time.thread_time()
        _search(snapshot, query)
        wall_ms.append((time.perf_counter() - wall) * 1000)
        cpu_ms.append((time.thread_time() - cpu) * 1000)
    reference, compared = Reference(stored), queries[:: max(1, searches // COMPARED)]
    return {
        "build_s": build_s,
        "build_cpu_s": build_cpu_s,
        "p50_ms": _percentile(wall_ms, 50),
        "p99_ms": _percentile(wall_ms, 99),
        "cpu_p50_ms": _percentile(cpu_ms, 50),
        "cpu_p99_ms": _percentile(cpu_ms, 99),
        "recall": recall(snapshot, reference, compared, depth=DEPTH),
        "recall_without_depth": recall(snapshot, reference, compared, depth=size),
        "snapshot_mb": after_mb - before_mb,
        "rss_mb": after_mb,
    }


def recall(
    snapshot: Snapshot, reference: "Reference", queries: Sequence[Query], *, depth: int
) -> float:
    """Return the share of the reference's top 20 that the snapshot finds."""
    shares = []
    for query in queries:
        exact = reference.top(query, depth=depth)
        shares.append(len(exact & set(_search(snapshot, query))) / len(exact))
    return sum(shares) / len(shares)


class Reference:
    """Hybrid search as it is defined, without any shortcut."""

    def __init__(self, stored: Sequence[StoredIndicator]) -> None:
        """Count the words of every indicator."""
        self._ids = [one.indicator.id for one in stored]
        self._trigger = np.stack([one.trigger for one in stored]).astype(np.float64)
        self._definition = np.stack([one.definition for one in stored]).astype(np.float64)
        counted = [Counter(words(one.indicator.whole_text)) for one in stored]
        self._lengths = np.array([counts.total() for counts in counted])
        self._holders: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for row, counts in enumerate(counted):
            for word, count in counts.items():
                self._holders[word].append((row, count))

    def top(self, query: Query, *, depth: int) -> set[IndicatorId]:
        """Return the ids of the best; equal ones in the order of their ids.

        Args:
            query: What is searched with.
            depth: How far down a ranking an indicator scores.
        """
        fused = (
            TRIGGER_WEIGHT * self._by_meaning(self._trigger, query, depth)
            + self._by_meaning(self._definition, query, depth)
            + _reciprocal(self._by_word(query.text), depth)
        )
        # Scores that differ by rounding alone are equal.
        best = np.argsort(-np.round(fused, SCORE_DECIMALS), kind="stable")[:TOP]
        return {self._ids[place] for place in best}

    def _by_meaning(self, matrix: Scores, query: Query, depth: int) -> Scores:
        lines = np.round(matrix @ query.vectors.astype(np.float64).T, DECIMALS)
        best: Scores = np.max([_reciprocal(line, depth) for line in lines.T], axis=0)
        return best

    def _by_word(self, text: str) -> Scores:
        scores = np.zeros(len(self._ids))
        norm = BM25_K1 * (1 - BM25_B + BM25_B * self._lengths / self._lengths.mean())
        for word in self._holders.keys() & set(words(text)):
            rows, count = np.array(self._holders[word]).T
            idf = math.log(1 + (len(self._ids) - rows.size + 0.5) / (rows.size + 0.5))
            scores[rows] += idf * count / (count + norm[rows])
        return np.where(scores > 0, scores, -np.inf)


def _reciprocal(scores: Scores, depth: int) -> Scores:
    """Return 1 / (k + rank), 0 below the place ``depth`` and what ties it."""
    order = np.argsort(-scores, kind="stable")
    ranks = np.empty(scores.size)
    ranks[order] = np.arange(1, scores.size + 1)
    last = scores[order[min(depth, scores.size) - 1]]
    return np.where(np.isfinite(scores) & (scores >= last), 1 / (RRF_K + ranks), 0.0)


def _search(snapshot: Snapshot, query: Query) -> list[IndicatorId]:
    hits = snapshot.search(query.vectors, query.text, tenant=TENANT, limit=TOP)
    return [hit.indicator.id for hit in hits]


async def _stored(size: int) -> list[StoredIndicator]:
    """Return indicators whose texts differ, in ascending order of their ids."""
    texts = _texts()
    indicators = []
    for n in range(size):
        name, definition, condition = texts[n % len(texts)]
        lap = n // len(texts)
        mark = f" kind{lap} of case{n % 997}" if lap else ""
        indicators.append(
            Indicator(IndicatorId(f"i{n:06d}"), "grown", name, definition + mark, condition + mark)
        )
    return await with_vectors(indicators, HashedEmbedder(DIMENSION))


def _texts() -> list[tuple[str, str, str]]:
    if not RELEASED.is_file():
        return [
            (
                f"MADE_{n}",
                f"The agent confuses quantity{n} with quantity{n * 7 % 1999} of the task.",
                f"When the problem involves quantity{n} and a speed.",
            )
            for n in range(2_000)
        ]
    rows = [json.loads(line) for line in RELEASED.read_text(encoding="utf-8").splitlines()]
    return [(row["name"], row["definition"], row["trigger_condition"] or "") for row in rows]


async def _queries(count: int) -> list[Query]:
    """Return real messages with their tasks, or made ones."""
    if RELEASED.is_file():
        steps = stratified(agent_steps(DATA / "trajectories.jsonl"), count)
        asked = [f"{step.body['task']}\n{step.content}" for step in steps]
    else:
        texts = _texts()
        chosen = np.random.default_rng(2).integers(len(texts), size=(count, 3))
        asked = [" ".join(" ".join(texts[n]) for n in row) for row in chosen]
    embedder = HashedEmbedder(DIMENSION)
    return [Query(await embedder.embed(pieces(text).texts), text) for text in asked]


def _percentile(values: Sequence[float], percent: int) -> float:
    return float(np.percentile(values, percent))


def _rss_mb() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line) / 1024


def main() -> None:
    """Measure each size and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument("--alone", action="store_true", help="one size, in this process, as JSON")
    given = parser.parse_args()
    if given.alone:
        sys.stdout.write(json.dumps(measured(given.sizes[0], given.searches)) + "\n")
        return
    rows = {size: _in_a_process(size, given.searches) for size in given.sizes}
    console = Console()
    console.print(
        f"snapshot of {DIMENSION} dimensions, hybrid top {TOP}, {given.searches} searches"
    )
    console.print(
        "p50, p99 in ms; built (and CPU) in s; RSS after it, its growth, in MB",
        highlight=False,
    )
    table = Table("size", *_COLUMNS)
    for size, figures in rows.items():
        table.add_row(f"{size:,}", *(show(figures) for show in _COLUMNS.values()))
    console.print(table)


def _in_a_process(size: int, searches: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.growth", "--alone", "--sizes", str(size)]
    command += ["--searches", str(searches)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


_COLUMNS: dict[str, Callable[[dict[str, float]], str]] = {
    "p50": lambda row: f"{row['p50_ms']:.1f}",
    "p99": lambda row: f"{row['p99_ms']:.1f}",
    "CPU p99": lambda row: f"{row['cpu_p99_ms']:.1f}",
    "built": lambda row: f"{row['build_s']:.1f}",
    "CPU": lambda row: f"{row['build_cpu_s']:.1f}",
    "RSS": lambda row: f"{row['rss_mb']:.0f}",
    "grew": lambda row: f"+{row['snapshot_mb']:.0f}",
    "recall": lambda row: f"{row['recall']:.3f}",
    "uncut": lambda row: f"{row['recall_without_depth']:.3f}",
}


if __name__ == "__main__":
    main()
