"""The ``Retry-After`` header."""

import email.utils
import math
import time
from collections.abc import Mapping


def seconds_to_wait(headers: Mapping[str, str]) -> float | None:
    """Return what ``Retry-After`` says in seconds, 0 or more; None where it says nothing readable.

    Source: RFC 9110, section 10.2.3: seconds, or an HTTP date. Fractions, and the header
    ``retry-after-ms``, are read as well: model servers send them.
    """
    for name, unit in (("retry-after-ms", 1_000), ("retry-after", 1)):
        seconds = _number(headers.get(name, ""))
        if seconds is not None:
            return max(0.0, seconds / unit)
    try:
        moment = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, moment.timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _number(text: str) -> float | None:
    try:
        number = float(text) if text.isascii() else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None
