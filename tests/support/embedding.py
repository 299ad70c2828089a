"""Embedding endpoints, embedded indicators and stored vectors for tests."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web

from rectifier_core.embedding import Embedder, Vectors
from rectifier_core.indicator import Indicator, IndicatorId
from rectifier_core.store import StoredIndicator

SOLUTIONS = Path(__file__).parents[1] / "core" / "solutions.txt"

Answer = Callable[[dict[str, Any]], web.Response]


@asynccontextmanager
async def endpoint(answer: Answer) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """Serve ``/v1/embeddings`` on loopback; yield its base URL and the requests it was sent."""
    requests: list[dict[str, Any]] = []

    async def handle(request: web.Request) -> web.Response:
        requests.append(json.loads(await request.text()))
        return answer(requests[-1])

    app = web.Application()
    app.router.add_post("/v1/embeddings", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", requests
    finally:
        await runner.cleanup()


def rows(vectors: Sequence[Sequence[float]], indexes: Sequence[int] | None = None) -> web.Response:
    """Answer with ``vectors``, numbered as ``indexes`` says."""
    numbers = range(len(vectors)) if indexes is None else indexes
    data = [
        {"object": "embedding", "index": index, "embedding": vector}
        for index, vector in zip(numbers, vectors, strict=True)
    ]
    return web.json_response({"object": "list", "data": data, "model": "m", "usage": {}})


def axis(position: int, *, dimension: int = 4) -> Vectors:
    """Return the unit vector along one axis."""
    vector = np.zeros(dimension, dtype=np.float32)
    vector[position] = 1
    return vector


def between(weight: float, *, dimension: int = 4) -> Vectors:
    """Return a unit vector whose cosine with axis 0 is ``weight``, the rest along axis 1."""
    vector = np.zeros(dimension, dtype=np.float32)
    vector[:2] = weight, (1 - weight**2) ** 0.5
    return vector


def solutions() -> dict[str, str]:
    """Return solution texts written for tests, by the id of the task that they solve."""
    blocks = SOLUTIONS.read_text(encoding="utf-8").split("@")[1:]
    return {task: text.strip() for task, text in (block.split("\n", 1) for block in blocks)}


def indicator(record: dict[str, Any], *, pool: str, number: int) -> Indicator:
    """Return the indicator of a record of the data files."""
    return Indicator(
        id=IndicatorId(f"{pool}-{number:04d}"),
        pool=pool,
        name=record["name"],
        definition=record["definition"],
        trigger_condition=record["trigger_condition"] or "",
        risk_alert=record["risk_alert"] or "",
    )


async def stored(indicators: Sequence[Indicator], embedder: Embedder) -> list[StoredIndicator]:
    """Return the indicators with their two vectors."""
    triggers = await embedder.embed([one.trigger_text for one in indicators])
    definitions = await embedder.embed([one.definition_text for one in indicators])
    return [
        StoredIndicator(one, trigger, definition)
        for one, trigger, definition in zip(indicators, triggers, definitions, strict=True)
    ]
