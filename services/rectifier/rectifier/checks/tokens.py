"""Tokens of a calculation, in plain text and LaTeX."""

import re
from collections.abc import Iterator
from enum import IntEnum, auto
from typing import NamedTuple

UNIT_WORDS = 3  # at most, e.g. "large red balls"


class Kind(IntEnum):
    """What a token is for a calculation; a number, because its hash is asked for often."""

    NUMBER = auto()
    OPERATOR = auto()  # one of + - * / ^ of, or C for "choose"
    OPEN = auto()
    CLOSE = auto()
    FRACTION = auto()
    ROOT = auto()
    BINOMIAL = auto()
    POWER = auto()  # superscript digits
    PERCENT = auto()
    FACTORIAL = auto()
    CURRENCY = auto()
    UNIT = auto()
    SCALE = auto()  # thousand, million, ..
    EQUAL = auto()
    ABOUT = auto()
    STOP = auto()  # ends an expression
    PROSE = auto()  # a word of the sentence round it
    UNKNOWN = auto()  # a variable, a function, a notation that is not read


RELATIONS = frozenset({Kind.EQUAL, Kind.ABOUT})
OPERAND_ENDS = frozenset(
    {Kind.NUMBER, Kind.CLOSE, Kind.PERCENT, Kind.POWER, Kind.FACTORIAL, Kind.UNIT, Kind.SCALE}
)
OPERAND_STARTS = frozenset(
    {Kind.NUMBER, Kind.OPEN, Kind.CURRENCY, Kind.ROOT, Kind.FRACTION, Kind.BINOMIAL}
)
MINUS = frozenset("-–")  # an en dash is a minus too, or a range
EXPRESSION = OPERAND_ENDS | OPERAND_STARTS | {Kind.OPERATOR}


class Token(NamedTuple):
    """A piece of the text; a tuple, because a message has hundreds.

    Attributes:
        kind: What it is.
        text: Its meaning: the digits of a number, the sign of an operator, the word of a unit.
        start: Where it begins.
        end: Where it ends.
        is_tight: True where nothing stands between it and the token before.
    """

    kind: Kind
    text: str
    start: int
    end: int
    is_tight: bool = False


