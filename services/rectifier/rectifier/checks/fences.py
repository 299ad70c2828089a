"""Fenced code blocks of a message."""

import re
from dataclasses import dataclass

_FENCE = re.compile(r"^[ \t]{0,12}(?:[-*+>][ \t]+)?(`{3,}|~{3,})([^`\r\n]*)\r?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block.

    Attributes:
        language: The first word after the opening fence, lower case; empty where there is none.
        body: The text between the fences.
        start: Where the opening fence begins in the message.
        body_start: Where the body begins.
        body_end: Where it ends.
        end: Where the closing fence ends.
        is_closed: False where the message ends first.
    """

    language: str
    body: str
    start: int
    body_start: int
    body_end: int
    end: int
    is_closed: bool


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of ``text`` in order; an open one reaches to the end."""
    found: list[Block] = []
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opening is None:
            opening = fence
        elif fence[1].startswith(opening[1]) and not fence[2].strip():
            found.append(_block(text, opening, fence))
            opening = None
    if opening is not None:
        found.append(_block(text, opening, None))
    return found


def _block(text: str, opening: re.Match[str], closing: re.Match[str] | None) -> Block:
    body_start = min(opening.end() + 1, len(text))
    body_end = max(body_start, closing.start()) if closing else len(text)
    words = opening[2].strip(" \t{}.").lower().split(maxsplit=1)
    return Block(
        language=words[0] if words else "",
        body=text[body_start:body_end],
        start=opening.start(),
        body_start=body_start,
        body_end=body_end,
        end=closing.end() if closing else len(text),
        is_closed=closing is not None,
    )
