"""False equations between numbers.

Chains such as ``17 * 3 = 340 + 41`` are read link by link, in plain text and LaTeX, and computed
exactly. A link is accused only where it is false under every usual reading of its notation, and
where no word round it supposes, quotes or corrects it.
"""

import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from rectifier.checks.expression import (
    DOTTED_THOUSANDS,
    Reading,
    UnreadableError,
    Value,
    decimals,
    evaluate,
)
from rectifier.checks.fences import blocks
from rectifier.checks.measures import are_convertible
from rectifier.checks.tokens import EXPRESSION, MINUS, RELATIONS, Kind, Token, tokens
from rectifier.checks.wording import (
    cycles_near,
    disarms,
    moduli,
    other_arithmetic_from,
    takes_part_after,
    takes_part_before,
)
from rectifier.verdict import Finding

CHECK_ID = "check:arithmetic"
MAX_FINDINGS = 5
MAX_TOKENS = 10_000  # of one message
MAX_LINE = 4_000  # characters of a sentence
MAX_SUSPECTS = 60  # false links whose words are looked at
MAX_DECIMALS = 6  # of a correction
NEAR = 80  # characters
FLOAT_DECIMALS = 12  # more are what binary floating point leaves over
REL = r"=|≈|≃|≅|≒|\\approx|\\simeq|\\doteq"

_RELATION = re.compile(REL)
_DIGIT = re.compile(r"\d")
_CONTINUED = re.compile(
    r"(?:\\\\(?:\[[^\]\n]{0,9}\])?[ \t]*\n?|\n)[ \t]*(?:&[ \t]*)?(?==[^=]|≈|\\approx)"
)
_NUMBERING = re.compile(r"[ \t>]*\(?(?:\d{1,3}|[a-zA-Z])\)[ \t]+")
_SENTENCE_END = re.compile(r"(?<=[.;?] )|(?<=[^\d)\]}]! )")  # 5! is a factorial
_LINK = re.compile(r"(?:https?://|www\.|data:)\S+")
_SPACING = re.compile(r"[\s$&]|\\[,;:! ]|\\left|\\right|\{,\}|(?<=\d),(?=\d{3})")
_ASCII = str.maketrans("０１２３４５６７８９＋－＊／＝％", "0123456789+-*/=%")
_ONE = Token(Kind.NUMBER, "1", 0, 0)
_TIMES = re.compile(r"×|·|\\times|\\cdot|(?<=\d)x(?=\d)")


@dataclass(frozen=True, slots=True)
class _Link:
    """Two neighbours of a chain.

    Attributes:
        left: Tokens of the left side.
        relation: What joins them.
        right: Tokens of the right side.
        earlier: The sides of the chain before ``left``.
        has_dash: True where a dash before ``left`` may be a bullet or a minus.
    """

    left: Sequence[Token]
    relation: Token
    right: Sequence[Token]
    earlier: tuple[Sequence[Token], ...] = ()
    has_dash: bool = False

    @property
    def span(self) -> tuple[int, int]:
        """Where it stands."""
        return self.left[0].start, self.right[-1].end


class _Setting:
    """The message and its sources, read once and only where there is a suspect."""

    def __init__(self, text: str, sources: Sequence[str]) -> None:
        self.text = text
        self.sources = sources

    @cached_property
    def other_arithmetic_from(self) -> int | None:
        """From where on numbers or operations of the message may not be the usual ones."""
        if any(other_arithmetic_from(source) is not None for source in self.sources):
            return 0
        return other_arithmetic_from(self.text)

    @cached_property
    def moduli(self) -> frozenset[int] | None:
        """The moduli that are named; None where one is no number."""
        return moduli((self.text, *self.sources))

    @cached_property
    def normal_sources(self) -> list[str]:
        """The sources without spaces and in one notation."""
        return [_normal(source) for source in self.sources]


