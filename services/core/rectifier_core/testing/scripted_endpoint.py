"""An OpenAI-compatible HTTP server whose replies, speed and faults are written down.

It answers ``/chat/completions`` and ``/embeddings`` below any prefix, in a thread of the caller
(``with ScriptedEndpoint() as endpoint``) or as a process of its own (``python -m
rectifier_core.testing.scripted_endpoint --rules replies.json``).

Usage is counted, unless the reply gives it: one token for 2.6 characters, rounded up, over the
contents of all messages (or texts) and over the content and reasoning of the reply.
"""

import argparse
import asyncio
import base64
import hashlib
import json
import math
import re
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal, Self, cast

import uvicorn
from pydantic import BaseModel, ConfigDict
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

CHARS_PER_TOKEN = 2.6
START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 10.0
TRICKLE_PAUSE_S = 0.02
KEPT_CALLS = 10_000
HEALTH_PATH = "/scripted"

Kind = Literal["chat", "embeddings"]
Feature = Literal[
    "json_schema", "json_object", "temperature", "max_tokens", "max_completion_tokens", "seed"
]
RefusalStyle = Literal["openai", "text", "validation", "silent"]

# ASGI's own types: their values are of any kind.
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Fault(StrEnum):
    """What goes wrong with an answer."""

    HANG = "hang"
    """No answer until the client leaves."""
    DROP = "drop"
    """The connection is cut before the answer."""
    DROP_BODY = "drop_body"
    """The connection is cut in the middle of the answer."""
    TRICKLE = "trickle"
    """The answer comes byte by byte, one every 20 ms."""
    GARBAGE = "garbage"
    """HTTP 200 with a page that is not JSON."""
    NO_CHOICES = "no_choices"
    """HTTP 200 with an empty list of choices (or of vectors)."""
    WRONG_COUNT = "wrong_count"
    """One vector too few."""
    WRONG_DIMENSION = "wrong_dimension"
    """Vectors one number too long."""
    NAN = "nan"
    """Vectors whose first number is not one."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One scripted answer.

    Attributes:
        content: The message's content: text, None, or parts as a list.
        finish_reason: ``length`` for a reply that was cut.
        refusal: The model's refusal.
        reasoning: Text of the reasoning field.
        reasoning_field: That field's name; servers differ.
        model: The model in the answer; None repeats the asked one.
        usage: The answer's usage; ``counted`` follows the module's rule, None leaves it out.
        status: HTTP status; from 400 on the answer is an error object.
        error: The error object, or its message, where ``status`` is an error.
        headers: More headers, e.g. ``{"retry-after": "2"}``.
        body: The whole body, instead of all above.
        fault: What goes wrong.
        delay: Seconds before the answer, on top of the latency model.
    """

    content: object = "{}"
    finish_reason: str | None = "stop"
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_field: str = "reasoning_content"
    model: str | None = None
    usage: Mapping[str, object] | Literal["counted"] | None = "counted"
    status: int = 200
    error: object = "scripted error"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    fault: Fault | None = None
    delay: float = 0.0

    @classmethod
    def failed(cls, status: int, *, retry_after: float | str | None = None) -> "Reply":
        """Return an error answer, with ``Retry-After`` where it is given (seconds, or a date)."""
        headers = {} if retry_after is None else {"retry-after": str(retry_after)}
        return cls(status=status, headers=headers)

    @classmethod
    def json(cls, value: object) -> "Reply":
        """Return a reply whose content is ``value`` as JSON."""
        return cls(json.dumps(value))


