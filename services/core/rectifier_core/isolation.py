"""Isolation: text of others goes into a prompt as data, every character of it visible.

Three defences, none of which a reader of the text can undo: the text is one line of JSON, so it
cannot open a line of its own; what a reader would not see, and what a model server could take for
a token of its chat template, is written as a JSON escape; and the message stands between two
lines with a mark that is drawn for this request alone.
"""

import json
import re
import secrets
import unicodedata

_INVISIBLE_RANGES = (
    "\u007f-\u009f"  # controls above ASCII; those below are escaped by JSON
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_INVISIBLE = re.compile(f"[{_INVISIBLE_RANGES}]")
_CONTROL = re.compile(f"[\\x00-\\x1f{_INVISIBLE_RANGES}]")
_SURROGATE = re.compile("[\ud800-\udfff]")

# The first character of whatever a chat template may read: <|im_end|>, <s>, </think>, <<SYS>>,
# [INST], and the fullwidth bars of DeepSeek.
_TEMPLATE = re.compile(
    r"<(?=[|\uff5c/!]|<{1,3}/?[A-Z]{3}|[A-Za-z_][\w:.\-]{0,60}>)|\[(?=/?(?:[A-Z_]{2,30}|[gs]MASK)\])|\](?=~)"
)


def whole(text: str) -> str:
    """Return ``text`` with every lone surrogate replaced by U+FFFD, so that it encodes."""
    return _SURROGATE.sub("\ufffd", text)


def encoded(text: str | list[str]) -> str:
    """Return ``text`` as one line of JSON that reads back as the same text.

    Letters of every script stay as they are; invisible characters and the first character of
    chat template tokens are escapes. Lone surrogates become U+FFFD.
    """
    line = json.dumps(text, ensure_ascii=False)
    if _is_plain(line):
        return line
    return _TEMPLATE.sub(_escape, _INVISIBLE.sub(_escape, whole(line)))


def visible(text: str) -> str:
    r"""Return ``text`` as one line for people and models to read, not to be parsed.

    Printable text stays exactly as it is; line breaks are ``\n`` in two characters, and what
    `encoded` escapes is escaped.
    """
    if _is_plain(text):
        return text
    return _TEMPLATE.sub(_escape, _CONTROL.sub(_escape, whole(text)))


def sealed(text: str) -> str:
    """Return ``text`` encoded, between two lines with a mark that nobody can foresee."""
    mark = f"DATA-{secrets.token_hex(8)}"
    return f"{mark}\n{encoded(text)}\n{mark}"


def folded(text: str) -> str:
    """Return ``text`` as it is compared: NFC, white space folded, invisible characters dropped."""
    seen = _INVISIBLE.sub("", whole(text))
    return " ".join(unicodedata.normalize("NFC", seen).split())


def plain(text: str) -> str:
    """Return ``text`` as one line that hides nothing, for people and agents to read.

    Controls and white space are folded, invisible characters dropped, and the tokens of chat
    templates broken by a space.
    """
    shown = " ".join(_CONTROL.sub(_blank, whole(text)).split())
    return _TEMPLATE.sub(r"\g<0> ", shown)


def _is_plain(text: str) -> bool:
    """Return True for text that surely has nothing to escape: the common case, told cheaply."""
    return text.isascii() and text.isprintable() and not any(sign in text for sign in "<[]")


def _blank(match: re.Match[str]) -> str:
    return " " if match[0] < "\x20" or match[0] in "\u0085\u2028\u2029" else ""


def _escape(match: re.Match[str]) -> str:
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(match[0])
    if short:
        return short
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
