"""The parts of a running service, as requests use them."""

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from rectifier.audit import Auditor
from rectifier.configuration import Configuration
from rectifier.idempotency import Idempotency
from rectifier.live import LiveSnapshot
from rectifier.metrics import Metrics
from rectifier.rectify import Gatekeeper
from rectifier.runs import Runs
from rectifier_core.embedding import Embedder
from rectifier_core.pools import Pools
from rectifier_core.store import IndicatorStore


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that requests need, opened once.

    Attributes:
        auditor: Audits one message.
        gatekeeper: Gates one message of a run.
        runs: The state of runs.
        idempotency: Answers that were given under a key.
        pools: Every change of an indicator goes through it.
        store: The indicators.
        live: The snapshot that audits search.
        embedder: The embedding model.
        metrics: The process's series.
        preset: The preset of requests that name none.
        default_pools: The pools of requests that name none; empty for all.
        judge_model: The judge model; None where no endpoint is configured.
        configuration: Presets, and what pools set over them.
    """

    auditor: Auditor
    gatekeeper: Gatekeeper
    runs: Runs
    idempotency: Idempotency
    pools: Pools
    store: IndicatorStore
    live: LiveSnapshot
    embedder: Embedder
    metrics: Metrics
    preset: str
    default_pools: tuple[str, ...] = ()
    judge_model: str | None = None
    configuration: Configuration = field(default_factory=Configuration)


async def _parts(request: Request) -> Parts:
    # async, because FastAPI sends plain functions through a thread.
    parts: Parts = request.state.parts
    return parts


PartsOf = Annotated[Parts, Depends(_parts)]
