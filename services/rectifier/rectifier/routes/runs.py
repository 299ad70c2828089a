"""Runs: look at one, finish it, say how it ended, forget it."""

from typing import Annotated

from fastapi import APIRouter, Body, Path
from fastapi.responses import Response

from rectifier.parts import PartsOf
from rectifier.problems import documented
from rectifier.runs import Finished, Outcome, RunView
from rectifier.wire import OutcomeRequest, Strict, StrictRoute
from rectifier_core.errors import InputError
from rectifier_core.indicator import DEFAULT_TENANT

router = APIRouter(prefix="/runs", tags=["runs"], route_class=StrictRoute)

RunId = Annotated[str, Path(min_length=1, max_length=256, description="As /rectify was given it.")]


class FinishRequest(Strict):
    """Nothing; an empty object."""


@router.get("/{run_id}", responses=documented(404, 422, 503))
async def view(run_id: RunId, parts: PartsOf) -> RunView:
    """Show a run: its counts, its messages with their attempts, how hard it was."""
    return await parts.runs.view(DEFAULT_TENANT, _readable(run_id))


@router.post("/{run_id}/finish", responses=documented(400, 404, 409, 413, 415, 422, 503))
async def finish(
    run_id: RunId, parts: PartsOf, _: Annotated[FinishRequest | None, Body()] = None
) -> Finished:
    """Close a run: whose messages the decision maker reads, and whether to run again unpruned."""
    return await parts.runs.finish(DEFAULT_TENANT, _readable(run_id))


@router.post("/{run_id}/outcome", responses=documented(400, 404, 409, 413, 415, 422, 503))
async def outcome(run_id: RunId, body: OutcomeRequest, parts: PartsOf) -> Outcome:
    """Say how a run ended, even hours later; a wrong one is queued to be learnt from."""
    return await parts.runs.outcome(
        DEFAULT_TENANT,
        _readable(run_id),
        final_answer=body.final_answer,
        correct=body.correct,
        ground_truth=body.ground_truth,
    )


@router.delete("/{run_id}", status_code=204, responses=documented(404, 422, 503))
async def delete(run_id: RunId, parts: PartsOf) -> Response:
    """Forget a run, and what it queued."""
    await parts.runs.delete(DEFAULT_TENANT, _readable(run_id))
    return Response(status_code=204)


def _readable(run_id: str) -> str:
    if "\0" in run_id or "\ufffd" in run_id:
        raise InputError("a run id is readable text", field="run_id")
    return run_id
