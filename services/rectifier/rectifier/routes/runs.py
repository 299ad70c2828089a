"""Runs: look at one, finish it, say how it ended, forget it."""

from typing import Annotated

from fastapi import APIRouter, Body, Path
from fastapi.responses import Response
from starlette.convertors import Convertor, register_url_convertor

from rectifier.parts import PartsOf
from rectifier.problems import documented
from rectifier.runs import Finished, Outcome, RunView
from rectifier.wire import OutcomeRequest, Strict, StrictRoute
from rectifier_core.indicator import DEFAULT_TENANT

router = APIRouter(prefix="/runs", tags=["runs"], route_class=StrictRoute)


class _Text(Convertor[str]):
    """Any text: a run's id may hold slashes and line breaks."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("text", _Text())

RunId = Annotated[str, Path(min_length=1, max_length=256, description="As /rectify was given it.")]


class FinishRequest(Strict):
    """Nothing; an empty object."""


@router.get("/{run_id:text}", responses=documented(404, 422, 503))
async def view(run_id: RunId, parts: PartsOf) -> RunView:
    """Show a run: its counts, its messages with their attempts, how hard it was."""
    return await parts.runs.view(DEFAULT_TENANT, run_id)


@router.post("/{run_id:text}/finish", responses=documented(400, 404, 408, 409, 413, 415, 422, 503))
async def finish(
    run_id: RunId, parts: PartsOf, _: Annotated[FinishRequest | None, Body()] = None
) -> Finished:
    """Close a run: whose messages the decision maker reads, and whether to run again unpruned."""
    return await parts.runs.finish(DEFAULT_TENANT, run_id)


@router.post("/{run_id:text}/outcome", responses=documented(400, 404, 408, 409, 413, 415, 422, 503))
async def outcome(run_id: RunId, body: OutcomeRequest, parts: PartsOf) -> Outcome:
    """Say how a run ended, even hours later; a wrong one is queued to be learnt from."""
    return await parts.runs.outcome(
        DEFAULT_TENANT,
        run_id,
        final_answer=body.final_answer,
        correct=body.correct,
        ground_truth=body.ground_truth,
    )


@router.delete("/{run_id:text}", status_code=204, responses=documented(404, 422, 503))
async def delete(run_id: RunId, parts: PartsOf) -> Response:
    """Forget a run, and what it queued."""
    await parts.runs.delete(DEFAULT_TENANT, run_id)
    return Response(status_code=204)