_SEPARATOR = r"(?:,\\?!?|\{,\}|\\,|\\;|[\u2009\u202f])"
_PATTERNS = (
    ("open", r"(?:\\(?:left|[bB]igg?l?|boxed)[ \t]*)?[(\[{]"),
    ("close", r"(?:\\(?:right|[bB]igg?r?)[ \t]*)?[)\]}]"),
    (
        "space",
        r"[ \t\r\u00a0\u2002-\u200a\u202f]+|\\[,;:! ]|~(?=\\)"
        r"|\\(?:displaystyle|textstyle|limits)(?![A-Za-z])|\\(?:left|right)(?=[ \t]*\.)",
    ),
    (
        "bad",
        # 0.1(6) is a recurring decimal.
        r"0[xXbBoO][0-9a-fA-F]+\b|\d+[.,]\d*[(\[]\d+[)\]]|\b\d{1,4}-\d{1,2}-\d{1,4}\b|(?<=\d):(?=\d)"
        r"|\\(?:[lc]?dots|dotsc|dotsb|dotsm)(?![A-Za-z])|\.{2,}|…|//|\\(?:pm|mp)(?![A-Za-z])|\\[{}]",
    ),
    (
        "number",
        rf"(?:\d{{1,3}}(?:{_SEPARATOR}\d{{3}})+(?!\d)(?:\.\d+)?|\d{{1,2}}(?:,\d\d)+,\d{{3}}(?!\d)"
        r"|\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d{1,3}(?![\w.]))?",
    ),
    ("power", r"[⁰¹²³⁴⁵⁶⁷⁸⁹]+"),
    ("raise", r"(?<=[\d)}])\*\*(?=[\d({-])|(?<=[\d)}] )\*\*(?= [\d({-])|\^"),
    ("space2", r"\*\*|__"),
    (
        "stop",
        r"\$\$|\\[\[\]()]|\\\\|={2,}|[<>!:+\-*/%^|~]=|=[<>~]|->|[<>≤≥≠→⇒⟹⇔∴—]"
        r"|\\(?:quad|qquad|implies|to|(?:Long)?[rR]ightarrow|iff|[lg]eq?|neq?|lt|gt|therefore)(?![A-Za-z])"
        r"|\\(?:begin|end)\{[a-zA-Z*]{1,20}\}",
    ),
    ("equal", r"="),
    ("about", r"[≈≃≅≒]|\\(?:approx|simeq|doteq|thickapprox)(?![A-Za-z])"),
    ("operator", r"[-+*/×·⋅∗∙÷⁄∕−–＋]|\\(?:times|cdot|ast|div)(?![A-Za-z])"),
    ("fraction", r"\\[dtc]?frac(?![A-Za-z])"),
    ("root", r"\\sqrt(?![A-Za-z])|√|\bsqrt(?= ?\()"),
    ("binomial", r"\\[dt]?binom(?![A-Za-z])"),
    ("percent", r"\\?%|\bper ?cent\b"),
    ("factorial", r"!"),
    ("currency", r"\\?\$|[€£¥₹]"),
    ("text", r"\\(?:text|mathrm|mbox|textrm|operatorname)\{[^{}\n]{0,60}\}"),
    ("word", r"[^\W\d_⁰¹²³⁴⁵⁶⁷⁸⁹½¼¾⅓⅔]+"),
    ("stop2", r"[.,;:\"“”„«»'‘’`|&\n✓✔✅☑]\ufe0f?"),
    ("unknown", r"\\[A-Za-z]+|."),
)
_TOKEN = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _PATTERNS), re.DOTALL)
_SEPARATORS = re.compile(rf"{_SEPARATOR}(?=\d)")
_TEXT = re.compile(r"\\[a-z]+\{[\s~\\,]*([^{}]*?)[\s~.\\,]*\}")
_WORDS = re.compile(r"[^\W\d_]+(?:[ -][^\W\d_]+)*")
_SIGNS = {
    **dict.fromkeys(("×", "·", "⋅", "∗", "∙", "\\times", "\\cdot", "\\ast"), "*"),
    **dict.fromkeys(("÷", "⁄", "∕", "\\div"), "/"),
    "−": "-",
    "＋": "+",
}
_SPOKEN = {"times": "*", "plus": "+", "minus": "-", "choose": "C", "x": "*", "X": "*"}
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_KINDS = {
    "bad": Kind.UNKNOWN, "number": Kind.NUMBER, "power": Kind.POWER, "raise": Kind.OPERATOR,
    "stop": Kind.STOP, "stop2": Kind.STOP, "equal": Kind.EQUAL, "about": Kind.ABOUT,
    "operator": Kind.OPERATOR, "fraction": Kind.FRACTION, "root": Kind.ROOT,
    "binomial": Kind.BINOMIAL, "open": Kind.OPEN, "close": Kind.CLOSE, "percent": Kind.PERCENT,
    "factorial": Kind.FACTORIAL, "currency": Kind.CURRENCY, "text": Kind.PROSE,
    "word": Kind.PROSE, "unknown": Kind.UNKNOWN,
}  # fmt: skip
_LETTER_UNITS = frozenset("mgshLlVWNJK")
_UNITS = (
    "km cm mm nm kg mg lb lbs oz ft yd mi hr hrs min sec ms mL ml dL cL kW Hz GB MB TB KB kB kWh"
    " mph kph pt qt gal cc ha m g s h L in"
)
_SHORT_UNITS = frozenset(_UNITS.split())
# Words after a number that are no unit: they change the value, or are names of values.
_NO_UNIT = re.compile(
    r"(?:mod|modulo|times|plus|minus|over|divided|multiplied|squared|cubed|to|by|of|or|and|if|is|so"
    r"|are|was|which|then|but|hundred|dozen|choose|remainder|factorial|base|more|less|fewer|than|pi"
    r"|tau|phi|alpha|beta|gamma|theta|delta|root|sqrt|log|ln|sin|cos|tan|exp|max|gcd|lcm|xor|not"
    r"|am|pm|st|nd|rd|th|half|halves|thirds?|fourths?|fifths?|sixths?|eighths?|tenths?|ones|tens"
    r"|hundreds|thousands|where|when|since|because|thus|hence|therefore|with|from|for|at|as|on"
    r"|equals?|gives?|makes?|yields?|gets?|have|has|i|e|x|y|z|n|k)",
    re.IGNORECASE,
)


def tokens(text: str, *, start: int = 0) -> list[Token]:
    """Return the tokens of ``text``; positions are counted from ``start``."""
    return _with_units(list(_marked(list(_raw(text, start)))))


def _raw(text: str, start: int) -> Iterator[Token]:
    end = -1
    for match in _TOKEN.finditer(text):
        name = match.lastgroup or ""
        if name.startswith("space"):
            continue
        kind, meaning = _KINDS[name], match[0]
        if kind is Kind.NUMBER:
            meaning = _SEPARATORS.sub(",", meaning)
            if re.match(r"0\d", meaning):
                kind = Kind.UNKNOWN
        elif kind is Kind.OPERATOR:
            meaning = "^" if name == "raise" else _SIGNS.get(meaning, meaning)
        elif kind in {Kind.OPEN, Kind.CLOSE}:
            meaning = meaning[-1]
        elif kind is Kind.POWER:
            meaning = meaning.translate(_SUPERSCRIPTS)
        elif name == "text":
            inside = _TEXT.fullmatch(meaning)
            meaning = inside[1] if inside else ""
            kind = Kind.PROSE if _WORDS.fullmatch(meaning) else Kind.UNKNOWN
        yield Token(kind, meaning, start + match.start(), start + match.end(), match.start() == end)
        end = match.end()


