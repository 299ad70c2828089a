"""What comes in over HTTP: requests, checked once."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal
from urllib.parse import unquote_to_bytes

from fastapi import HTTPException, Request
from fastapi.routing import APIRoute
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rectifier.policy import AuditMode, OnIndeterminate, PolicyMode, Query, Retrieval, Select
from rectifier_core.indicator import POOL_NAME, Mode, Status
from rectifier_core.message import Message, ToolCall
from rectifier_core.snapshot import Ranking

KIB = 1024
MAX_BODY_BYTES = 1024 * KIB
MAX_IMPORT_BYTES = 256 * 1024 * KIB
MAX_MESSAGE_BYTES = 256 * KIB
MAX_TASK_BYTES = 64 * KIB
MAX_ROLE_BYTES = 16 * KIB
MAX_CONTEXT_MESSAGES = 200
MAX_TOOL_CALLS = 128
MAX_POOLS = 32
MAX_NODES_SEARCHED = 10_000
UNKNOWN_FIELD = "unknown_field"
_NUL = re.compile("\0")
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_ESCAPED_NUL = b"\\u0000"
# A first half that no second half follows, or a second half that follows no first half.
_ESCAPED_HALF = re.compile(
    rb"\\u[dD](?:[89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..\\u[dD])[c-fC-F])"
)
MIN_DEADLINE_MS, MAX_DEADLINE_MS, DEFAULT_DEADLINE_MS = 1_000, 120_000, 45_000


def _at_most(limit: int) -> AfterValidator:
    def check(text: str) -> str:
        if len(text) * 4 > limit and len(text.encode()) > limit:
            raise ValueError(f"at most {limit:,} bytes of UTF-8")
        return text

    return AfterValidator(check)


Identifier = Annotated[str, Field(min_length=1, max_length=256)]
Name = Annotated[str, Field(max_length=256)]
TaskText = Annotated[str, Field(min_length=1), _at_most(MAX_TASK_BYTES)]
MessageText = Annotated[str, _at_most(MAX_MESSAGE_BYTES)]
RoleText = Annotated[str, _at_most(MAX_ROLE_BYTES)]
PoolName = Annotated[str, Field(pattern=f"^{POOL_NAME.pattern}$")]


class Strict(BaseModel):
    """A request object: unknown fields are refused, values are not coerced."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _has_known_fields(cls, value: object) -> object:
        # The first one ends it: an error for each of 100,000 unknown keys takes a second.
        if isinstance(value, dict):
            for name in value:
                if name not in cls.model_fields:
                    detail = "there is no such field"
                    raise PydanticCustomError(UNKNOWN_FIELD, detail, {"field": name})
        return value


class ToolCallIn(Strict):
    """A tool call that a message asks for."""

    name: Name
    """The tool."""
    arguments: MessageText = ""
    """Its arguments as the agent wrote them, usually JSON."""
    id: Name | None = None
    """The call's id; not audited."""

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, value: object) -> object:
        """Take the shape of chat endpoints too: name and arguments under ``function``."""
        match value:
            case {"function": {"name": name, **rest}, **others} if not rest.keys() - {"arguments"}:
                kind = others.pop("type", "function")
                if kind == "function" and not others.keys() - {"id"}:
                    value = {**others, "name": name, **rest}
        if isinstance(value, dict) and isinstance(value.get("arguments"), dict | list):
            return {**value, "arguments": json.dumps(value["arguments"], ensure_ascii=False)}
        return value


class MessageIn(Strict):
    """One agent output."""

    content: MessageText | None = None
    """The text; null where the agent only calls tools."""
    agent: Name = ""
    """The agent's name, any Unicode; echoed in records."""
    role: RoleText = ""
    """The agent's role specification R_i: what it is there to do."""
    tool_calls: Annotated[list[ToolCallIn], Field(max_length=MAX_TOOL_CALLS)] | None = None
    """The tool calls; audited as JSON where there is no content."""

    def message(self) -> Message:
        """Return the domain's message."""
        calls = tuple(ToolCall(call.name, call.arguments) for call in self.tool_calls or ())
        return Message(self.content, self.agent, self.role, calls)


class ContextMessage(Strict):
    """An earlier message of the run."""

    content: MessageText | None = None
    """Its text."""
    agent: Name = ""
    """Who wrote it."""