def arithmetic_findings(text: str, *, sources: Sequence[str] = ()) -> tuple[list[Finding], bool]:
    """Return false equations of ``text``, and whether a part was left out.

    Args:
        text: The message.
        sources: Task and context; an equation that they contain is copied, not made.
    """
    findings: list[Finding] = []
    left_tokens, suspects, is_cut = MAX_TOKENS, 0, False
    setting = _Setting(text, sources)
    for start, line in _lines(_unfenced(text)):
        if left_tokens <= 0:
            return findings, True
        if len(line) > MAX_LINE:
            is_cut = True
            continue
        row = tokens(line, start=start)
        left_tokens -= len(row)
        for link in _false_links(row, text):
            suspects += 1
            if suspects > MAX_SUSPECTS:
                return findings, True
            if not _is_excused(link, setting):
                findings.append(_finding(link, text))
            if len(findings) == MAX_FINDINGS:
                return findings, is_cut
    return findings, is_cut


def _unfenced(text: str) -> str:
    """Return ``text`` with code, links and line breaks inside chains blanked, equally long."""
    parts, at = [], 0
    for block in blocks(text):
        parts += [text[at : block.start], "\n".rjust(block.end - block.start)]
        at = block.end
    bare = "".join([*parts, text[at:]])
    bare = bare if bare.isascii() else bare.translate(_ASCII)
    bare = _LINK.sub(lambda match: "?" * len(match[0]), bare)
    return _CONTINUED.sub(lambda match: " " * len(match[0]), bare)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences that may hold an equation, with their position."""
    at = 0
    for line in text.split("\n"):
        if _may_calculate(line):
            numbering = _NUMBERING.match(line)
            skipped = numbering.end() if numbering else 0
            yield from _sentences(at + skipped, line[skipped:])
        at += len(line) + 1


def _may_calculate(line: str) -> bool:
    return bool(_RELATION.search(line) and _DIGIT.search(line))


def _sentences(at: int, line: str) -> Iterator[tuple[int, str]]:
    for sentence in _SENTENCE_END.split(line):
        if _may_calculate(sentence):
            yield at, sentence
        at += len(sentence)


def _false_links(row: Sequence[Token], text: str) -> Iterator[_Link]:
    """Yield the first false link of each chain."""
    chain: list[Sequence[Token]] = []
    has_failed = False
    last_end = -1
    for i, token in enumerate(row):
        if token.kind not in RELATIONS:
            continue
        left_start, right_end = _left_start(row, i, text), _right_end(row, i, text)
        if left_start is None or left_start != last_end:
            chain, has_failed = [], False
        last_end = i + 1
        if left_start is None or right_end is None:
            chain = []
            continue
        left, right = row[left_start:i], row[i + 1 : right_end]
        link = _Link(left, token, right, tuple(chain), _has_dash(left))
        chain.append(left)
        if not has_failed and _is_false(link):
            has_failed = True
            yield replace(link, left=left[1:]) if link.has_dash else link


def _left_start(row: Sequence[Token], relation: int, text: str) -> int | None:
    """Return where the left side begins, or None where it cannot be read whole."""
    start, depth = relation, 0
    while start > 0:
        kind = row[start - 1].kind
        if kind is Kind.CLOSE:
            depth += 1
        elif kind is Kind.OPEN:
            if depth == 0:
                break
            depth -= 1
        elif kind not in EXPRESSION:
            break
        start -= 1
    is_whole = start < relation and not depth
    return start if is_whole and not _comes_from(row, start, relation, text) else None


def _comes_from(row: Sequence[Token], start: int, relation: int, text: str) -> bool:
    """Return True where what stands before ``start`` may belong to the side that begins there."""
    before = row[start - 1] if start else None
    if before is not None and before.kind in RELATIONS:
        return False
    if before is not None and before.kind in {Kind.UNKNOWN, Kind.PERCENT}:
        return True
    if start > 1 and before is not None and before.kind is Kind.OPEN:
        # The argument of a function.
        return row[start - 2].kind is Kind.UNKNOWN
    # "x - 3 = 4", and "one child aged 5 = 1 * $75"
    is_remainder = row[start].text in MINUS or not _signs(row[start:relation])
    if before is not None and before.kind is Kind.PROSE and is_remainder:
        return True
    return _touches_ratio(row, start - 1, -1) or takes_part_before(text, row[start].start)


def _right_end(row: Sequence[Token], relation: int, text: str) -> int | None:
    """Return where the right side ends, or None where it cannot be read whole."""
    end, depth = relation + 1, 0
    while end < len(row):
        kind = row[end].kind
        if kind is Kind.OPEN:
            if depth == 0 and _opens_remark(row, end):
                break
            depth += 1
        elif kind is Kind.CLOSE:
            if depth == 0:
                break
            depth -= 1
        elif kind not in EXPRESSION:
            break
        end += 1
    is_whole = end > relation + 1 and not depth
    return end if is_whole and not _goes_on(row, end, text) else None


def _goes_on(row: Sequence[Token], end: int, text: str) -> bool:
    """Return True where what stands at ``end`` may belong to the side before it."""
    after = row[end] if end < len(row) else None
    last = row[end - 1]
    if after is not None and after.kind in RELATIONS:
        return False
    if last.kind is Kind.FACTORIAL:
        # "That makes 12!"
        return True
    if after is None:
        return False
    if after.kind is Kind.UNKNOWN or _touches_ratio(row, end, 1):
        return True
    if after.kind is Kind.PROSE and _is_compound(row, end):
        return True
    words_from = last.start if last.kind is Kind.UNIT else last.end
    return takes_part_after(text, words_from)


def _opens_remark(row: Sequence[Token], opening: int) -> bool:
    inside = row[opening + 1] if opening + 1 < len(row) else None
    return (
        inside is not None
        and inside.kind is Kind.PROSE
        and not row[opening].is_tight
        and row[opening].text == "("
    )


def _touches_ratio(row: Sequence[Token], at: int, step: int) -> bool:
    """Return True for a colon between numbers, and for a comma without a space."""
    beyond = at + step
    if not (0 <= at < len(row) - 1 and 0 <= beyond < len(row)):
        return False
    if row[beyond].kind is not Kind.NUMBER:
        return False
    is_even = row[at].is_tight == row[at + 1].is_tight
    return (row[at].text == ":" and is_even) or (row[at].text in ",'" and row[at + 1].is_tight)


def _is_compound(row: Sequence[Token], end: int) -> bool:
    """Return True for ``2 hours 30 minutes`` and ``2 hours and 30 minutes``."""
    words = [
        token.text
        for token in itertools.takewhile(lambda t: t.kind is Kind.PROSE, row[end : end + 3])
    ]
    following = row[end + len(words)] if end + len(words) < len(row) else None
    if following is None or following.kind is not Kind.NUMBER or len(words) > 2:
        return False
    return words[0] not in {
        "and",
        "so",
        "or",
        "then",
        "but",
        "as",
        "for",
        "in",
        "which",
        "while",
        "vs",
    }


def _has_dash(side: Sequence[Token]) -> bool:
    """Return True where ``side`` begins with a dash that may be a bullet or a dash of the sentence."""
    return side[0].text in MINUS and len(side) > 1 and not side[1].is_tight


def _is_false(link: _Link) -> bool:
    """Return True where ``link`` is a calculation that no reading makes true."""
    if not _is_calculation(link) or are_convertible(link.left, link.right):
        return False
    lefts = [link.left, link.left[1:]] if link.has_dash else [link.left]
    try:
        return not any(
            _holds(replace(link, left=left, right=right), reading, right_percent)
            for left in lefts
            for reading in _readings([*link.left, *link.right])
            for right_percent in _percents(link.right)
            for right in _scaled(link.right)
        )
    except UnreadableError:
        return False


def _is_calculation(link: _Link) -> bool:
    signs = _signs(link.left)
    if not signs:
        # "60 = 2 * 3 * 5" is a calculation; "1 = 2 - 3 days" is a key to a table.
        right = _signs(link.right)
        is_defined = any(token.kind is Kind.UNIT for token in link.left)
        return bool(link.earlier) or (bool(right) and right <= {"*", "^"} and not is_defined)
    return not (_is_range(link) or _is_date(link.left) or _is_name(link) or _is_size(link))


def _signs(side: Sequence[Token]) -> set[str]:
    """Return the operations of ``side``; a sign of a number is none."""
    named = {
        Kind.FRACTION: "/",
        Kind.ROOT: "r",
        Kind.BINOMIAL: "C",
        Kind.FACTORIAL: "!",
        Kind.POWER: "^",
    }
    signs = {named[token.kind] for token in side if token.kind in named}
    operators = [token.text for token in side[1:] if token.kind is Kind.OPERATOR]
    return signs | {"-" if sign in MINUS else sign for sign in operators}


def _is_range(link: _Link) -> bool:
    """Return True for ``3-5 = ..`` and ``1990 - 2000 = 10 years``: the greater number last."""
    side = link.left
    if len(side) != 3 or side[1].text not in MINUS:
        return False
    low, high = side[0].text, side[2].text
    if not (low.isdecimal() and high.isdecimal() and int(low[:9]) < int(high[:9])):
        return False
    shown = link.right[0].text
    lengths = {str(int(high[:9]) - int(low[:9]) + extra) for extra in (0, 1)}
    has_unit = any(token.kind is Kind.UNIT for token in link.right)
    return side[1].is_tight or side[1].text == "–" or (has_unit and shown in lengths)


def _is_date(side: Sequence[Token]) -> bool:
    """Return True for ``1/2/2024``."""
    return (
        [token.text for token in side[1::2]] == ["/", "/"]
        and len(side) == 5
        and all(token.is_tight for token in side[1:])
    )


def _is_name(link: _Link) -> bool:
    """Return True for ``9/11 = 2001``, a day and its year, and for ``24/7``."""
    left, right = [token.text for token in link.left], [token.text for token in link.right]
    if len(left) != 3 or left[1] != "/" or not all(token.is_tight for token in link.left[1:]):
        return False
    is_day = all(text.isdecimal() and len(text) < 3 and 0 < int(text) < 32 for text in left[::2])
    is_year = len(right) == 1 and right[0].isdecimal() and len(right[0]) == 4
    return left == ["24", "/", "7"] or (is_day and is_year and 1000 <= int(right[0]) <= 2100)


def _is_size(link: _Link) -> bool:
    """Return True for ``2 x 4 lumber = 1.5 x 3.5``: the measures of a thing and of its name."""
    bare = [[t for t in side if t.kind is not Kind.UNIT] for side in (link.left, link.right)]
    if any(len(side) != 3 or side[1].text != "*" for side in bare):
        return False
    has_unit = len(bare[0]) < len(link.left)
    return has_unit or any("." in token.text for token in bare[1])


def _readings(both: Sequence[Token]) -> Iterator[Reading]:
    numbers = [token.text for token in both if token.kind is Kind.NUMBER]
    signs = [token.text for token in both if token.kind is Kind.OPERATOR]
    divides = [i for i, sign in enumerate(signs) if sign == "/"]
    yield from itertools.starmap(
        lambda percent, commas, dots, whole: Reading(percent, commas, dots, whole),
        itertools.product(
            _percents(both),
            (False, True) if any("," in number for number in numbers) else (False,),
            (False, True)
            if any(DOTTED_THOUSANDS.fullmatch(number) for number in numbers)
            else (False,),
            (False, True) if divides and "*" in signs[divides[0] :] else (False,),
        ),
    )


def _percents(side: Sequence[Token]) -> tuple[Fraction, ...]:
    has_percent = any(token.kind is Kind.PERCENT for token in side)
    return (Fraction(1, 100), Fraction(1)) if has_percent else (Fraction(1, 100),)


def _scaled(side: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield ``side`` and, as in "5 * 10 = 50 thousand", what it is without its scale."""
    yield side
    if any(token.kind is Kind.SCALE for token in side):
        yield [token for token in side if token.kind is not Kind.SCALE]


