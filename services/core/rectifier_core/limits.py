"""Limits of an indicator, checked once before it is stored."""

import re
import unicodedata
import uuid
from dataclasses import replace

from rectifier_core.errors import InputError
from rectifier_core.indicator import Indicator, check_pool_name

NAME_LIMIT = 200  # characters
TEXT_LIMIT = 8_192  # characters: definition, trigger condition, risk alert, texts of an example
EXAMPLES_LIMIT = 20
PROVENANCE_LIMIT = 500  # characters: source, licence
TENANT_LIMIT = 200  # characters

_HALF_PAIR = re.compile("[\ud800-\udfff]")


def checked_indicator(indicator: Indicator) -> Indicator:
    """Return ``indicator`` as the store takes it: a trigger or risk alert that shows nothing is "".

    Every other text stays as it is, to the character.

    Raises:
        InputError: The id is not a UUID in canonical form, a name or definition shows nothing, a
            text is too long or holds half a surrogate pair; ``field`` says which.
    """
    check_id(indicator.id)
    check_pool_name(indicator.pool)
    check_encodable(indicator)
    _check(indicator.tenant, "tenant", limit=TENANT_LIMIT, required=True)
    _check(indicator.name, "name", limit=NAME_LIMIT, required=True)
    _check(indicator.definition, "definition", required=True)
    _check(indicator.trigger_condition, "trigger_condition")
    _check(indicator.risk_alert, "risk_alert")
    _check(indicator.source, "source", limit=PROVENANCE_LIMIT)
    _check(indicator.licence, "licence", limit=PROVENANCE_LIMIT)
    if len(indicator.examples) > EXAMPLES_LIMIT:
        raise InputError(f"more than {EXAMPLES_LIMIT}", field="examples")
    for n, example in enumerate(indicator.examples):
        _check(example.task, f"examples.{n}.task")
        _check(example.message, f"examples.{n}.message")
    return replace(
        indicator,
        trigger_condition=_shown(indicator.trigger_condition),
        risk_alert=_shown(indicator.risk_alert),
    )


def check_id(value: str, *, field: str = "id") -> None:
    """Check that ``value`` is a UUID as the store writes it: lower case, with dashes.

    Raises:
        InputError: It is not.
    """
    if not is_id(value):
        raise InputError("not a UUID in lower case with dashes", field=field)


def check_encodable(indicator: Indicator) -> None:
    """Check that every text can be written as UTF-8.

    Raises:
        InputError: One holds half a surrogate pair.
    """
    texts = [
        ("tenant", indicator.tenant),
        ("pool", indicator.pool),
        ("name", indicator.name),
        ("definition", indicator.definition),
        ("trigger_condition", indicator.trigger_condition),
        ("risk_alert", indicator.risk_alert),
        ("source", indicator.source),
        ("licence", indicator.licence),
    ]
    for n, example in enumerate(indicator.examples):
        texts.append((f"examples.{n}.task", example.task))
        texts.append((f"examples.{n}.message", example.message))
    for field, text in texts:
        if _HALF_PAIR.search(text):
            raise InputError("holds half a surrogate pair", field=field)


def is_id(value: str) -> bool:
    """Return whether ``value`` can be the id of an indicator."""
    try:
        return str(uuid.UUID(value)) == value
    except ValueError:
        return False


def _check(text: str, field: str, *, limit: int = TEXT_LIMIT, required: bool = False) -> None:
    if len(text) > limit:
        raise InputError(f"longer than {limit} characters", field=field)
    if required and not _shown(text):
        raise InputError("missing or blank", field=field)


def _shown(text: str) -> str:
    """Return ``text``, or "" where all of it is space, control or format characters."""
    return text if any(unicodedata.category(sign)[0] not in "CZ" for sign in text) else ""
