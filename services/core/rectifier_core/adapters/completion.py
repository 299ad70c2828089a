"""Reading a chat completion: from a body that anything may have written to a reply."""

import contextlib
import json
from typing import Any

from rectifier_core.chat import ChatReply, Usage

MODEL_CHARS = 128
MOST_TOKENS = 10**9

# Endings of a reply that is whole. Whatever else is named there, the reply does not count as
# whole: a verdict read from it could clear a message by accident.
WHOLE = frozenset({"stop", "eos", "end_turn", "stop_sequence", "tool_calls", "function_call", ""})
REFUSED = frozenset(
    {"content_filter", "refusal", "safety", "recitation", "blocklist", "prohibited_content", "spii"}
)


class UnreadableError(ValueError):
    """The body is no chat completion."""


def read_completion(body: bytes, *, model: str) -> ChatReply:
    """Return the reply in ``body``.

    The text is the content alone. What a server puts into a separate reasoning field, even the
    JSON that was asked for, is not the answer: the text then is empty, which clears nothing.

    Args:
        body: What the endpoint sent.
        model: The model that was asked, for an endpoint that does not say which one answered.

    Raises:
        UnreadableError: It is no JSON, or holds no choice with a message.
    """
    answer = _object(body)
    choice = _first_choice(answer)
    message = choice["message"]
    ending = choice.get("finish_reason")
    ending = ending.lower() if isinstance(ending, str) else ""
    content, parts_refuse = _text(message.get("content"))
    refusal = message.get("refusal")
    is_refused = (
        parts_refuse
        or (isinstance(refusal, str) and bool(refusal.strip()))
        or any(ending.startswith(word) for word in REFUSED)
    )
    return ChatReply(
        text=_encodable(content),
        is_cut=not is_refused and ending not in WHOLE,
        is_refused=is_refused,
        model=_model(answer.get("model"), model),
        usage=_usage(answer.get("usage")),
    )


def _object(body: bytes) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        answer = json.loads(body)
        if isinstance(answer, dict):
            return answer
    # Raised here, because the caught error holds the reply.
    raise UnreadableError("the answer is no JSON object")


def _first_choice(answer: dict[str, Any]) -> dict[str, Any]:
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, dict) or not isinstance(first.get("message"), dict):
        raise UnreadableError("the answer holds no choice")
    return first


def _text(content: object) -> tuple[str, bool]:
    if isinstance(content, str):
        return content, False
    if content is None:
        return "", False
    if not isinstance(content, list):
        raise UnreadableError("the content is no text")
    parts = [part for part in content if isinstance(part, dict)]
    texts = [part.get("text") for part in parts if part.get("type") in {"text", "output_text"}]
    is_refused = any(part.get("type") == "refusal" for part in parts)
    return "".join(text for text in texts if isinstance(text, str)), is_refused


def _encodable(text: str) -> str:
    # JSON can spell half a surrogate pair, which no encoder takes further down.
    return text.encode(errors="replace").decode()


def _model(named: object, asked: str) -> str:
    if isinstance(named, str) and named.isprintable() and 0 < len(named) <= MODEL_CHARS:
        return named
    return asked


def _usage(usage: object) -> Usage:
    if not isinstance(usage, dict):
        return Usage(calls=1)
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    prompt = _tokens(usage.get("prompt_tokens"))
    return Usage(
        calls=1,
        prompt_tokens=prompt,
        cached_tokens=min(prompt, _tokens(cached)),
        completion_tokens=_tokens(usage.get("completion_tokens")),
    )


def _tokens(count: object) -> int:
    if not isinstance(count, int) or isinstance(count, bool):
        return 0
    return count if 0 <= count <= MOST_TOKENS else 0
