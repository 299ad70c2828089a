"""The envelope round every request: its id, its media rules, one log line, the last safety net."""

import re
import time
import traceback
import uuid

import structlog
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rectifier.body import Body, too_large
from rectifier.metrics import Metrics
from rectifier.problems import http_problem, problem
from rectifier.wire import MAX_BODY_BYTES, MAX_IMPORT_BYTES

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
IMPORT_PATH = re.compile(r"/pools/[^/]*/indicators/import")

# What a browser can be led to by a name that an attacker owns has a dot and is no address.
FOREIGN_HOST = re.compile(r"(?!.*\.localhost$)(?=.*[a-z])[^\[\]]*\.[^\[\]]*", re.IGNORECASE)

log = structlog.get_logger()


class Envelope:
    """ASGI middleware, outermost."""

    def __init__(self, app: ASGIApp, *, body_timeout: float) -> None:
        """Wrap ``app``; ``body_timeout`` is in seconds."""
        self._app = app
        self._body_timeout = body_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request inside the envelope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = _request_id(headers.get("x-request-id"))
        scope["state"]["request_id"] = request_id
        metrics: Metrics = scope["state"]["parts"].metrics
        began, status = time.perf_counter(), 0
        is_head = scope["method"] == "HEAD"
        limit = MAX_IMPORT_BYTES if IMPORT_PATH.fullmatch(scope["path"]) else MAX_BODY_BYTES

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((b"x-request-id", request_id.encode()))
            elif is_head:
                message["body"] = b""
            await send(message)

        try:
            if refusal := _refusal(headers, limit):
                await http_problem(request_id, refusal)(scope, receive, send_marked)
            else:
                body = Body(receive, limit=limit, timeout=self._body_timeout)
                inner = {**scope, "method": "GET"} if is_head else scope
                await self._app(inner, body.receive, send_marked)
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
            metrics.request(scope["method"], status, seconds)
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


def _refusal(headers: Headers, limit: int) -> HTTPException | None:
    host = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
    if FOREIGN_HOST.fullmatch(host):
        return HTTPException(421, "the service answers to localhost and to addresses")
    if headers.get("content-encoding", "identity").lower() != "identity":
        return HTTPException(415, "no content encoding is accepted")
    length = headers.get("content-length", "")
    if length.isdecimal() and (len(length) > len(str(limit)) or int(length) > limit):
        return too_large(limit)
    return None
