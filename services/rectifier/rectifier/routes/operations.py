"""What operators ask: is it alive, is it ready, what are its figures."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from rectifier.parts import PartsOf
from rectifier_core.errors import RectifierError

router = APIRouter(tags=["operations"])

CHECK_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the service can do its work, dependency by dependency.

    Attributes:
        status: ``ready`` where every dependency that is required answers.
        dependencies: ``ok``, or the kind of failure, by name.
        judge: The judge model, or null where none is configured.
        snapshot_age_s: Seconds since the snapshot was last known to be current.
        indicators: Indicators in the snapshot.
    """

    status: Literal["ready", "unready"]
    dependencies: dict[str, str]
    judge: str | None
    snapshot_age_s: float
    indicators: int


@router.get("/livez", response_class=PlainTextResponse)
async def livez() -> str:
    """Answer as long as the event loop runs."""
    return "ok"


@router.get(
    "/readyz",
    response_model=Readiness,
    responses={503: {"model": Readiness, "description": "A dependency is away"}},
)
async def readyz(parts: PartsOf) -> Response:
    """Ask every dependency; 503 where one that is required does not answer."""
    names = ("store", "redis")
    results = await asyncio.gather(_asked(parts.store.check()), _asked(parts.runs.check()))
    dependencies = dict(zip(names, results, strict=True))
    is_ready = all(state == "ok" for state in results)
    body = {
        "status": "ready" if is_ready else "unready",
        "dependencies": dependencies,
        "judge": parts.judge_model,
        "snapshot_age_s": round(parts.live.age_s, 3),
        "indicators": len(parts.live.current),
    }
    return JSONResponse(body, 200 if is_ready else 503)


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(parts: PartsOf) -> Response:
    """Return the Prometheus series; rendered off the event loop."""
    parts.metrics.snapshot_age.set(parts.live.age_s)
    parts.metrics.snapshot_size.set(len(parts.live.current))
    text = await asyncio.to_thread(generate_latest, parts.metrics.registry)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


async def _asked(check: Coroutine[Any, Any, None]) -> str:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await check
    except (RectifierError, TimeoutError) as error:
        return type(error).__name__
    return "ok"
