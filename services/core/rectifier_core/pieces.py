"""Pieces of a message: parts that an embedding model's window holds."""

from dataclasses import dataclass

LONGEST = 500  # characters: finds more than 300 or 800 do (tests/core/test_retrieval_recall.py)
EDGE = 4  # parts kept at either end of a long text, and as many between
MOST = 3 * EDGE

# From the border that parts ideas best to the one that parts them worst.
_BORDERS = (("\n\n",), (". ", "! ", "? ", ".\n", "!\n", "?\n", "。", "\n"), (" ", "\t"))


@dataclass(frozen=True, slots=True)
class Pieces:
    """A text in parts.

    Attributes:
        texts: The parts in order, 12 at most, none of them blank.
        is_cut: True where parts between were left out.
    """

    texts: tuple[str, ...]
    is_cut: bool


def pieces(text: str, *, longest: int = LONGEST) -> Pieces:
    """Cut ``text`` at the ends of paragraphs, sentences or words, into parts of about one length.

    Of more than 12 parts the first 4, the last 4 and 4 evenly spread between are kept: a message
    says what it is about at its start and what it concludes at its end. The time is linear in the
    text.

    Args:
        text: Anything; blank text has no parts.
        longest: Characters of a part at most, 2 or more.
    """
    parts = _parts(text.strip(), longest)
    if len(parts) <= MOST:
        return Pieces(tuple(parts), is_cut=False)
    between = len(parts) - 2 * EDGE
    spread = [parts[EDGE + between * (2 * i + 1) // (2 * EDGE)] for i in range(EDGE)]
    return Pieces((*parts[:EDGE], *spread, *parts[-EDGE:]), is_cut=True)


def _parts(text: str, longest: int) -> list[str]:
    parts = []
    start = 0
    while start < len(text):
        left = len(text) - start
        # A last part of a few words would match anything, so what is left is shared out evenly.
        even = -(-left // -(-left // longest))
        end = start + left if left <= longest else _border(text, start, even, longest)
        part = text[start:end].strip()
        if part:
            parts.append(part)
        start = end
    return parts


def _border(text: str, start: int, even: int, longest: int) -> int:
    """Return where the part from ``start`` ends: the best border around ``even`` characters on."""
    earliest, latest = start + even * 3 // 4, start + min(longest, even * 5 // 4)
    for borders in _BORDERS:
        ends = [text.rfind(border, earliest, latest) + len(border) for border in borders]
        end = max(ends)
        if end > earliest:
            return end
    return start + even
