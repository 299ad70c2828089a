"""Replies of a model: which JSON values they hold, and whether one of them is all there is.

Reading is generous with form (fences, trailing commas, Python's quotes and words, LaTeX with one
backslash) and strict with substance: an object with a doubled key is no value, and a reply is
``sole`` only where nothing but reasoning before the value and one fence around it stands beside
it. Every reply is read in time that grows no faster than its length.
"""

import json
import re
from dataclasses import dataclass, field
from typing import TypeAlias

from rectifier_core.isolation import whole

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

REPLY_LIMIT = 1_048_576  # characters; a longer reply is not read
_SPAN_LIMIT = 262_144  # characters of one value
_EFFORT = 2_097_152  # characters looked at in vain, over the whole reply
_START_COST = 256  # characters that a bracket counts for, whatever follows it
_DEPTH_LIMIT = 64
_LONGEST_INTEGER = 1_000  # digits

_REASONING = r"(?:think|thinking|thoughts?|reasoning|reflection|scratchpad|analysis)\b[^<>]{0,200}>"
_OPENING = (
    rf"<(?:\w{{1,20}}:)?{_REASONING}|\[THINK\]|<\|begin_of_thought\|>"
    r"|<\|channel\|>\s?(?:analysis|commentary)\b[^<>]{0,40}<\|message\|>"
)
# Harmony's reasoning ends where its final channel begins.
_CLOSING = (
    rf"</(?:\w{{1,20}}:)?{_REASONING}|\[/THINK\]|<\|end_of_thought\|>"
    r"|<\|channel\|>\s?final\b[^<>]{0,40}<\|message\|>"
)
_MARK = re.compile(rf"(?P<close>{_CLOSING})|(?P<open>{_OPENING})|[{{\[]", re.IGNORECASE)
_CLOSE = re.compile(_CLOSING, re.IGNORECASE)
_FENCE = re.compile(r"(`{3,}|~{3,})\s?[\w+\-]{0,20}")

# Possessive, and an unclosed string runs to the end: nothing is scanned twice.
_STRING = r""""(?:[^"\\]++|\\.?)*+(?:"|\Z)|'(?:[^'\\]++|\\.?)*+(?:'|\Z)"""
_COMMENT = r"//[^\n]*+|\#[^\n]*+|/\*(?:[^*]|\*(?!/)){0,2000}+\*/"
_TOKEN = re.compile(rf"{_STRING}|{_COMMENT}|[{{}}\[\]]", re.DOTALL)
_LOOSE = re.compile(
    rf"(?P<string>{_STRING})|(?P<comment>{_COMMENT})|\b(?P<word>True|False|None)\b"
    rf"|(?<=[^\s\[{{,:])(?P<comma>,)(?=(?:\s|{_COMMENT})*+[}}\]])",
    re.DOTALL,
)
_ESCAPE = re.compile(r"""(?P<good>\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))|\\'|\\|\"""")
_WORDS = {"True": "true", "False": "false", "None": "null"}
_LATEX = re.compile(r"[\x08\x0c]|[\t\r](?=[a-z])")
_LATEX_LETTERS = {"\x08": r"\b", "\x0c": r"\f", "\t": r"\t", "\r": r"\r"}


@dataclass(frozen=True, slots=True)
class Value:
    """A JSON value that stands in a reply.

    Attributes:
        content: The value.
        text: How it was written.
    """

    content: Json
    text: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a reply holds.

    Attributes:
        values: Its outermost JSON values in order, without those in reasoning blocks.
        is_sole: True where there is one, bare or in one code fence, and nothing else.
    """

    values: tuple[Value, ...] = ()
    is_sole: bool = False


class _DoubledKeyError(ValueError):
    """An object has the same key twice: it says two things."""


def parse(text: str) -> Parsed:
    """Return the JSON values in ``text``. Never raises; hostile text costs linear time."""
    if len(text) > REPLY_LIMIT:
        return Parsed()
    walk = _Walk(whole(text).strip().removeprefix("\ufeff"))
    walk.run()
    is_sole = (
        len(walk.values) == 1
        and not walk.is_marred
        and _frames("".join(walk.before), "".join(walk.after))
    )
    return Parsed(tuple(walk.values), is_sole)


def as_bool(value: Json) -> bool | None:
    """Return the truth that ``value`` states: a boolean, or the word in any case; else None."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return None


def as_number(value: Json) -> int | None:
    """Return the positive whole number that ``value`` is, or writes in at most three digits.

    True is not 1, and neither is 1.0: a model that writes those does not copy a number it was
    given.
    """
    if isinstance(value, str) and re.fullmatch(r"[1-9][0-9]{0,2}", value.strip(), re.ASCII):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    return None