def _marked(row: list[Token]) -> Iterator[Token]:
    """Tell spoken operators, scales, alignment marks and variables from other words."""
    for i, token in enumerate(row):
        before = row[i - 1] if i else None
        after = row[i + 1] if i + 1 < len(row) else None
        if token.text == "&" and any(t and t.kind in RELATIONS for t in (before, after)):
            continue
        if token.text == "&" and token.is_tight and after and after.is_tight:
            yield token._replace(kind=Kind.UNKNOWN)
            continue
        yield _reread(token, before, after, row[i - 3 : i] if i > 2 else [])


def _reread(
    token: Token, before: Token | None, after: Token | None, three_before: list[Token]
) -> Token:
    if token.kind is not Kind.PROSE:
        return token
    follows = before is not None and before.kind in OPERAND_ENDS
    leads = after is not None and after.kind in OPERAND_STARTS
    even = after is not None and after.is_tight == token.is_tight
    if token.text in _SPOKEN and follows and leads and even:
        return token._replace(kind=Kind.OPERATOR, text=_SPOKEN[token.text])
    if token.text == "of" and follows and leads and _is_share(before, three_before):
        return token._replace(kind=Kind.OPERATOR)
    if token.text in SCALES and before is not None and before.kind is Kind.NUMBER:
        return token._replace(kind=Kind.SCALE)
    if _is_name(token, before, after):
        return token._replace(kind=Kind.UNKNOWN)
    return token


def _is_share(before: Token | None, three_before: list[Token]) -> bool:
    if before is None or before.kind is Kind.PERCENT:
        return True
    kinds = [token.kind for token in three_before]
    return kinds == [Kind.NUMBER, Kind.OPERATOR, Kind.NUMBER] and three_before[1].text == "/"


def _is_name(token: Token, before: Token | None, after: Token | None) -> bool:
    """Return True for what looks like a variable or a function, not like a word."""
    touches = after is not None and after.is_tight
    if after is not None and touches and (after.kind in OPERAND_STARTS or after.text in "_^"):
        is_unit_power = after.text == "^" and token.text in _SHORT_UNITS
        if not is_unit_power and after.kind is not Kind.CURRENCY:
            return True
    if before is not None and token.is_tight:
        if before.kind in {Kind.NUMBER, Kind.CLOSE}:
            return not (
                token.text in _SHORT_UNITS or token.text.startswith("\\") or _is_text(token)
            )
        if before.text == "_" or (before.kind is Kind.OPERATOR and before.text != "/"):
            return True
    if before is not None and before.kind is Kind.OPERATOR and before.text != "/":
        return True
    if len(token.text) > 1 or token.text in {"a", "I", "A"}:
        return False
    follows = before is not None and before.kind in {Kind.NUMBER, Kind.OPERATOR}
    return not (follows and token.text in _LETTER_UNITS)


def _is_text(token: Token) -> bool:
    return token.end - token.start > len(token.text)


def _with_units(row: list[Token]) -> list[Token]:
    """Join the words after a number to its unit where an expression goes on or ends there."""
    done: list[Token] = []
    i = 0
    while i < len(row):
        last = _unit_end(row, i) if done and done[-1].kind in OPERAND_ENDS else i
        if last == i:
            done.append(row[i])
            i += 1
            continue
        name = row[i].text if last == i + 1 else " ".join(token.text for token in row[i:last])
        done.append(Token(Kind.UNIT, name, row[i].start, row[last - 1].end, row[i].is_tight))
        i = last
    return done


def _unit_end(row: list[Token], i: int) -> int:
    """Return the index after the unit that begins at ``i``, or ``i`` where none does."""
    j = i
    while j < len(row) and j - i <= UNIT_WORDS and row[j].kind is Kind.PROSE:
        if not _is_unit_word(row[j].text):
            return i
        j += 1
    if j == i or j - i > UNIT_WORDS:
        return i
    while j + 1 < len(row):
        if (row[j].text == "/" and row[j + 1].kind is Kind.PROSE) or row[j].kind is Kind.POWER:
            j += 1 if row[j].kind is Kind.POWER else 2
        elif row[j].text == "^" and row[j].is_tight and row[j + 1].kind is Kind.NUMBER:
            j += 2
        elif [token.text for token in row[j : j + 4 : 3]] == ["^", "}"] and row[j].is_tight:
            j += 4
        else:
            break
    if j < len(row) and row[j].kind is Kind.POWER:
        j += 1
    ends = j == len(row) or row[j].kind in RELATIONS | {Kind.CLOSE, Kind.STOP, Kind.OPERATOR}
    return j if ends else i


def _is_unit_word(word: str) -> bool:
    first = word.split()[0] if word else ""
    if _NO_UNIT.fullmatch(word) or _NO_UNIT.fullmatch(first):
        return word in _SHORT_UNITS and word not in {"pi"}
    return len(word) > 2 or word in _SHORT_UNITS or word in _LETTER_UNITS
