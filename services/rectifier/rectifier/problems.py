"""Problem documents (RFC 9457): every error that leaves the service, decided in one table."""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from rectifier.wire import UNKNOWN_FIELD, FieldError
from rectifier_core.errors import (
    ConflictError,
    DeadlineError,
    InputError,
    NotFoundError,
    RectifierError,
    UnavailableError,
)

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:rectifier:problem:"
DEFAULT_RETRY_AFTER_S = 1
CLIENT_HUNG_UP = 499  # nobody reads it but the access log

# First match counts: an error's own class before its bases.
STATUS: Sequence[tuple[type[RectifierError], int, str]] = (
    (InputError, 422, "invalid-request"),
    (NotFoundError, 404, "not-found"),
    (ConflictError, 409, "conflict"),
    (DeadlineError, 504, "deadline-passed"),
    (UnavailableError, 503, "unavailable"),
)

# Kinds of errors that the framework raises, where the status's own phrase would not do.
KINDS = {400: "malformed-body", 413: "body-too-large", 422: "invalid-request"}

# Types of validation errors that only say what another branch of a union wanted.
WANTED = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "list_type": "a list",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "string_type": "a string",
}
MAX_FIELD_CHARS = 256

log = structlog.get_logger()


class Problem(BaseModel):
    """An error, as RFC 9457 describes it."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    type: str
    """Stable name of the kind of error."""
    title: str
    """The kind in words."""
    status: int
    """The HTTP status."""
    detail: str
    """What is wrong this time."""
    field: str | None = None
    """The offending field, dotted, where there is one."""
    request_id: str
    """The request's id, also in ``X-Request-Id``."""


# The key types are FastAPI's own for ``responses=``.
def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries of these statuses."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in statuses
    }


def problem(
    request_id: str,
    status: int,
    kind: str,
    detail: str,
    *,
    field: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return one problem document as a response."""
    body = {
        "type": TYPE_PREFIX + kind,
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "request_id": request_id,
    }
    if field is not None:
        body["field"] = field
    return Response(
        json.dumps(body, ensure_ascii=True), status, media_type=MEDIA_TYPE, headers=headers
    )


def http_problem(request_id: str, error: HTTPException) -> Response:
    """Return the problem document of an error that names its status."""
    status = error.status_code
    kind = KINDS.get(status) or HTTPStatus(status).phrase.lower().replace(" ", "-")
    field = error.field if isinstance(error, FieldError) else None
    return problem(request_id, status, kind, str(error.detail), field=field, headers=error.headers)


def install(app: FastAPI) -> None:
    """Make every error of ``app`` a problem document, also in its OpenAPI document."""
    build = app.openapi

    def with_problem() -> dict[str, Any]:
        document = build()
        document["components"]["schemas"]["Problem"] = Problem.model_json_schema()
        return document

    app.openapi = with_problem  # type: ignore[method-assign]  # FastAPI's own way to extend it
    app.add_exception_handler(RectifierError, _rectifier_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _hung_up)


def request_id(request: Request) -> str:
    """Return the id that the envelope gave this request."""
    found: str = request.scope.get("state", {}).get("request_id", "")
    return found


async def _rectifier_error(request: Request, error: Exception) -> Response:
    known = ((status, slug) for kind, status, slug in STATUS if isinstance(error, kind))
    status, slug = next(known, (500, "internal-error"))
    if isinstance(error, ConflictError):
        slug = error.kind.replace("_", "-")
    headers = {}
    if isinstance(error, UnavailableError):
        log.warning("dependency_failed", kind=type(error).__name__, request_id=request_id(request))
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            headers["Retry-After"] = str(round(error.retry_after or DEFAULT_RETRY_AFTER_S) or 1)
    field = error.field if isinstance(error, InputError) else None
    return problem(request_id(request), status, slug, str(error), field=field, headers=headers)


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it alone
    if _lacks_json_type(request, error):
        refusal = HTTPException(415, "Content-Type must be application/json")
        return http_problem(request_id(request), refusal)
    field, detail = _named(error.errors(), error.body)
    detail = detail if field else f"the body: {detail}"
    return problem(request_id(request), 422, "invalid-request", detail, field=field)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it alone
    return http_problem(request_id(request), error)


async def _hung_up(_: Request, __: Exception) -> Response:
    return Response(status_code=CLIENT_HUNG_UP)


def _lacks_json_type(request: Request, error: RequestValidationError) -> bool:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = media == "application/json" or media.endswith("+json")
    return not is_json and isinstance(error.body, bytes)


def _named(errors: Sequence[Mapping[str, Any]], body: Any) -> tuple[str | None, str]:
    """Return the offending field and what is wrong with it.

    Each branch of a union has its own error: the one that came farthest is meant, and those that
    only say what type they wanted are told together.
    """
    farthest = max(len(error["loc"]) for error in errors)
    found = [error for error in errors if len(error["loc"]) == farthest]
    found = [error for error in found if error["type"] not in WANTED] or found
    field = _field(found[0], body)
    if found[0]["type"] in WANTED:
        wanted = (WANTED[one["type"]] for one in found if _field(one, body) == field)
        return field, f"should be {' or '.join(dict.fromkeys(wanted))}"
    return field, found[0]["msg"].removeprefix("Value error, ")


def _field(error: Mapping[str, Any], body: Any) -> str | None:
    """Return the path that the caller wrote: a location holds names of union branches as well."""
    source, *location = error["loc"]
    if source != "body":
        return str(location[0])
    steps, at = list[str](), body
    for step in location:
        match at:
            case dict() if step in at:
                at = at[step]
            case list() if isinstance(step, int) and step < len(at):
                at = at[step]
            case dict() if error["type"] == "missing" and step == location[-1]:
                pass
            case _:
                continue
        steps.append(str(step))
    if error["type"] == UNKNOWN_FIELD:
        steps.append(error["ctx"]["field"])
    return ".".join(steps)[:MAX_FIELD_CHARS] or None