def _holds(link: _Link, reading: Reading, right_percent: Fraction) -> bool:
    left = evaluate(link.left, reading)
    right_reading = replace(reading, percent=right_percent)
    if _number_of(link.right) is not None:
        return any(
            _shows(value, link, right_reading) for value in (left, *_values(link.earlier, reading))
        )
    right = evaluate(link.right, replace(right_reading, is_loose=True))
    if link.relation.kind is Kind.ABOUT:
        return True
    return _meet(left, right) or _runs_on(left, link, right_reading)


def _values(sides: Sequence[Sequence[Token]], reading: Reading) -> Iterator[Value]:
    for side in sides:
        yield evaluate(side, reading)


def _meet(one: Value, other: Value) -> bool:
    return one.low <= other.high and other.low <= one.high


def _runs_on(left: Value, link: _Link, reading: Reading) -> bool:
    """Return True for a running total: in ``2 + 8 = 10 * 2 = 20`` the sign means "which is"."""
    end = next((i for i, t in enumerate(link.right) if i and t.kind is Kind.OPERATOR), 0)
    head = link.right[:end]
    number = _number_of(head)
    if number is None:
        return False
    if "." in number.text:
        return _shows(left, replace(link, right=head), reading)
    return _meet(left, evaluate(head, reading))