class PolicyIn(Strict):
    """Single fields over a preset."""

    preset: Name | None = None
    """The preset to start from; absent: the configured one."""
    query: Query | None = None
    """What is searched with."""
    retrieval: Retrieval | None = None
    """How candidates are found."""
    k_cand: Annotated[int, Field(ge=0, le=100)] | None = None
    """Candidates retrieved."""
    mmr_k: Annotated[int, Field(ge=0, le=100)] | None = None
    """Candidates that diversification keeps; 0 keeps all."""
    select: Select | None = None
    """How active indicators are chosen among the candidates."""
    k_act: Annotated[int, Field(ge=0, le=20)] | None = None
    """Active indicators audited at most."""
    audit: AuditMode | None = None
    """How the judge is asked."""
    tau: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    """Pass threshold."""
    max_retries: Annotated[int, Field(ge=0, le=10)] | None = None
    """Retries after attempt 0."""
    gamma: Annotated[int, Field(ge=0, le=1_000)] | None = None
    """Fallback is due below this many retained messages."""
    on_indeterminate: OnIndeterminate | None = None
    """What becomes of a message without a verdict."""
    mode: PolicyMode | None = None
    """Whether decisions count, or are only recorded."""

    def overrides(self) -> dict[str, Any]:
        """Return the fields that were set."""
        return self.model_dump(exclude_none=True)


class AuditRequest(Strict):
    """One message to judge."""

    task: TaskText
    """Q, the question or goal of the run."""
    message: MessageIn
    """The output to audit."""
    context: Annotated[
        list[ContextMessage | MessageText], Field(max_length=MAX_CONTEXT_MESSAGES)
    ] = Field(default_factory=list)
    """Earlier messages, newest last."""
    message_schema: dict[str, JsonValue] | None = None
    """A JSON Schema that the content must satisfy."""
    pool: PoolName | Annotated[list[PoolName], Field(min_length=1, max_length=MAX_POOLS)] | None = (
        None
    )
    """A pool or several; absent: the configured default pools."""
    policy: Name | PolicyIn | None = None
    """A preset's name, or single fields."""
    deadline_ms: Annotated[int, Field(ge=MIN_DEADLINE_MS, le=MAX_DEADLINE_MS)] = DEFAULT_DEADLINE_MS
    """Milliseconds after which an answer is useless; then 504."""

    def requested_policy(self) -> str | Mapping[str, Any] | None:
        """Return the preset's name or the fields that were set."""
        return self.policy.overrides() if isinstance(self.policy, PolicyIn) else self.policy

    def pools(self) -> tuple[str, ...] | None:
        """Return the pools asked for, or None for the default ones."""
        if self.pool is None:
            return None
        return (self.pool,) if isinstance(self.pool, str) else tuple(dict.fromkeys(self.pool))

    def context_texts(self) -> tuple[str, ...]:
        """Return the earlier messages as text, each under its agent's name where it has one."""
        return tuple(_context_text(entry) for entry in self.context)


class RectifyRequest(AuditRequest):
    """One message of a run to gate."""

    run_id: Identifier | None = None
    """Names the run; absent: nothing is kept."""
    message_id: Identifier | None = None
    """Names the output across its attempts; required with ``run_id``."""
    attempt: Annotated[int, Field(ge=0, le=10)] | None = None
    """Which attempt this is, from 0; absent: the next."""
    expected_messages: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """How many messages the run will have, where that is known."""
    fallback_of: Identifier | None = None
    """The run that this one repeats unpruned: decisions are recorded, not enforced."""


class OutcomeRequest(Strict):
    """How a run ended."""

    final_answer: MessageText
    """What the team answered."""
    correct: StrictBool | None = None
    """Whether that is right, where the caller knows."""
    ground_truth: MessageText | None = None
    """The reference; decides alone only where both are plain numbers. Never shown to a judge."""


class ExampleIn(Strict):
    """A tiny message that shows the error, or that must not be taken for it."""

    task: TaskText
    """What the agents were asked."""
    message: MessageText
    """What the agent wrote."""
    violated: bool
    """True where the message shows the error."""


class IndicatorIn(Strict):
    """An indicator to write."""

    name: Name
    """Short name; names may repeat."""
    definition: MessageText
    """What goes wrong."""
    trigger_condition: MessageText = ""
    """When to look for it; empty: the definition serves."""
    risk_alert: MessageText = ""
    """What to check."""
    examples: Annotated[list[ExampleIn], Field(max_length=20)] = Field(default_factory=list)
    """Tiny messages that show the error or must not be taken for it."""
    status: Annotated[Status, Field(strict=False)] = Status.ACTIVE
    """Only active ones are retrieved by audits."""
    mode: Annotated[Mode, Field(strict=False)] = Mode.ENFORCE
    """Whether a violation counts or is only recorded."""
    licence: Name | None = None
    """SPDX expression of its text."""