@dataclass(slots=True)
class ChatCall:
    """One request that arrived.

    Attributes:
        kind: Which of the two paths.
        body: The request's JSON object.
        headers: Lower-case names.
        has_left: True where the client hung up before it had the answer.
        is_done: True where the answer was given, or given up.
    """

    kind: Kind
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    has_left: bool = False
    is_done: bool = False

    @property
    def model(self) -> str:
        """The model that was asked for."""
        return str(self.body.get("model", ""))

    @property
    def texts(self) -> list[str]:
        """Contents of the messages, or the texts to embed, in order."""
        if self.kind == "embeddings":
            given = self.body.get("input", [])
            return [given] if isinstance(given, str) else [str(text) for text in given]
        return [str(message.get("content") or "") for message in self.body.get("messages", [])]

    @property
    def system(self) -> str:
        """Contents of the system messages, one below the other."""
        return self._by_role("system")

    @property
    def user(self) -> str:
        """Contents of the user messages, one below the other."""
        return self._by_role("user")

    @property
    def format(self) -> str:
        """``json_schema``, ``json_object`` or ``text``: what ``response_format`` asks for."""
        return str((self.body.get("response_format") or {}).get("type", "text"))

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The JSON Schema that the reply should have, where one was sent."""
        wanted = (self.body.get("response_format") or {}).get("json_schema") or {}
        schema: Mapping[str, Any] | None = wanted.get("schema")
        return schema

    def _by_role(self, role: str) -> str:
        messages = self.body.get("messages", [])
        return "\n".join(
            str(message.get("content") or "") for message in messages if message.get("role") == role
        )


Script = Callable[[ChatCall], Reply]


@dataclass(frozen=True, slots=True)
class Latency:
    """How long a model of some speed would take.

    Attributes:
        prefill_rate: Prompt tokens a second; 0 for no time.
        decode_rate: Completion tokens a second; 0 for no time.
        first_token: Seconds before the first token.
        is_modelled: True: nothing waits, the header ``x-modelled-seconds`` and
            ``modelled_seconds`` tell the time that it would have taken.
    """

    prefill_rate: float = 0.0
    decode_rate: float = 0.0
    first_token: float = 0.0
    is_modelled: bool = False

    def seconds(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return ``first_token + prompt / prefill_rate + completion / decode_rate``."""
        prefill = prompt_tokens / self.prefill_rate if self.prefill_rate else 0.0
        decode = completion_tokens / self.decode_rate if self.decode_rate else 0.0
        return self.first_token + prefill + decode