def _number_of(side: Sequence[Token]) -> Token | None:
    """Return the number that ``side`` is, with sign, currency and unit; None for a calculation."""
    numbers = [token for token in side if token.kind is Kind.NUMBER]
    return (
        numbers[0] if len(numbers) == 1 and not _signs(side[1:]) and not _signs(side[:1]) else None
    )


def _shows(value: Value, link: _Link, reading: Reading) -> bool:
    """Return True where the number at the right is ``value``, rounded or cut to the digits shown."""
    number = _number_of(link.right)
    if number is None:
        return False
    shown = evaluate(link.right, replace(reading, is_strict=True)).low
    unit = evaluate([_ONE, *_factors(link.right)], reading).low
    unit *= _power_of_ten(-decimals(number.text, reading))
    if value.low <= shown <= value.high or _is_debit(value, shown, link):
        return True
    distance = max(value.low - shown, shown - value.high)
    if link.relation.kind is Kind.ABOUT:
        rounding = unit * _power_of_ten(_trailing_zeros(number.text))
        return distance <= max(rounding, abs(shown) / 100)
    if decimals(number.text, reading) > FLOAT_DECIMALS and distance < abs(shown) * unit * 1_000:
        return True
    if value.is_exact and (value.low / unit).denominator == 1:
        return _is_percentage(value, shown, link) or _is_in_thousands(distance, number, link)
    return (
        distance < unit
        or _is_percentage(value, shown, link)
        or _is_in_thousands(distance, number, link)
    )


