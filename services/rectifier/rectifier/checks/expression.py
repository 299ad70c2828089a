"""Bounded exact evaluation of the tokens of one expression.

A value is a closed interval of rationals: a point where everything is exact, wider where a
decimal may stand for a longer one or a root is irrational.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from rectifier.checks.tokens import MINUS, OPERAND_STARTS, SCALES, Kind, Token

MAX_BITS = 2_048  # of a numerator or a denominator
MAX_DIGITS = 60  # of a literal
MAX_DEPTH = 12  # of brackets
MAX_TOKENS = 120
MAX_FACTORIAL = 100
ROOT_PRECISION = 10**15
DOTTED_THOUSANDS = re.compile(r"\d{1,3}\.\d{3}")
# Two decimals that usually stand for a repeating fraction, pi, e or a root.
_HUNDREDTHS = "33 66 67 16 17 83 11 22 44 55 56 77 78 88 89 14 28 29 42 43 57 71 85 86"
ROUNDED_HUNDREDTHS = frozenset(_HUNDREDTHS.split())
ROUNDED_CONSTANTS = frozenset(
    {"3.14", "2.71", "2.72", "1.41", "1.73", "2.23", "2.24", "1.61", "1.62"}
)


class UnreadableError(Exception):
    """The tokens are no expression that is read here, or one too large."""


@dataclass(frozen=True, slots=True)
class Value:
    """A closed interval."""

    low: Fraction
    high: Fraction

    @property
    def is_exact(self) -> bool:
        """True for a point."""
        return self.low is self.high or self.low == self.high

    def __add__(self, other: "Value") -> "Value":
        if self.is_exact and other.is_exact:
            total = self.low + other.low
            return _bounded(total, total)
        return _bounded(self.low + other.low, self.high + other.high)

    def __neg__(self) -> "Value":
        return _point(-self.low) if self.is_exact else Value(-self.high, -self.low)

    def __sub__(self, other: "Value") -> "Value":
        return self + -other

    def __mul__(self, other: "Value") -> "Value":
        if self.is_exact and other.is_exact:
            product = self.low * other.low
            return _bounded(product, product)
        corners = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return _bounded(min(corners), max(corners))

    def __truediv__(self, other: "Value") -> "Value":
        if other.low <= 0 <= other.high:
            raise UnreadableError
        if other is ONE:
            return self
        if other.is_exact:
            return self * _point(1 / other.low)
        return self * Value(1 / other.high, 1 / other.low)

    def __pow__(self, exponent: int) -> "Value":
        if exponent < 0:
            return ONE / self**-exponent
        if _bits(self) * exponent > MAX_BITS or self.low < 0 < self.high:
            raise UnreadableError
        if self.is_exact:
            return _point(self.low**exponent)
        ends = (self.low**exponent, self.high**exponent)
        return Value(min(ends), max(ends))


@dataclass(frozen=True, slots=True)
class Reading:
    """How what is ambiguous is read.

    Attributes:
        percent: What a percent sign multiplies with.
        has_decimal_commas: ``1,125`` is a little more than one.
        has_thousands_dots: ``1.125`` is more than a thousand.
        takes_divisor_whole: ``1 / 2 * 3`` is one sixth.
        is_loose: Every decimal may be rounded, as in an intermediate result.
        is_strict: No decimal is rounded.
    """

    percent: Fraction = Fraction(1, 100)
    has_decimal_commas: bool = False
    has_thousands_dots: bool = False
    takes_divisor_whole: bool = False
    is_loose: bool = False
    is_strict: bool = False


ZERO = Value(Fraction(0), Fraction(0))
ONE = Value(Fraction(1), Fraction(1))


def evaluate(expression: Sequence[Token], reading: Reading) -> Value:
    """Return the value of ``expression``.

    Raises:
        UnreadableError: It is no complete expression, it is ambiguous in a way that no reading covers,
            or its value or its steps are too large.
    """
    if not 0 < len(expression) <= MAX_TOKENS:
        raise UnreadableError
    parser = _Parser(expression, reading)
    value = parser.sum()
    if parser.position != len(expression):
        raise UnreadableError
    return value


def decimals(number: str, reading: Reading) -> int:
    """Return how many digits after the point the literal ``number`` shows."""
    mantissa, _, exponent = _plain(number, reading).lower().partition("e")
    return len(mantissa.partition(".")[2]) - int(exponent or 0)


def _plain(number: str, reading: Reading) -> str:
    if "," in number:
        is_decimal = reading.has_decimal_commas and number.count(",") == 1 and "." not in number
        return number.replace(",", "." if is_decimal else "")
    if reading.has_thousands_dots and DOTTED_THOUSANDS.fullmatch(number):
        return number.replace(".", "")
    return number


@dataclass(slots=True)
class _Parser:
    """Recursive descent that evaluates as it reads."""

    row: Sequence[Token]
    reading: Reading
    position: int = 0
    depth: int = 0

    def _peek(self, ahead: int = 0) -> Token | None:
        at = self.position + ahead
        return self.row[at] if at < len(self.row) else None

    def _takes(self, *signs: str) -> str:
        token = self._peek()
        if token is None or token.kind is not Kind.OPERATOR:
            return ""
        sign = "-" if token.text in MINUS else token.text
        self.position += sign in signs
        return sign if sign in signs else ""

    def _takes_kind(self, kind: Kind) -> Token | None:
        token = self._peek()
        if token is None or token.kind is not kind:
            return None
        self.position += 1
        return token

    def sum(self) -> Value:
        """Read terms joined by + and -."""
        total, plain, has_percent = ZERO, ZERO, False
        sign = self._takes("-") or "+"
        is_first = True
        while sign:
            first = self.position
            term = self.product(is_negated=is_first and sign == "-")
            term = -term if sign == "-" else term
            total, is_first = total + term, False
            if self._is_percent(first):
                has_percent = True
            else:
                plain = plain + term
            sign = self._takes("+", "-")
            if sign and self._has(first, "of"):
                # "20% of 50 + 30" has two readings.
                raise UnreadableError
        # "50 + 20%" may mean sixty; "1 + 20%" is the same either way.
        if has_percent and plain not in {ZERO, ONE}:
            raise UnreadableError
        return total

    def _has(self, first: int, sign: str) -> bool:
        return any(token.text == sign for token in self.row[first : self.position])

    def _is_percent(self, first: int) -> bool:
        kinds = {token.kind for token in self.row[first : self.position]}
        return Kind.PERCENT in kinds and kinds <= {Kind.NUMBER, Kind.PERCENT, Kind.UNIT}

    def product(self, *, is_negated: bool = False) -> Value:
        """Read factors joined by * and /, or standing side by side."""
        total, divisor, has_divided = self.power(is_negated=is_negated), ONE, False
        while True:
            sign = self._takes("*", "/", "of")
            if not sign and not self._stands_beside():
                return total / divisor
            if not sign and has_divided:
                # "1/2(3)" has two readings, and both are common.
                raise UnreadableError
            factor = self.signed_power() if sign else self.power()
            if sign == "/" or (has_divided and self.reading.takes_divisor_whole):
                divisor, has_divided = divisor * factor, True
            else:
                total = total * factor

    def _stands_beside(self) -> bool:
        token = self._peek()
        if token is None or token.kind not in OPERAND_STARTS or token.kind is Kind.CURRENCY:
            return False
        before = self.row[self.position - 1]
        if token.kind is Kind.ROOT:
            return True
        if token.kind is Kind.OPEN:
            return token.is_tight or token.text == "{" or before.text == "}"
        # A number before a fraction is a mixed number or a product.
        if token.kind in {Kind.FRACTION, Kind.BINOMIAL} and before.kind is Kind.CLOSE:
            return True
        raise UnreadableError

    def signed_power(self) -> Value:
        """Read a factor that may have a minus of its own."""
        return -self.power(is_negated=True) if self._takes("-") else self.power()

    def power(self, *, is_negated: bool = False) -> Value:
        """Read an atom with what stands behind it."""
        value = self._postfixed(self._atom())
        exponent = self._exponent()
        if exponent is None:
            return value
        if is_negated and exponent.low % 2 == 0:
            # "-2^2" has two readings.
            raise UnreadableError
        return self._postfixed(_raised(value, exponent))

    def _exponent(self) -> Value | None:
        if token := self._takes_kind(Kind.POWER):
            return _point(Fraction(int(token.text[:4])))
        if not self._takes("^"):
            return None
        value = (
            -self._postfixed(self._atom()) if self._takes("-") else self._postfixed(self._atom())
        )
        if self._takes("^") or self._takes_kind(Kind.POWER):
            raise UnreadableError
        return value

    def _postfixed(self, value: Value) -> Value:
        while token := self._peek():
            if token.kind is Kind.PERCENT:
                value = value * _point(self.reading.percent)
            elif token.kind is Kind.FACTORIAL:
                value = _factorial(value)
            elif token.kind is Kind.OPERATOR and token.text == "C":
                self.position += 1
                value = _binomial(value, self._atom())
                continue
            elif token.kind not in {Kind.UNIT, Kind.CURRENCY}:
                break
            self.position += 1
        return value

    def _atom(self) -> Value:
        while self._takes_kind(Kind.CURRENCY):
            pass
        token = self._peek()
        if token is None:
            raise UnreadableError
        self.position += 1
        match token.kind:
            case Kind.NUMBER:
                return self._number(token)
            case Kind.OPEN:
                return self._closed()
            case Kind.FRACTION:
                return self._fraction()
            case Kind.ROOT:
                return _root(self._argument(token))
            case Kind.BINOMIAL:
                return _binomial(self._group(), self._group())
            case _:
                raise UnreadableError

    def _closed(self) -> Value:
        """Read the rest of a bracket that has been opened."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnreadableError
        value = self.sum()
        if not self._takes_kind(Kind.CLOSE):
            raise UnreadableError
        self.depth -= 1
        return value

    def _group(self) -> Value:
        if not self._takes_kind(Kind.OPEN):
            raise UnreadableError
        return self._closed()

    def _argument(self, root: Token) -> Value:
        number = self._peek()
        if number and number.kind is Kind.NUMBER and (root.text == "√" or len(number.text) == 1):
            self.position += 1
            return self._number(number)
        if number and number.text == "[":
            raise UnreadableError
        return self._group()

    def _fraction(self) -> Value:
        digits = self._peek()
        if (
            digits
            and digits.kind is Kind.NUMBER
            and len(digits.text) == 2
            and digits.text.isdigit()
        ):
            self.position += 1
            above, below = (_point(Fraction(int(digit))) for digit in digits.text)
            return above / below
        above = self._group()
        digit = self._peek()
        if digit and digit.kind is Kind.NUMBER and len(digit.text) == 1:
            self.position += 1
            return above / _point(Fraction(int(digit.text)))
        return above / self._group()

    def _number(self, token: Token) -> Value:
        text = _plain(token.text, self.reading)
        if len(text) > MAX_DIGITS:
            raise UnreadableError
        value = Fraction(int(text)) if text.isdecimal() else Fraction(text)
        after = self._peek()
        slack = self._slack(token, text)
        if after and after.kind is Kind.SCALE:
            self.position += 1
            scale = SCALES[after.text]
            return Value((value - slack) * scale, (value + slack) * scale)
        return Value(value - slack, value + slack) if slack else _point(value)

    def _slack(self, token: Token, text: str) -> Fraction:
        """Return how far the number that was meant may lie from the digits shown."""
        if (
            self.reading.has_decimal_commas
            or self.reading.is_strict
            or (text.isdecimal() and not self.reading.is_loose)
        ):
            return Fraction(0)
        shown = decimals(token.text, self.reading)
        unit = Fraction(1, 10**shown) if shown >= 0 else Fraction(10**-shown)
        if self.reading.is_loose:
            return unit if shown > 0 or self._is_mantissa() else Fraction(0)
        before = self.row[self.position - 2] if self.position > 1 else None
        if before is not None and before.kind is Kind.CURRENCY:
            return Fraction(0)
        looks_rounded = shown > 2 or (
            shown == 2 and (text[-2:] in ROUNDED_HUNDREDTHS or text in ROUNDED_CONSTANTS)
        )
        return unit if looks_rounded else Fraction(0)

    def _is_mantissa(self) -> bool:
        following = [token.text for token in self.row[self.position : self.position + 3]]
        return following == ["*", "10", "^"]


