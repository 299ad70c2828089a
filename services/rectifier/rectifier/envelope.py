"""The envelope round every request: its id, its media rules, one log line, the last safety net."""

import re
import time
import traceback
import uuid

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rectifier.metrics import Metrics
from rectifier.problems import problem

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

log = structlog.get_logger()


class Envelope:
    """ASGI middleware, outermost."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request inside the envelope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = _request_id(headers.get("x-request-id"))
        scope.setdefault("state", {})["request_id"] = request_id
        began, status = time.perf_counter(), 0

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((b"x-request-id", request_id.encode()))
            await send(message)

        try:
            if headers.get("content-encoding", "identity").lower() != "identity":
                detail = "no content encoding is accepted"
                refusal = problem(request_id, 415, "unsupported-media-type", detail)
                await refusal(scope, receive, send_marked)
            else:
                await self._app(scope, receive, send_marked)
        except Exception as error:  # noqa: BLE001 - the top: nothing may leave as a stack trace
            # Frames, not the text: an error's message may quote the request.
            log.error(  # noqa: TRY400 - log.exception would write the error's text
                "request_failed",
                request_id=request_id,
                kind=type(error).__name__,
                frames=[
                    f"{f.filename}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)
                ][-6:],
            )
            if not status:
                failure = problem(request_id, 500, "internal-error", "the service failed")
                await failure(scope, receive, send_marked)
        finally:
            seconds = time.perf_counter() - began
            self._metrics.request(scope["method"], status, seconds)
            log.info(
                "request",
                method=scope["method"],
                path=scope["path"][:200],
                status=status,
                ms=round(seconds * 1000, 1),
                request_id=request_id,
            )


def _request_id(given: str | None) -> str:
    return given if given and REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
