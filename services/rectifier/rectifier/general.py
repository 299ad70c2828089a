"""General indicators: one for mathematics, one for code, one for the rest; fatal errors only."""

import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Literal

from rectifier_core.indicator import Indicator, IndicatorId

GENERAL_PREFIX = "general:"
Field = Literal["math", "code", "rest"]

_CODE = re.compile(
    r"\b(?:code|function|program|script|python|java|javascript|sql|regex|unit tests?|compile|bug"
    r"|refactor|implement|algorithm|class method|stack trace)\b|```|\bdef \w+\(|\breturn \w+;",
    re.IGNORECASE,
)
_MATH = re.compile(
    r"\b(?:how (?:many|much|long|far|old|fast)|solve|calculate|compute|evaluate|prove|simplify|sum"
    r"|product|probability|equation|integers?|triangle|circle|percent|ratio|average|remainder"
    r"|polynomial|integral|derivative|divisible|perimeter|area|volume|angle)\b|\\[a-z]+\{|\$[^$]{1,200}\$|\d\s*[+*/^=%]\s*\d",
    re.IGNORECASE,
)


def general_for(pools: Sequence[str], task: str) -> Indicator:
    """Return the general indicator for a task that is audited with ``pools``.

    Pools of one field decide; otherwise the words of the task do, code before mathematics.
    """
    fields = {_field_of(pool) for pool in pools}
    only: Field | None = next(iter(fields)) if len(fields) == 1 else None
    return _generals()[only if only in {"math", "code"} else _field_of_task(task)]


def is_general(indicator: Indicator) -> bool:
    """Return True for the indicators of this module."""
    return indicator.id.startswith(GENERAL_PREFIX)


def _field_of(pool: str) -> Field:
    if "math" in pool:
        return "math"
    return "code" if "code" in pool or "coding" in pool else "rest"


def _field_of_task(task: str) -> Field:
    start = task[:8_192]
    if _CODE.search(start):
        return "code"
    return "math" if _MATH.search(start) else "rest"


@cache
def _generals() -> dict[Field, Indicator]:
    written = json.loads(files(__package__).joinpath("general.json").read_text(encoding="utf-8"))
    fields: tuple[Field, ...] = ("math", "code", "rest")
    return {
        field: Indicator(
            id=IndicatorId(f"{GENERAL_PREFIX}{field}"),
            pool="general",
            source="starter",
            licence="Apache-2.0",
            **written[field],
        )
        for field in fields
    }