class ScriptedEndpoint:
    """The server, and the record of what it was asked.

    A reply comes from the queue as long as that holds one, then from the script. It may be
    stopped and started again: the port stays.
    """

    def __init__(
        self,
        script: Script | Reply | str | None = None,
        *,
        latency: Latency | None = None,
        refuses: Collection[Feature] = (),
        refusal_style: RefusalStyle = "openai",
        dimension: int = 384,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """Write the script down; nothing listens before ``start``.

        Args:
            script: Called with each request that the queue has no reply for, or the one reply;
                None answers ``{}``.
            latency: The model's speed; None for no time at all.
            refuses: Request fields that are answered with an error.
            refusal_style: How that error looks: ``openai`` (400 with ``param`` and ``code``),
                ``text`` (400, one string), ``validation`` (422, a list of places) or ``silent``
                (400 without a reason).
            dimension: Length of the vectors, where the request does not say.
            host: Address to listen on.
            port: Port to listen on; 0 takes a free one.
        """
        self.refuses: set[Feature] = set(refuses)
        self.modelled_seconds = 0.0
        self._script = _script(script)
        self._latency = latency or Latency()
        self._refusal_style = refusal_style
        self._dimension = dimension
        self._host = host
        self._port = port
        self._queue: deque[Reply] = deque()
        self._calls: deque[ChatCall] = deque(maxlen=KEPT_CALLS)
        self._count = 0
        self._changed = threading.Condition()
        self._waits_for_change = 0
        self._script_error: BaseException | None = None
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """What a client is given, e.g. ``http://127.0.0.1:40123/v1``."""
        return f"http://{self._host}:{self._port}/v1"

    @property
    def calls(self) -> list[ChatCall]:
        """The requests so far, oldest first; the last 10,000."""
        return list(self._calls)

    def queue(self, *replies: Reply | str) -> None:
        """Answer the next requests with these, one each, before the script is asked again."""
        self._queue.extend(reply if isinstance(reply, Reply) else Reply(reply) for reply in replies)

    def script(self, script: Script | Reply | str | None) -> None:
        """Answer by this script from now on, as the one that was given at first."""
        self._script = _script(script)

    def wait_until(
        self, condition: Callable[["ScriptedEndpoint"], bool], *, timeout: float = 5.0
    ) -> bool:
        """Block until ``condition`` holds; it is looked at whenever a request changes.

        From a coroutine, call it by ``asyncio.to_thread``.

        Returns:
            False where it did not hold within ``timeout`` seconds.
        """
        with self._changed:
            self._waits_for_change += 1
            try:
                return self._changed.wait_for(lambda: condition(self), timeout)
            finally:
                self._waits_for_change -= 1

    def start(self) -> None:
        """Listen, and serve in a thread.

        Raises:
            OSError: The port is taken.
            RuntimeError: The server did not start.
        """
        listener = self._listen()
        self._server = self._make_server()
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listener]}, daemon=True
        )
        self._thread.start()
        if not self._server.is_ready.wait(START_TIMEOUT_S):
            raise RuntimeError("the scripted endpoint did not start")

    def stop(self) -> None:
        """Cut every connection and stop serving.

        Raises:
            BaseException: What the script raised; the client was answered 500.
        """
        server, thread = self._server, self._thread
        self._server = self._thread = None
        if server is None or thread is None:
            return
        server.stop_soon()
        thread.join(STOP_TIMEOUT_S)
        if thread.is_alive():
            raise RuntimeError("the scripted endpoint did not stop")
        error, self._script_error = self._script_error, None
        if error is not None:
            raise error

    def serve(self, announce: Callable[[str], None]) -> None:
        """Serve in this thread until SIGTERM or SIGINT; ``announce`` gets the base URL first."""
        listener = self._listen()
        announce(self.base_url)
        self._make_server().run(sockets=[listener])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _listen(self) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self._host, self._port))
        except OSError:
            listener.close()
            raise
        self._port = listener.getsockname()[1]
        listener.listen(1_024)
        return listener

    def _make_server(self) -> "_Server":
        config = uvicorn.Config(
            self._answer,
            http=_CuttableProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            date_header=False,
        )
        return _Server(config)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path == HEALTH_PATH:
            state = {"calls": self._count, "modelled_seconds": self.modelled_seconds}
            await _send(send, 200, json.dumps(state).encode())
            return
        body = await _body(receive)
        if body is None:
            return
        kind = _kind(path)
        call = None if kind is None else _parsed(kind, body, scope["headers"])
        if call is None:
            status = 404 if kind is None else 400
            await _send(send, status, b'{"error": {"message": "no such call"}}')
            return
        self._calls.append(call)
        self._count += 1
        self._tell()
        try:
            await self._reply(call, receive, send, scope["extensions"][CUT])
        finally:
            call.is_done = True
            self._tell()

    async def _reply(
        self, call: ChatCall, receive: Receive, send: Send, cut: Callable[[], None]
    ) -> None:
        reply = self._refusal(call) or self._next(call)
        if reply.fault is Fault.HANG:
            call.has_left = await _has_left(receive, None)
            return
        if reply.fault is Fault.DROP:
            cut()
            return
        status, body, tokens = self._written(call, reply)
        headers = list(reply.headers.items())
        seconds = self._latency.seconds(*tokens) if status < 400 else 0.0
        if self._latency.is_modelled:
            self.modelled_seconds += seconds
            headers.append(("x-modelled-seconds", f"{seconds:.6f}"))
            seconds = 0.0
        seconds += reply.delay
        if seconds and await _has_left(receive, seconds):
            call.has_left = True
            return
        if reply.fault is Fault.DROP_BODY:
            await _send(send, status, body[: len(body) // 2], headers, length=len(body))
            cut()
        elif reply.fault is Fault.TRICKLE:
            call.has_left = await _trickle(receive, send, status, body, headers)
        else:
            await _send(send, status, body, headers)

    def _next(self, call: ChatCall) -> Reply:
        try:
            return self._queue.popleft()
        except IndexError:
            pass
        try:
            return self._script(call)
        except BaseException as exc:
            self._script_error = exc
            raise

    def _refusal(self, call: ChatCall) -> Reply | None:
        if not self.refuses:
            return None
        sent: list[str] = [name for name in call.body if name in self.refuses]
        if call.format in self.refuses:
            sent.append("response_format")
        return _refused(sent[0], call.format, self._refusal_style) if sent else None

    def _written(self, call: ChatCall, reply: Reply) -> tuple[int, bytes, tuple[int, int]]:
        if reply.body is not None:
            return reply.status, reply.body.encode(errors="surrogatepass"), (0, 0)
        if reply.fault is Fault.GARBAGE:
            return reply.status, b"<html><body>Bad day</body></html>", (0, 0)
        if reply.status >= 400:
            error = reply.error if not isinstance(reply.error, str) else {"message": reply.error}
            return reply.status, json.dumps({"error": error}).encode(), (0, 0)
        prompt = _tokens(call.texts)
        if call.kind == "embeddings":
            answer = _embedding_answer(call, reply, self._dimension, prompt)
            return reply.status, json.dumps(answer).encode(), (prompt, 0)
        completion = _tokens([str(reply.content or ""), reply.reasoning or ""])
        chat = _chat_answer(call, reply, prompt, completion)
        return reply.status, json.dumps(chat).encode(), (prompt, completion)

    def _tell(self) -> None:
        if self._waits_for_change:  # a benchmark does not wait, and does not pay
            with self._changed:
                self._changed.notify_all()


CUT = "scripted.cut"


class _CuttableProtocol(HttpToolsProtocol):
    # ASGI has no word for cutting a connection, so the way to do it travels in the scope.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        scope = cast(dict[str, Any], self.scope)
        scope["extensions"] = {CUT: self.transport.abort}


class _Server(uvicorn.Server):
    # uvicorn polls for its end and lets requests finish; a test wants neither.

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self.is_ready.set()

    async def main_loop(self) -> None:
        await self._stopped.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=STOP_TIMEOUT_S / 2)

    def stop_soon(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self.stop_soon()


def _script(given: Script | Reply | str | None) -> Script:
    if callable(given):
        return given
    reply = Reply() if given is None else Reply(given) if isinstance(given, str) else given
    return lambda _: reply


async def _body(receive: Receive) -> bytes | None:
    parts = []
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            return None
        parts.append(event.get("body", b""))
        if not event.get("more_body", False):
            return b"".join(parts)


def _kind(path: str) -> Kind | None:
    if path.endswith("/chat/completions"):
        return "chat"
    return "embeddings" if path.endswith("/embeddings") else None


def _parsed(kind: Kind, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> ChatCall | None:
    try:
        value = json.loads(body)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    return ChatCall(kind, value, {name.decode(): text.decode("latin-1") for name, text in headers})


async def _has_left(receive: Receive, seconds: float | None) -> bool:
    # After the body, the next event is the client's leaving.
    try:
        async with asyncio.timeout(seconds):
            await receive()
    except TimeoutError:
        return False
    return True


async def _send(
    send: Send,
    status: int,
    body: bytes,
    headers: Iterable[tuple[str, str]] = (),
    *,
    length: int | None = None,
) -> None:
    named = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    named.append((b"content-type", b"application/json"))
    named.append((b"content-length", str(len(body) if length is None else length).encode()))
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": body, "more_body": length is not None})


async def _trickle(
    receive: Receive, send: Send, status: int, body: bytes, headers: Iterable[tuple[str, str]]
) -> bool:
    await _send(send, status, b"", headers, length=len(body))
    for place in range(len(body)):
        if await _has_left(receive, TRICKLE_PAUSE_S):
            return True
        piece = body[place : place + 1]
        last = place + 1 == len(body)
        await send({"type": "http.response.body", "body": piece, "more_body": not last})
    return False


def _refused(name: str, format_: str, style: RefusalStyle) -> Reply:
    where = f"response_format.type '{format_}'" if name == "response_format" else f"'{name}'"
    hint = " Use 'max_completion_tokens' instead." if name == "max_tokens" else ""
    message = f"Unsupported parameter: {where} is not supported with this model.{hint}"
    match style:
        case "openai":
            error = {
                "message": message,
                "type": "invalid_request_error",
                "param": name,
                "code": "unsupported_parameter",
            }
            return Reply(status=400, error=error)
        case "text":
            return Reply(status=400, body=json.dumps({"error": message}))
        case "validation":
            place = {"loc": ["body", name], "msg": "Extra inputs are not permitted"}
            return Reply(status=422, body=json.dumps({"detail": [place]}))
        case "silent":
            return Reply(status=400, error={"message": "Request contains an invalid argument."})


def _tokens(texts: Iterable[str]) -> int:
    return math.ceil(sum(map(len, texts)) / CHARS_PER_TOKEN)


def _chat_answer(
    call: ChatCall, reply: Reply, prompt: int, completion: int
) -> Mapping[str, object]:
    message: dict[str, object] = {"role": "assistant", "content": reply.content}
    if reply.refusal is not None:
        message["refusal"] = reply.refusal
    if reply.reasoning is not None:
        message[reply.reasoning_field] = reply.reasoning
    choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
    counted = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    return _with_usage(
        {
            "id": "chatcmpl-scripted",
            "object": "chat.completion",
            "created": 0,
            "model": reply.model or call.model,
            "choices": [] if reply.fault is Fault.NO_CHOICES else [choice],
        },
        reply,
        counted,
    )


def _embedding_answer(
    call: ChatCall, reply: Reply, dimension: int, prompt: int
) -> Mapping[str, object]:
    length = int(call.body.get("dimensions") or dimension)
    vectors = [hashed_vector(text, length) for text in call.texts]
    match reply.fault:
        case Fault.NO_CHOICES:
            vectors = []
        case Fault.WRONG_COUNT:
            vectors = vectors[:-1]
        case Fault.WRONG_DIMENSION:
            vectors = [[*vector, 0.0] for vector in vectors]
        case Fault.NAN:
            vectors = [[math.nan, *vector[1:]] for vector in vectors]
        case _:
            pass
    is_packed = call.body.get("encoding_format") == "base64"
    rows = [
        {
            "object": "embedding",
            "index": index,
            "embedding": _packed(vector) if is_packed else vector,
        }
        for index, vector in enumerate(vectors)
    ]
    counted = {"prompt_tokens": prompt, "total_tokens": prompt}
    answer = {"object": "list", "model": reply.model or call.model, "data": rows}
    return _with_usage(answer, reply, counted)


def _with_usage(
    answer: Mapping[str, object], reply: Reply, counted: Mapping[str, object]
) -> Mapping[str, object]:
    if reply.usage is None:
        return answer
    return {**answer, "usage": counted if reply.usage == "counted" else reply.usage}


def hashed_vector(text: str, dimension: int) -> list[float]:
    """Return a unit vector in which every word of ``text`` votes: texts that share words are near.

    Args:
        text: Any text.
        dimension: Length of the vector, 1 or more.
    """
    vector = [0.0] * dimension
    for word in re.findall(r"\w+", text.lower()) or [text]:
        digest = hashlib.blake2b(word.encode(errors="surrogatepass"), digest_size=8).digest()
        number = int.from_bytes(digest)
        vector[(number >> 1) % dimension] += 1.0 if number & 1 else -1.0
    length = math.hypot(*vector)
    if not length:  # two words that cancel each other
        return [1.0] + [0.0] * (dimension - 1)
    return [value / length for value in vector]


def _packed(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


class _Case(BaseModel):
    """When a rule applies: everything that is given must hold."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    contains: str | None = None
    kind: Kind | None = None
    model: str | None = None
    format: str | None = None

    def holds(self, call: ChatCall) -> bool:
        return (
            (self.contains is None or any(self.contains in text for text in call.texts))
            and self.kind in {None, call.kind}
            and self.model in {None, call.model}
            and self.format in {None, call.format}
        )


class _Rule(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    when: _Case = _Case()
    reply: Reply = Reply()
    times: int | None = None


class _Rules(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    rules: tuple[_Rule, ...]


def read_rules(text: str) -> Script:
    """Return the script that a rules file describes.

    The file is ``{"rules": [{"when": {...}, "reply": {...}, "times": 2}, ...]}``: ``when`` takes
    ``contains`` (in a message or text), ``kind``, ``model`` and ``format``; ``reply`` takes the
    fields of ``Reply``; ``times`` ends a rule after so many answers. The first rule that applies
    answers; where none does, the answer is ``{}``.

    Raises:
        ValueError: The text is no such file.
    """
    rules = _Rules.model_validate_json(text).rules
    left = [math.inf if rule.times is None else rule.times for rule in rules]

    def script(call: ChatCall) -> Reply:
        for place, rule in enumerate(rules):
            if left[place] > 0 and rule.when.holds(call):
                left[place] -= 1
                return rule.reply
        return Reply()

    return script


def main(arguments: list[str] | None = None) -> None:
    """Serve until SIGTERM, after printing ``{"base_url": ...}`` as one line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--rules", type=Path, help="a JSON file of replies, see read_rules")
    parser.add_argument("--reply", help="the content of every reply without a rule file")
    parser.add_argument("--refuses", action="append", default=[], help="a request field")
    parser.add_argument("--refusal-style", default="openai")
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--prefill-rate", type=float, default=0.0, help="prompt tokens a second")
    parser.add_argument("--decode-rate", type=float, default=0.0, help="reply tokens a second")
    parser.add_argument("--first-token", type=float, default=0.0, help="seconds")
    parser.add_argument("--modelled", action="store_true", help="report latency, do not wait")
    given = parser.parse_args(arguments)
    endpoint = ScriptedEndpoint(
        read_rules(given.rules.read_text(encoding="utf-8")) if given.rules else given.reply,
        latency=Latency(
            given.prefill_rate, given.decode_rate, given.first_token, is_modelled=given.modelled
        ),
        refuses=given.refuses,
        refusal_style=given.refusal_style,
        dimension=given.dimension,
        host=given.host,
        port=given.port,
    )
    endpoint.serve(_announce)


def _announce(base_url: str) -> None:
    sys.stdout.write(json.dumps({"base_url": base_url}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
