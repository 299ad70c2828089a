"""How much the hybrid ranking finds with the packaged model: floors over real indicators.

The queries are solutions that were written for these tests after what the indicators of 62 tasks
say; a hit is any indicator mined from the same task. The pool is cut to 500 indicators so that it
is embedded in seconds: the best 5 of 500 are about as hard to be among as the best 20 of 2,000.
Measured over all 2,000: 0.87 of the solutions at 20, and 0.97 of the starter pools' own examples.
"""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rectifier_core.adapters.minilm import MiniLmEmbedder
from rectifier_core.embedding import Vectors
from rectifier_core.indicator import IndicatorId
from rectifier_core.pieces import pieces
from rectifier_core.snapshot import Ranking, Snapshot
from rectifier_core.starter import starter_indicators
from tests.support.embedding import indicator, solutions, stored

SIZE = 500
TOP = 5


@dataclass(frozen=True)
class Query:
    """A text to search with.

    Attributes:
        text: The whole of it.
        right: What it ought to find: any of these.
        pools: Where.
        vectors: Of its pieces.
    """

    text: str
    right: frozenset[IndicatorId]
    pools: tuple[str, ...]
    vectors: Vectors


@dataclass(frozen=True)
class Bench:
    """A snapshot of released and starter indicators, and queries for both."""

    snapshot: Snapshot
    solutions: list[Query]
    examples: list[Query]

    def recall(self, queries: list[Query], *, ranking: Ranking = "hybrid", top: int = TOP) -> float:
        """Return the share of ``queries`` with a hit among the first ``top``."""
        found = 0
        for query in queries:
            hits = self.snapshot.search(
                query.vectors,
                query.text,
                tenant="default",
                pools=query.pools,
                limit=top,
                ranking=ranking,
            )
            found += any(hit.indicator.id in query.right for hit in hits)
        return found / len(queries)


@pytest.fixture(scope="module")
def bench(shared: Path) -> Bench:
    lines = (shared / "data" / "indicators_released_math.jsonl").read_text(encoding="utf-8")
    return asyncio.run(_bench([json.loads(line) for line in lines.splitlines()]))


async def _bench(records: list[dict[str, Any]]) -> Bench:
    solved = solutions()
    task_of = [str(record["source"]["source_task_id"]) for record in records]
    kept = sorted(range(len(records)), key=lambda n: task_of[n] not in solved)[:SIZE]
    released = {n: indicator(records[n], pool="released", number=n) for n in kept}
    starter = starter_indicators()
    asked = [
        (text, {released[n].id for n in kept if task_of[n] == task}, ("released",))
        for task, text in solved.items()
    ] + [
        (f"{example.task}\n{example.message}", {one.id}, ("released", one.pool))
        for one in starter
        for example in one.examples
        if example.violated
    ]
    parts = [pieces(text).texts for text, _, _ in asked]
    async with MiniLmEmbedder() as embedder:
        entries = await stored([*released.values(), *starter], embedder)
        vectors = iter(await embedder.embed([piece for part in parts for piece in part]))
    queries = [
        Query(text, frozenset(right), pools, np.stack([next(vectors) for _ in part]))
        for (text, right, pools), part in zip(asked, parts, strict=True)
    ]
    built = Snapshot.build(entries, dimension=embedder.dimension)
    return Bench(built, queries[: len(solved)], queries[len(solved) :])


@pytest.mark.timeout(120)
def test_solution_finds_an_indicator_of_its_task(bench: Bench) -> None:
    assert all(query.right for query in bench.solutions)
    assert bench.recall(bench.solutions) >= 0.77


def test_fusion_finds_more_than_its_parts(bench: Bench) -> None:
    parts: tuple[Ranking, ...] = ("trigger", "meaning", "words")
    hybrid = bench.recall(bench.solutions)
    assert all(hybrid > bench.recall(bench.solutions, ranking=part) for part in parts)


def test_starter_indicator_is_found_by_its_own_example(bench: Bench) -> None:
    assert bench.recall(bench.examples, top=20) >= 0.95