class IndicatorPatch(Strict):
    """What of an indicator is to be set."""

    status: Annotated[Status, Field(strict=False)] | None = None
    """Only active ones are retrieved by audits."""
    mode: Annotated[Mode, Field(strict=False)] | None = None
    """Whether a violation counts or is only recorded."""


class SearchRequest(Strict):
    """What to search for."""

    q: Annotated[MessageText, Field(min_length=1)]
    """A text: a message, a task, or words."""
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    """Hits at most."""
    by: Ranking = "hybrid"
    """As audits search, or by one ranking alone."""


class StrictRoute(APIRoute):
    """A route whose JSON body is read strictly: one value, no repeated key, no NaN, bounded depth."""

    # FastAPI types the handler with the framework's own aliases; the signature is its hook.
    def get_route_handler(self) -> Any:
        """Return the handler, given a request that reads strictly."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Any:
            _check_url(request)
            return await handler(_StrictRequest(request.scope, request.receive))

        return strict


class FieldError(HTTPException):
    """What was sent is well formed, but holds what is no text.

    Attributes:
        field: Where, dotted; None where that was not found in bounded time.
    """

    def __init__(self, detail: str, field: str | None) -> None:
        super().__init__(422, detail)
        self.field = field


class _StrictRequest(Request):
    async def json(self) -> Any:  # JSON is untyped until the model has seen it
        if _charset(self.headers.get("content-type", "")) not in {"", "utf-8", "utf8", "us-ascii"}:
            raise HTTPException(415, "JSON is sent as UTF-8")
        body = await self.body()
        try:
            value = json.loads(
                body.decode("utf-8-sig"),
                object_pairs_hook=_unique,
                parse_constant=_refuse_constant,
            )
        except RecursionError:
            raise HTTPException(400, "the JSON is nested too deeply") from None
        except UnicodeDecodeError:
            raise HTTPException(400, "the body is not UTF-8") from None
        except ValueError as error:
            raise HTTPException(400, f"the body is not JSON: {_reason(error)}") from None
        escapes = body.replace(rb"\\", b"--")
        if _ESCAPED_NUL in escapes:
            raise FieldError("the character NUL is no text", _place(value, _NUL))
        if _ESCAPED_HALF.search(escapes):
            raise FieldError("half a surrogate pair is no text", _place(value, _HALF_PAIR))
        return value


def _charset(content_type: str) -> str:
    for parameter in content_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip(' "').lower()
    return ""


def _check_url(request: Request) -> None:
    if b"%" not in request.scope.get("raw_path", b"") + request.scope["query_string"]:
        return
    given = [*request.path_params.items(), *request.query_params.multi_items()]
    for name, value in given:
        if "\0" in value:
            raise FieldError("the character NUL is no text", name)
        if "\ufffd" in value and not _is_utf8(request):
            raise FieldError("the URL is not UTF-8", name)


def _is_utf8(request: Request) -> bool:
    try:
        unquote_to_bytes(request.scope.get("raw_path", b"")).decode()
        unquote_to_bytes(request.scope["query_string"]).decode()
    except UnicodeDecodeError:
        return False
    return True


def _place(value: JsonValue, wanted: re.Pattern[str]) -> str | None:
    """Return where the first text that holds ``wanted`` stands, dotted; None for the whole body."""
    path, inner = list[str](), [_parts(value)]
    for _ in range(MAX_NODES_SEARCHED):
        step, found = next(inner[-1], (None, None))
        if step is None:
            inner.pop()
            path = path[:-1]
            if not inner:
                break
        elif wanted.search(step):
            return ".".join(path) or None
        elif isinstance(found, str) and wanted.search(found):
            return ".".join([*path, step])
        elif isinstance(found, dict | list):
            path.append(step)
            inner.append(_parts(found))
    return None


def _parts(value: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield str(place), one


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _RefusedError("a key is repeated")
    return found


def _refuse_constant(_: str) -> Literal[0]:
    raise _RefusedError("NaN and Infinity are not JSON")


class _RefusedError(ValueError):
    """What Python's parser would take."""


def _reason(error: ValueError) -> str:
    match error:
        case _RefusedError():
            return str(error)
        case json.JSONDecodeError(pos=at):
            return f"it does not parse at character {at}"
        case _:
            return "a number has too many digits"


def _context_text(entry: ContextMessage | str) -> str:
    if isinstance(entry, str):
        return entry
    return f"{entry.agent}: {entry.content or ''}" if entry.agent else entry.content or ""
