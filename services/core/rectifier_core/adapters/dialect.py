"""What one endpoint accepts of a chat request for one model, learnt from what it refuses."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rectifier_core.chat import ChatRequest

Feature = Literal[
    "json_schema", "json_object", "temperature", "max_tokens", "max_completion_tokens"
]

# The ladder of structured output, strictest first; below the last rung is plain text.
RUNGS: tuple[Feature, ...] = ("json_schema", "json_object")
# What caps the reply, the more widely known name first.
LIMITS: tuple[Feature, ...] = ("max_tokens", "max_completion_tokens")

# Seconds. A lesson may have been a mistake of the moment, or the server was updated; learning it
# again costs one refused request.
KEPT_SECONDS = 3_600.0
EXPLAINED_CHARS = 500
EXPLAINED_PLACES = 5

FORMAT_WORDS = (
    "response_format",
    "response format",
    "responseformat",
    "response_mime_type",
    "response_schema",
    "json_schema",
    "json_object",
    "json schema",
    "json mode",
    "structured output",
)
# Words that say the same where nothing else is named.
LOOSE_FORMAT_WORDS = ("schema", "grammar", "guided")
# An error about too long a prompt names fields that are in order.
SIZE_WORDS = (
    "context length",
    "context window",
    "context size",
    "too large",
    "too long",
    "at most",
)
FILTER_CODES = frozenset({"content_filter", "content_policy_violation", "data_inspection_failed"})


class Dialect:
    """The features that are known to be refused.

    Lessons only add up, so requests under way at the same time may learn in any order.
    """

    def __init__(
        self, *, kept_seconds: float = KEPT_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start with nothing refused.

        Args:
            kept_seconds: After so long, everything is tried again.
            clock: Seconds that never go back.
        """
        self._kept_seconds = kept_seconds
        self._clock = clock
        self._refused: frozenset[Feature] = frozenset()
        self._learnt_at = 0.0

    @property
    def refused(self) -> frozenset[Feature]:
        """What is left out of a request."""
        if self._refused and self._clock() - self._learnt_at > self._kept_seconds:
            self._refused = frozenset()
        return self._refused

    def learn(self, features: Collection[Feature]) -> None:
        """Leave ``features`` out from now on."""
        if features and not self._refused:
            self._learnt_at = self._clock()
        self._refused |= frozenset(features)


def spoken(request: ChatRequest, refused: Collection[Feature]) -> list[Feature]:
    """Return the features that a request uses where ``refused`` are left out."""
    features: list[Feature] = []
    if request.schema is not None:
        features += [rung for rung in RUNGS if rung not in refused][:1]
    if "temperature" not in refused:
        features.append("temperature")
    features += [limit for limit in LIMITS if limit not in refused][:1]
    return features


def written(request: ChatRequest, model: str, features: Collection[Feature]) -> dict[str, Any]:
    """Return the request's JSON object, using ``features``."""
    messages = [{"role": "user", "content": request.user}]
    if request.system:
        messages.insert(0, {"role": "system", "content": request.system})
    body: dict[str, Any] = {"model": model, "messages": messages}
    for feature in features:
        match feature:
            case "json_schema":
                schema = {"name": "reply", "schema": request.schema, "strict": True}
                body["response_format"] = {"type": "json_schema", "json_schema": schema}
            case "json_object":
                body["response_format"] = {"type": "json_object"}
            case "temperature":
                body["temperature"] = 0
            case "max_tokens" | "max_completion_tokens":
                body[feature] = request.max_tokens
    return body


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an endpoint refused, as far as it says so.

    Attributes:
        field: The request field that it names, or an empty text.
        code: Its code, or an empty text.
        message: Its words, lower case, the first 500 characters; they may quote the request.
    """

    field: str = ""
    code: str = ""
    message: str = ""

    @property
    def is_about_size(self) -> bool:
        """True where the request was too long, whatever fields the message names."""
        return "context_length" in self.code or any(word in self.message for word in SIZE_WORDS)

    @property
    def is_about_content(self) -> bool:
        """True where a content filter refused the prompt."""
        return self.code in FILTER_CODES

    def refused(self, features: Collection[Feature]) -> frozenset[Feature]:
        """Return which of the sent ``features`` are refused; none where it does not say."""
        named = _named(self.field, features)
        if named and not (self.is_about_size and named & set(LIMITS)):
            return named
        return frozenset() if self.is_about_size else _named(self.message, features)


def explained(body: object) -> Explanation:
    """Read an error's body in any of the shapes that servers use."""
    if isinstance(body, list) and body:
        body = body[0]
    if isinstance(body, dict) and isinstance(body.get("error"), dict | str):
        body = body["error"]
    if isinstance(body, str):
        return Explanation(message=_cut(body))
    if not isinstance(body, dict):
        return Explanation()
    return Explanation(
        field=_cut(body.get("param")),
        code=_cut(body.get("code")),
        message=_cut(body.get("message")) or _cut(_places(body.get("detail"))),
    )


def _named(text: str, features: Collection[Feature]) -> frozenset[Feature]:
    rungs = frozenset(features) & set(RUNGS)
    named = frozenset(features).difference(rungs) & {name for name in features if name in text}
    has_format = any(word in text for word in FORMAT_WORDS)
    has_loose = not named and any(word in text for word in LOOSE_FORMAT_WORDS)
    return named | rungs if has_format or has_loose else named


def _cut(text: object) -> str:
    return text[:EXPLAINED_CHARS].lower() if isinstance(text, str) else ""


def _places(detail: object) -> object:
    # FastAPI's shape: a list of places. Their "input" quotes the request and is not read.
    if not isinstance(detail, list):
        return detail
    return " ".join(_place(place) for place in detail[:EXPLAINED_PLACES])


def _place(place: object) -> str:
    if not isinstance(place, Mapping):
        return ""
    where = place.get("loc")
    return f"{where if isinstance(where, list) else ''} {place.get('msg', '')}"