def _power_of_ten(exponent: int) -> Fraction:
    return Fraction(10**exponent) if exponent >= 0 else Fraction(1, 10**-exponent)


def _factors(side: Sequence[Token]) -> list[Token]:
    return [token for token in side if token.kind in {Kind.PERCENT, Kind.SCALE}]


def _trailing_zeros(number: str) -> int:
    digits = number.replace(",", "")
    return len(digits) - len(digits.rstrip("0")) if digits.isdigit() and digits.strip("0") else 0


def _is_debit(value: Value, shown: Fraction, link: _Link) -> bool:
    """Return True for ``$99 - $300 = ($201)``, as accountants write it."""
    return link.right[0].text == "(" and value.low <= -shown <= value.high


def _is_percentage(value: Value, shown: Fraction, link: _Link) -> bool:
    """Return True for ``17/20 = 85``: a share, given in percent without the sign."""
    return _signs(link.left) == {"/"} and value.low * 100 - 1 < shown < value.high * 100 + 1


def _is_in_thousands(distance: Fraction, number: Token, link: _Link) -> bool:
    """Return True for ``1,000,000 / 3 = 333,000``: whole thousands of what was not whole."""
    zeros = _trailing_zeros(number.text)
    digits = number.text.replace(",", "")
    is_inexact = "/" in _signs(link.left) or any("." in token.text for token in link.left)
    return (
        is_inexact
        and zeros >= 3
        and len(digits) - zeros >= 2
        and distance <= Fraction(10**zeros, 2)
    )