def _point(value: Fraction) -> Value:
    return Value(value, value)


def _bits(value: Value) -> int:
    low, high = value.low, value.high
    bits = max(low.numerator.bit_length(), low.denominator.bit_length())
    if high is low:
        return bits
    return max(bits, high.numerator.bit_length(), high.denominator.bit_length())


def _bounded(low: Fraction, high: Fraction) -> Value:
    value = Value(low, high)
    if _bits(value) > MAX_BITS:
        raise UnreadableError
    return value


def _natural(value: Value, at_most: int) -> int:
    if not value.is_exact or value.low.denominator != 1 or not 0 <= value.low <= at_most:
        raise UnreadableError
    return int(value.low)


def _raised(value: Value, exponent: Value) -> Value:
    if exponent.is_exact and exponent.low == Fraction(1, 2):
        return _root(value)
    if not exponent.is_exact or exponent.low.denominator != 1 or abs(exponent.low) > MAX_BITS:
        raise UnreadableError
    return value ** int(exponent.low)


def _root(value: Value) -> Value:
    if value.low < 0:
        raise UnreadableError
    return Value(_floor_root(value.low), -_floor_root(value.high, -1))


def _floor_root(value: Fraction, sign: int = 1) -> Fraction:
    """Return the root if it is rational, else a bound: below it, or the negative of one above."""
    above, below = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if above**2 == value.numerator and below**2 == value.denominator:
        return Fraction(sign * above, below)
    scaled = math.isqrt(value.numerator * ROOT_PRECISION**2 // value.denominator)
    return Fraction(scaled if sign > 0 else -(scaled + 1), ROOT_PRECISION)


def _factorial(value: Value) -> Value:
    return _point(Fraction(math.factorial(_natural(value, MAX_FACTORIAL))))


def _binomial(whole: Value, part: Value) -> Value:
    return _point(Fraction(math.comb(_natural(whole, 10**4), _natural(part, MAX_FACTORIAL))))
