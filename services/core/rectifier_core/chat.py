"""The chat port: one question to a model, one text back."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from rectifier_core.deadline import Deadline

CallKind = Literal["judge", "keywords", "rerank", "repair", "teacher", "dedup"]

CallOutcome = Literal[
    "answered",  # a reply came, whatever it says
    "refused",  # the endpoint does not take such a request
    "limited",  # it asks to wait
    "failed",  # it answered with an error, or with something unreadable
    "lost",  # no connection, or it broke
    "timeout",  # no answer in time
    "cancelled",  # nobody waited for the answer any longer
]


@dataclass(frozen=True, slots=True)
class Usage:
    """What chat calls cost.

    Attributes:
        calls: Requests sent, refused ones included.
        prompt_tokens: As the endpoint reports them.
        cached_tokens: The part of the prompt that the endpoint read from its cache.
        completion_tokens: As the endpoint reports them.
    """

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.completion_tokens + other.completion_tokens,
        )


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One question.

    Attributes:
        kind: What it is for; a metric label.
        system: The system message.
        user: The user message.
        schema: JSON Schema of the reply (no pattern, bounds or references), or None for plain text.
            The prompt states the shape as well: an endpoint that ignores the schema is common.
        max_tokens: Cap of the reply.
        max_calls: Requests that may be sent for it, 1 or more: an endpoint that refuses a field
            is asked again without it.
    """

    kind: CallKind
    system: str
    user: str
    # A JSON Schema document nests without bound, which no type of ours describes.
    schema: dict[str, Any] | None = None
    max_tokens: int = 2_048
    max_calls: int = 3


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What came back.

    Attributes:
        text: The content, encodable; empty where the model put all into a separate reasoning field.
        is_cut: The reply is not whole: it ended at the token limit, or in a way that is unknown.
        is_refused: The model declined, or a content filter answered for it.
        model: The model that the endpoint says it used.
        usage: Cost, over all requests that were sent.
    """

    text: str
    is_cut: bool = False
    is_refused: bool = False
    model: str = ""
    usage: Usage = Usage(calls=1)


class CallObserver(Protocol):
    """What is told of every request that was sent to a chat endpoint."""

    def __call__(self, kind: CallKind, outcome: CallOutcome, seconds: float, /) -> None:
        """Count one request; it must not raise, and must not wait."""
        ...


class ChatModel(Protocol):
    """A chat endpoint with one model behind it."""

    @property
    def model(self) -> str:
        """The model's name."""
        ...

    async def complete(self, request: ChatRequest, *, deadline: Deadline) -> ChatReply:
        """Ask once, at temperature 0, and return the reply whatever it says.

        Raises:
            ChatTimeoutError: No reply before the deadline or the endpoint's own timeout.
            ChatError: The endpoint refused or failed; ``calls`` says how often it was asked.
        """
        ...
