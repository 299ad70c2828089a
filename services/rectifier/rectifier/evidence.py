"""Evidence: whether an accusation quotes what it accuses, and says what would be right.

The judge presumes a message valid; this module holds it to that. A quote must stand in the
message or the task word for word, the correction must be concrete, and it must change the
conclusion.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from rectifier.verdict import EvidenceIn
from rectifier_core.isolation import folded
from rectifier_core.reply import with_latex

Problem = Literal["no_quote", "not_a_quote", "no_correction", "no_impact"]

_ESCAPE = re.compile(r"""\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))""")
_LETTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_QUOTES = {'"': '"', "'": "'", "`": "`", "\u201c": "\u201d", "\u2018": "\u2019", "\u00ab": "\u00bb"}

_SHORT = 12  # characters; a quote up to here must begin and end where words do
_NO_QUOTE = re.compile(
    r"(?:n\s*/?\s*a|none|nil|null|not (?:applicable|available)|empty|exact quote)?", re.IGNORECASE
)
_NOTHING = re.compile(
    rf"{_NO_QUOTE.pattern}|nothing|no|false|unclear|unknown|unsure|uncertain|undefined|tbd|string"
    r"|not (?:needed|required|sure|clear|found|specified)|what it should be|concrete correction"
    r"|what the answer becomes|(?:no|none) (?:[\w ]{0,40} )?(?:needed|required|necessary|possible)"
    r"|no (?:change|correction|suggestion|error|fix|evidence|quote|issue|flaw|violation)s?",
    re.IGNORECASE,
)
_NO_IMPACT = re.compile(
    r"(?-i:NO)\b|(?:no|none|nothing|false|not)(?:\s*[,.;:(\u2013\u2014-]"
    r"|\s+(?:\w+\s+)?(?:impact|effect|changed?|changes|difference|influence|consequences?|affected)\b)"
    r"|(?!yes\b).{0,200}?(?:\b(?:does|do|would|will)(?: not|n't)\s+(?:\w+\s+)?"
    r"(?:change|affect|alter|influence|impact)\s+(?:(?:the|its|this|final|core|overall|main)\s+)*"
    r"(?:answer|result|conclusion|outcome|anything|it)\b|\bunchanged\b"
    r"|\b(?:stays|remains) (?:the same|correct|valid|right)\b|\bno (?:impact|effect|change)\b)",
    re.IGNORECASE,
)
_VAGUE = frozenset(
    [
        "please",
        "re",
        "check",
        "recheck",
        "double",
        "verify",
        "review",
        "fix",
        "correct",
        "revise",
        "reconsider",
        "improve",
        "rethink",
        "redo",
        "again",
        "carefully",
        "careful",
        "more",
        "be",
        "it",
        "this",
        "that",
        "the",
        "your",
        "its",
        "all",
        "any",
        "error",
        "errors",
        "mistake",
        "mistakes",
        "issue",
        "problem",
        "work",
        "answer",
        "message",
        "reasoning",
        "solution",
        "output",
        "properly",
        "and",
        "or",
    ]
)


@dataclass(frozen=True, slots=True)
class Quote:
    """A quote that was found.

    Attributes:
        text: The quote, as it stands there but for white space and invisible characters.
        where: Where it stands.
    """

    text: str
    where: EvidenceIn


@dataclass(frozen=True, slots=True)
class Sources:
    """What may be quoted, folded once.

    Attributes:
        message: The message, folded.
        task: The task, folded.
    """

    message: str
    task: str

    @classmethod
    def of(cls, *, message: str, task: str) -> "Sources":
        """Return the sources of one audit."""
        return cls(folded(message), folded(task))

    def find(self, quote: str) -> Quote | None:
        """Return where ``quote`` stands, the message before the task, or None.

        It may differ in white space, invisible characters, Unicode composition, one level of JSON
        escapes, and quotation marks around it. It must hold two letters or digits, or one digit
        or letter outside ASCII; up to 12 characters it must be whole words (``20`` is not in
        ``203``).
        """
        places: tuple[tuple[EvidenceIn, str], ...] = (
            ("message", self.message),
            ("task", self.task),
        )
        forms = [form for form in _forms(quote) if _says_something(form)]
        for where, text in places:
            for form in forms:
                if _stands_in(form, text):
                    return Quote(form, where)
        return None


def is_nothing(text: str) -> bool:
    """Return True where ``text`` says nothing: blank, ``N/A``, ``none``, ``unclear``, a dash."""
    return _NOTHING.fullmatch(_bare(text)) is not None


def is_concrete(correction: str, *, evidence: str) -> bool:
    """Return True where ``correction`` says what to write instead of ``evidence``.

    Source: AgentDropoutV2, the actionability test of the judge.
    """
    words = re.findall(r"\w+", folded(correction).casefold())
    if is_nothing(correction) or not words or set(words) <= _VAGUE:
        return False
    return folded(correction).casefold() != folded(evidence).casefold()


def has_impact(impact: str) -> bool:
    """Return True where ``impact`` says that the final answer or core conclusion changes.

    Source: AgentDropoutV2, the impact test of the judge.
    """
    return not is_nothing(impact) and _NO_IMPACT.match(folded(impact)) is None


def _bare(text: str) -> str:
    return folded(text).strip(" .,;:!?-\u2013\u2014_\"'`()[]<>*/\\")


def _forms(quote: str) -> Iterator[str]:
    escaped = json.dumps(quote, ensure_ascii=False)[1:-1]
    unread = escaped.replace('\\"', '"').replace("\\\\", "\\")  # a quote copied without escapes
    for text in (quote, _unescaped(quote), with_latex(quote), unread, escaped):
        form = folded(text)
        yield form
        if len(form) > 1 and _QUOTES.get(form[0]) == form[-1]:
            yield form[1:-1].strip()


def _says_something(form: str) -> bool:
    if _NO_QUOTE.fullmatch(_bare(form)):
        return False
    telling = [character for character in form if character.isalnum()]
    return len(telling) > 1 or any(c.isdigit() or not c.isascii() for c in telling)


def _stands_in(form: str, text: str) -> bool:
    if len(form) > _SHORT:
        return form in text
    before = r"(?<![A-Za-z0-9])" if _is_ascii_word(form[0]) else ""
    after = r"(?![A-Za-z0-9])" if _is_ascii_word(form[-1]) else ""
    return re.search(f"{before}{re.escape(form)}{after}", text) is not None


def _is_ascii_word(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _unescaped(text: str) -> str:
    units = _ESCAPE.sub(_character, text)
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _character(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _LETTERS.get(match[2], match[2])
