"""POST /rectify: gate one message of a run."""

from typing import Annotated

from fastapi import APIRouter, Body, Header, Request
from fastapi.responses import Response

from rectifier.examples import RECTIFY_EXAMPLES
from rectifier.hang_up import until_hang_up
from rectifier.parts import Parts, PartsOf
from rectifier.problems import documented
from rectifier.rectify import RectifyAnswer, Turn
from rectifier.routes.audit import case_of
from rectifier.wire import RectifyRequest, StrictRoute
from rectifier_core.deadline import Deadline
from rectifier_core.errors import InputError

router = APIRouter(tags=["rectify"], route_class=StrictRoute)

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=256,
        description="A repeated request with this key gets the first one's answer.",
    ),
]


@router.post(
    "/rectify",
    response_model=RectifyAnswer,
    responses=documented(400, 404, 408, 409, 413, 415, 422, 503, 504),
)
async def rectify(
    body: Annotated[RectifyRequest, Body(openapi_examples=RECTIFY_EXAMPLES)],
    request: Request,
    parts: PartsOf,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Gate one message: pass it on, let the agent try again with feedback, or prune it."""
    deadline = Deadline.after(body.deadline_ms / 1000)
    turn = turn_of(body, parts)

    async def gate() -> bytes:
        return await parts.gatekeeper.rectify(turn, deadline=deadline)

    if idempotency_key is None:
        answer = await until_hang_up(request, gate())
    else:
        once = parts.idempotency.once(
            gate,
            scope=(turn.case.tenant, "/rectify", body.run_id or ""),
            key=idempotency_key,
            body=await request.body(),
            deadline=deadline,
        )
        answer = await until_hang_up(request, once)
    return Response(answer, media_type="application/json")


def turn_of(body: RectifyRequest, parts: Parts) -> Turn:
    """Return the attempt that the request describes.

    Raises:
        InputError: ``run_id`` without ``message_id``, or fields that need a run.
    """
    if body.run_id is None:
        for name in ("message_id", "expected_messages", "fallback_of"):
            if getattr(body, name) is not None:
                raise InputError(f"{name} needs run_id", field="run_id")
    elif body.message_id is None:
        raise InputError("run_id needs message_id", field="message_id")
    return Turn(
        case=case_of(body, parts),
        run_id=body.run_id,
        message_id=body.message_id,
        attempt=body.attempt,
        expected_messages=body.expected_messages,
        fallback_of=body.fallback_of,
    )
