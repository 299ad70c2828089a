"""Reading what an endpoint may send: anything."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rectifier_core.adapters.completion import UnreadableError, read_completion
from rectifier_core.adapters.dialect import explained
from rectifier_core.chat import ChatReply

ANY_TEXT = st.text(st.characters(), max_size=8)
ANY_LEAF = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | ANY_TEXT
    | st.sampled_from(["text", "refusal", "length", "stop", "content_filter"])
)
NAMES = st.sampled_from(
    [
        "choices",
        "message",
        "content",
        "finish_reason",
        "refusal",
        "usage",
        "prompt_tokens",
        "completion_tokens",
        "prompt_tokens_details",
        "cached_tokens",
        "model",
        "type",
        "text",
        "error",
        "param",
        "code",
        "detail",
        "loc",
        "msg",
    ]
)
ANY_JSON = st.recursive(
    ANY_LEAF,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


def read(value: object) -> ChatReply | None:
    try:
        return read_completion(json.dumps(value).encode(), model="asked")
    except UnreadableError:
        return None


def check(reply: ChatReply) -> None:
    reply.text.encode()
    reply.model.encode()
    assert reply.model
    assert 0 <= reply.usage.cached_tokens <= reply.usage.prompt_tokens <= 10**9
    assert 0 <= reply.usage.completion_tokens <= 10**9
    assert not (reply.is_cut and reply.is_refused)


@settings(max_examples=150, deadline=None)
@given(choice=ANY_JSON, message=ANY_JSON, usage=ANY_JSON, model=ANY_JSON)
def test_any_json_is_a_sound_reply_or_unreadable(
    choice: Any, message: Any, usage: Any, model: Any
) -> None:
    parts = choice if isinstance(choice, dict) else {"finish_reason": choice}
    said = message if isinstance(message, dict) else {"content": message}
    for value in (
        choice,
        {"choices": choice},
        {"choices": [{**parts, "message": said}], "usage": usage, "model": model},
    ):
        reply = read(value)
        if reply is not None:
            check(reply)


@settings(max_examples=100, deadline=None)
@given(body=st.binary(max_size=64))
def test_any_bytes_are_unreadable(body: bytes) -> None:
    try:
        read_completion(body, model="asked")
    except UnreadableError:
        return
    raise AssertionError("read a reply out of noise")


@settings(max_examples=100, deadline=None)
@given(body=ANY_JSON)
def test_any_error_body_is_read_without_an_error(body: Any) -> None:
    explanation = explained(body)
    sent = ["json_schema", "temperature", "max_tokens"]
    assert explanation.refused(sent) <= set(sent)  # type: ignore[arg-type]
