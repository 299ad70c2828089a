"""How often a search finds an indicator of the task that a text solves: recall at 5, 10 and 20.

    python -m benchmarks.recall

The queries are the solutions of tests/core/solutions.txt, the indicators all 2,000 released ones,
the embedder is the packaged one, and a hit is any indicator that was mined from the same task.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.progress import track
from rich.table import Table

from rectifier_core.adapters.minilm import MiniLmEmbedder
from rectifier_core.pieces import pieces
from rectifier_core.snapshot import Ranking, Snapshot
from rectifier_core.store import StoredIndicator
from rectifier_core.vectors import with_vectors
from tests.support.embedding import indicator, solutions

RELEASED = (
    Path(__file__).resolve().parents[2] / "shared" / "data" / "indicators_released_math.jsonl"
)
TOPS = (5, 10, 20)
BATCH = 100


async def main() -> int:
    """Measure and print the table."""
    console = Console()
    if not RELEASED.is_file():
        console.print("nothing to measure: the shared data folder is not beside this checkout")
        return 0
    records = [json.loads(line) for line in RELEASED.read_text(encoding="utf-8").splitlines()]
    indicators = [indicator(one, pool="released", number=n) for n, one in enumerate(records)]
    task_of = {
        one.id: str(record["source"]["source_task_id"])
        for one, record in zip(indicators, records, strict=True)
    }
    stored: list[StoredIndicator] = []
    found = {ranking: dict.fromkeys(TOPS, 0) for ranking in get_args(Ranking)}
    queries = solutions()
    async with MiniLmEmbedder() as embedder:
        starts = range(0, len(indicators), BATCH)
        for start in track(starts, "embedding", console=console, disable=not console.is_terminal):
            stored += await with_vectors(indicators[start : start + BATCH], embedder)
        snapshot = Snapshot.build(stored, dimension=embedder.dimension)
        for task, text in queries.items():
            vectors = await embedder.embed(pieces(text).texts)
            for ranking, counts in found.items():
                hits = snapshot.search(
                    vectors, text, tenant="default", limit=max(TOPS), ranking=ranking
                )
                tasks = [task_of[hit.indicator.id] for hit in hits]
                for top in TOPS:
                    counts[top] += task in tasks[:top]
    table = Table(title=f"{len(queries)} queries over {len(stored):,} indicators")
    for heading in ("ranking", *(f"recall@{top}" for top in TOPS)):
        table.add_column(heading)
    for ranking, counts in found.items():
        table.add_row(ranking, *(f"{counts[top] / len(queries):.2f}" for top in TOPS))
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
