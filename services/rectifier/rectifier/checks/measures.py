"""Units that convert into one another, so that unequal numbers may be equal quantities."""

import re
from collections.abc import Sequence

from rectifier.checks.tokens import Kind, Token

_NAMES = (
    # length, area, volume
    "km m cm mm nm mi ft in yd kilometer kilometre meter metre centimeter centimetre millimeter"
    " millimetre mile foot feet inch inche yard acre hectare ha l ml dl cl liter litre milliliter"
    " millilitre gallon quart pint cup tablespoon teaspoon gal pt qt cc"
    # mass
    " kg g mg lb oz kilogram gram milligram pound ounce ton tonne stone"
    # time
    " s sec min h hr ms second minute hour day week month year decade century centurie fortnight"
    # money
    " $ € £ ¥ ₹ cent dollar euro penny pennie pence nickel dime quarter buck rupee paise"
    # data, energy, power
    " b kb mb gb tb byte bit kilobyte megabyte gigabyte j kj kw w kwh cal kcal hz khz mhz ghz"
    # counts
    " dozen pair couple score gross half halve third fourth fifth one ten hundred thousand"
    " degree radian turn revolution"
)
_MEASURES = frozenset(_NAMES.split())


def are_convertible(left: Sequence[Token], right: Sequence[Token]) -> bool:
    """Return True where the sides, or the terms of the left one, carry units that may convert.

    The same is true where a letter may be a unit or a variable.
    """
    units, results = _units(left), _units(right)
    has_sum = any(token.text in "+-–" for token in left[1:])
    letters = _letters(left)
    if letters - _letters(right) or _letters(right) - letters or (letters and has_sum):
        return not _is_uniform(left, units, results)
    measures, shown = units & _MEASURES, results & _MEASURES
    if has_sum and len(units) > 1 and measures:
        return True
    return bool(measures and shown and not shown <= measures) or len(shown) > 1


def _letters(side: Sequence[Token]) -> set[str]:
    units = [token.text for token in side if token.kind is Kind.UNIT]
    return {word for unit in units for word in re.findall(r"[^\W\d_]+", unit) if len(word) == 1}


def _is_uniform(left: Sequence[Token], units: set[str], results: set[str]) -> bool:
    numbers = sum(token.kind is Kind.NUMBER for token in left)
    marked = sum(token.kind is Kind.UNIT for token in left)
    return len(units) == 1 and units == results and numbers == marked


def _units(side: Sequence[Token]) -> set[str]:
    """Return the units of ``side``, in the singular; compound ones count as their first."""
    names = {_singular(token.text) for token in side if token.kind is Kind.UNIT}
    return names | {token.text.strip("\\") for token in side if token.kind is Kind.CURRENCY}


def _singular(unit: str) -> str:
    first = unit.replace("/", " ").split()[0]
    if len(first) < 3:
        return first if len(first) == 1 else first.lower()
    return first.lower().removesuffix("s")