def _is_excused(link: _Link, setting: _Setting) -> bool:
    start, end = link.span
    other_from = setting.other_arithmetic_from
    if setting.moduli is None or (other_from is not None and other_from < end):
        return True
    words_from = max(token.end for token in link.right if token.kind is not Kind.UNIT)
    if disarms(setting.text, start, words_from):
        return True
    cycles = setting.moduli | cycles_near(setting.text[max(0, start - NEAR) : end + NEAR])
    if _is_congruent(link, cycles):
        return True
    return any(_normal(setting.text[start:end]) in source for source in setting.normal_sources)


def _is_congruent(link: _Link, cycles: Collection[int]) -> bool:
    difference = evaluate(link.left, Reading()) - evaluate(link.right, Reading())
    if not difference.is_exact or difference.low.denominator != 1:
        return bool(cycles)
    return any(difference.low % cycle == 0 for cycle in cycles)


def _normal(text: str) -> str:
    return _TIMES.sub("*", _SPACING.sub("", text))


def _finding(link: _Link, text: str) -> Finding:
    start, end = link.span
    if text[start] == text[end - 1] == "$" and text.count("$", start, end) == 2:
        start, end = start + 1, end - 1
    left = text[start : link.left[-1].end]
    correct = _corrected(link, text[:end])
    return Finding(
        indicator_id=CHECK_ID,
        name="Wrong calculation",
        violated=True,
        evidence=text[start:end],
        rationale=f"The two sides differ: the left side is {correct}.",
        suggestion=f"{left} {'=' if link.relation.kind is Kind.EQUAL else '≈'} {correct}",
        source="check",
    )


def _corrected(link: _Link, text: str) -> str:
    """Return the value of the left side in the style of the right one."""
    value = evaluate(link.left, Reading(is_strict=True))
    exact = (value.low + value.high) / 2
    is_grouped = any("," in token.text for token in (*link.left, *link.right))
    number = _number_of(link.right)
    if number is None or exact < 0 or link.right[0].text in MINUS:
        is_short = exact.denominator < 10**MAX_DECIMALS and not _is_decimal(exact)
        about = "about " if not value.is_exact else ""
        decimal = _digits(exact, MAX_DECIMALS, is_grouped=is_grouped)
        return f"{exact} (about {decimal})" if is_short else f"{about}{decimal}"
    exact /= evaluate([_ONE, *_factors(link.right)], Reading()).low
    shown = max(2, decimals(number.text, Reading()))
    places = MAX_DECIMALS if _is_decimal(exact) else min(shown, MAX_DECIMALS)
    before = text[link.right[0].start : number.start]
    after = text[number.end : link.right[-1].end]
    return f"{before}{_digits(exact, places, is_grouped=is_grouped)}{after}"


def _is_decimal(value: Fraction) -> bool:
    return (value * _power_of_ten(MAX_DECIMALS)).denominator == 1


def _digits(value: Fraction, places: int, *, is_grouped: bool) -> str:
    grouping = "," if is_grouped else ""
    whole, part = divmod(abs(round(value * 10**places)), 10**places)
    sign = "-" if value < 0 else ""
    point = f".{part:0{places}}".rstrip("0") if part else ""
    return f"{sign}{whole:{grouping}}{point}"