def as_text(value: Json) -> str:
    """Return ``value`` as text: a string as it is, a number or boolean as JSON, else empty."""
    if isinstance(value, str):
        return whole(value)
    return json.dumps(value) if isinstance(value, int | float) else ""


def with_latex(text: str) -> str:
    r"""Return ``text`` with the control characters that JSON made of LaTeX turned back.

    ``"\frac"`` in a reply is valid JSON for a form feed and ``rac``; nobody means a form feed.
    """
    return _LATEX.sub(lambda match: _LATEX_LETTERS[match[0]], text)


@dataclass(slots=True)
class _Walk:
    """One pass over a reply, outside strings and reasoning blocks."""

    text: str
    values: list[Value] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    is_marred: bool = False
    effort: int = _EFFORT

    def run(self) -> None:
        position = 0
        while (mark := _MARK.search(self.text, position)) and self.effort > 0:
            self._keep(self.text[position : mark.start()])
            if mark["close"]:
                self._forget()
                position = mark.end()
            elif mark["open"]:
                position = self._reasoning(mark)
            else:
                position = self._value(mark.start())
        self.is_marred |= self.effort <= 0
        self._keep(self.text[position:])

    def _keep(self, beside: str) -> None:
        (self.after if self.values else self.before).append(beside)

    def _forget(self) -> None:
        """A reasoning block ended whose start was not sent: all so far was a draft."""
        self.values.clear()
        self.before.clear()
        self.after.clear()
        self.is_marred = False

    def _reasoning(self, mark: re.Match[str]) -> int:
        # Reasoning after a value may take it back.
        self.is_marred |= bool(self.values)
        if mark[0].endswith("/>"):
            return mark.end()
        close = _CLOSE.search(self.text, mark.end())
        self.is_marred |= close is None
        return close.end() if close else len(self.text)

    def _value(self, start: int) -> int:
        end = _end(self.text, start)
        self.effort -= _START_COST
        if end is None:
            self.effort -= min(len(self.text) - start, _SPAN_LIMIT)
        else:
            written = self.text[start:end]
            try:
                content, is_whole = _loads(written)
            except _DoubledKeyError:
                self.is_marred = True
                return end
            except (ValueError, RecursionError):
                self.effort -= len(written)
            else:
                self.is_marred |= not is_whole
                self.values.append(Value(content, written))
                return end
        self._keep(self.text[start])
        return start + 1


def _frames(before: str, after: str) -> bool:
    before, after = before.strip(), after.strip()
    if not before and not after:
        return True
    fence = _FENCE.fullmatch(before)
    return fence is not None and fence[1] == after


def _end(text: str, start: int) -> int | None:
    """Return where the bracket at ``start`` is closed, or None."""
    depth = 0
    for token in _TOKEN.finditer(text, start, min(len(text), start + _SPAN_LIMIT)):
        if token[0] in "{[":
            depth += 1
        elif token[0] in "}]":
            depth -= 1
        if depth == 0:
            return token.end()
        if depth > _DEPTH_LIMIT:
            return None
    return None


def _loads(text: str) -> tuple[Json, bool]:
    """Return the value, and whether all of ``text`` is in it: comments and odd numbers are not."""
    try:
        return _strict(text), True
    except _DoubledKeyError:
        raise
    except (ValueError, RecursionError):
        dropped: list[str] = []

        def drop(written: str) -> None:
            dropped.append(written[:1])

        def tightened(match: re.Match[str]) -> str:
            if match["comment"]:
                drop(match["comment"])
            return _tightened(match)

        def integer(written: str) -> int | None:
            if len(written) <= _LONGEST_INTEGER:
                return int(written)
            drop(written)
            return None

        value: Json = json.loads(
            _LOOSE.sub(tightened, text),
            strict=False,
            object_pairs_hook=_unique,
            parse_constant=drop,
            parse_int=integer,
        )
        return value, not dropped


def _strict(text: str) -> Json:
    value: Json = json.loads(text, strict=False, object_pairs_hook=_unique, parse_constant=_refused)
    return value


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise _DoubledKeyError("an object has a key twice")
    return value


def _refused(word: str) -> Json:
    raise ValueError(f"{word} is no JSON")


def _tightened(match: re.Match[str]) -> str:
    if match["string"]:
        return f'"{_ESCAPE.sub(_escaped, match["string"][1:-1])}"'
    return _WORDS[match["word"]] if match["word"] else ""


def _escaped(match: re.Match[str]) -> str:
    if match["good"]:
        return match[0]
    return {"\\'": "'", "\\": "\\\\", '"': '\\"'}[match[0]]
