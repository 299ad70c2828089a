"""Evidence: whether an accusation quotes what it accuses, and says what would be right.

The judge presumes a message valid; this module holds it to that. A quote must stand in the
message or the task word for word, the correction must be concrete, and it must change the
conclusion.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from rectifier.verdict import EvidenceIn
from rectifier_core.isolation import folded
from rectifier_core.reply import with_latex

Problem = Literal["no_quote", "not_a_quote", "no_correction", "no_impact"]

_ESCAPE = re.compile(r"""\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))""")
_LETTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
# One character for one: a place in the typed text is a place in the text.
_TYPED = str.maketrans(
    dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb", '"')
    | dict.fromkeys("\u2018\u2019\u201a\u201b", "'")
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
)
_WRAPPED = re.compile(r"""(["'`]|\*{1,3}|_{1,3}|~~)(?P<quote>.+)\1""")
_PEELS = 4  # marks round a quote that are taken off, one in the other

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
_FOREIGN_NO = (
    "nein|nee|nej|nei|non|n\u00e3o|nao|nie|ne|hay\u0131r|tidak|kh\u00f4ng|\u043d\u0435\u0442|\u043d\u0456|\u043d\u0435|\u03cc\u03c7\u03b9"
    "|\u3044\u3044\u3048|\u5426|\u4e0d|\u4e0d\u662f|\u4e0d\u4f1a|\u6ca1\u6709|\u65e0|\u7121|\u306a\u3057|\uc544\ub2c8\uc694|\uc544\ub2c8\uc624|\u0644\u0627|\u05dc\u05d0|\u0928\u0939\u0940\u0902"
)
_THE = r"(?:(?:the|its|this|final|core|overall|main)\s+)*"
_OUTCOME = "answer|result|conclusion|outcome"
_SAME = "(?:unchanged|the same|correct|valid|right)"
# What may stand between the outcome and the word that says it stays, and not turn to another thing.
_SAID_OF_IT = r"(?:(?!\b(?:becomes?|changes?|and|but|while|not|cannot|longer)\b|n't)[^.;]){0,60}?"
_NO_IMPACT = re.compile(
    r"(?-i:NO)\b|(?:no|none|nothing|false|not)(?:\s*[,.;:(\u2013\u2014-]"
    r"|\s+(?:\w+\s+)?(?:impact|effect|changed?|changes|difference|influence|consequences?|affected)\b)"
    rf"|(?:{_FOREIGN_NO})\s*(?:[,.;:!\u3001\u3002\uff01\uff0c\uff1a\uff1b]|\Z)"
    rf"|(?:(?:is|are|still)\s+)*(?:unchanged|(?:remains|stays) {_SAME})\W*\Z"
    r"|(?!yes\b).{0,200}?(?:\b(?:does|do|would|will)(?: not|n't)\s+(?:\w+\s+)?"
    rf"(?:change|affect|alter|influence|impact)\s+{_THE}(?:{_OUTCOME}|anything|it)\b"
    rf"|\b(?:{_OUTCOME}|it|everything)\b{_SAID_OF_IT}\b(?:unchanged|(?:stays|remains) {_SAME})"
    rf"|\bunchanged {_THE}(?:{_OUTCOME})\b"
    rf"|\bno (?:impact|effect|change)(?:\s*(?:[.,;:!)]|\Z)|\s+(?:on|to|in|for)\s+{_THE}(?:{_OUTCOME})\b))",
    re.IGNORECASE,
)
# A sign that can be a whole answer, in LaTeX's brackets or not: an inequality, infinity.
_RELATION = re.compile(
    r"\A[\s$`'\"*(\[\\]{0,4}(?:[<>=!]=|[<>=+]|[\u00b1\u2190-\u22ff\u2a00-\u2aff])[\s$`'\"*.)\]\\]{0,4}\Z"
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


@dataclass(frozen=True)
class Sources:
    """What may be quoted; folded when the first quote is looked for, and once.

    Attributes:
        message: The message.
        task: The task.
    """

    message: str
    task: str

    def find(self, quote: str) -> Quote | None:
        """Return where ``quote`` stands, the message before the task, or None.

        It may differ in white space, invisible characters, Unicode composition, one level of JSON
        escapes, the shape of quotation marks and dashes, a full stop or comma at its end, and
        quotation or emphasis marks around it. It must hold two letters or digits, or one digit or
        letter outside ASCII; up to 12 characters it must be whole words (``20`` is not in
        ``203``).
        """
        forms = [form for form in dict.fromkeys(_forms(quote)) if _says_something(form)]
        for where, text, typed in self._places if forms else ():
            for form in forms:
                start = _place(form, typed)
                if start >= 0:
                    return Quote(text[start : start + len(form)], where)
        return None

    @cached_property
    def _places(self) -> tuple[tuple[EvidenceIn, str, str], ...]:
        message, task = folded(self.message), folded(self.task)
        return (
            ("message", message, message.translate(_TYPED)),
            ("task", task, task.translate(_TYPED)),
        )


def is_nothing(text: str) -> bool:
    """Return True where ``text`` says nothing: blank, ``N/A``, ``none``, ``unclear``, a dash."""
    return _NOTHING.fullmatch(_bare(text)) is not None


def is_concrete(correction: str, *, evidence: str) -> bool:
    """Return True where ``correction`` says what to write instead of ``evidence``.

    Source: AgentDropoutV2, the actionability test of the judge.
    """
    text = folded(correction).casefold()
    if text == folded(evidence).casefold():
        return False
    words = re.findall(r"\w+", text)
    if not words:
        return _RELATION.search(text) is not None
    is_truth = _bare(text) == "false"  # an answer, where the task asks for one
    return is_truth or not (is_nothing(correction) or set(words) <= _VAGUE)


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
        form = folded(text).translate(_TYPED)
        yield form
        for _ in range(_PEELS):
            form = _peeled(form)
            yield form


def _peeled(form: str) -> str:
    if wrapped := _WRAPPED.fullmatch(form):
        return wrapped["quote"].strip()
    # An ellipsis is not a full stop: it says that the quote is cut.
    is_ended = form.endswith((".", ",")) and not form.endswith("..")
    return form[:-1].rstrip() if is_ended else form


def _says_something(form: str) -> bool:
    if _NO_QUOTE.fullmatch(_bare(form)):
        return False
    telling = [character for character in form if character.isalnum()]
    return len(telling) > 1 or any(c.isdigit() or not c.isascii() for c in telling)


def _place(form: str, text: str) -> int:
    """Return where ``form`` stands in ``text``, or -1."""
    if len(form) > _SHORT:
        return text.find(form)
    before = r"(?<![A-Za-z0-9])" if _is_ascii_word(form[0]) else ""
    after = r"(?![A-Za-z0-9])" if _is_ascii_word(form[-1]) else ""
    found = re.search(f"{before}{re.escape(form)}{after}", text)
    return found.start() if found else -1


def _is_ascii_word(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _unescaped(text: str) -> str:
    units = _ESCAPE.sub(_character, text)
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _character(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _LETTERS.get(match[2], match[2])
