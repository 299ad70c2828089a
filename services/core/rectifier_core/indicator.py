"""An indicator: one known way in which a message goes wrong, I = (name, definition, trigger).

Source: AgentDropoutV2, arXiv 2602.23258, section 3.1.
"""

import hashlib
import json
import re
import unicodedata
import uuid
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import NewType

from rectifier_core.errors import InputError

IndicatorId = NewType("IndicatorId", str)

POOL_NAME = re.compile(r"[a-z0-9_-]{1,64}")
NAMESPACE = uuid.UUID("6f1d1c7e-6f0e-5d0a-9d5a-2f7f3f1f0a51")
DEFAULT_TENANT = "default"


class Status(StrEnum):
    """Whether audits use an indicator: only ``active`` ones are retrieved."""

    ACTIVE = "active"
    CANDIDATE = "candidate"
    RETIRED = "retired"


class Mode(StrEnum):
    """Whether a violation counts (``enforce``) or is only recorded (``shadow``)."""

    ENFORCE = "enforce"
    SHADOW = "shadow"


@dataclass(frozen=True, slots=True)
class Example:
    """One tiny message that shows the error, or that must not be taken for it.

    Attributes:
        task: What the agents were asked.
        message: What the agent wrote.
        violated: True where the message shows the error.
    """

    task: str
    message: str
    violated: bool


@dataclass(frozen=True, slots=True)
class Indicator:
    """A failure indicator.

    Attributes:
        id: A UUID, permanent; see `indicator_id`.
        pool: The pool it belongs to, ``[a-z0-9_-]{1,64}``.
        name: Short name; names may repeat within a pool.
        definition: What goes wrong.
        trigger_condition: When to look for it; empty where the source has none.
        risk_alert: What to check, or empty.
        examples: Tiny messages that show the error or must not be taken for it.
        status: Only active ones are retrieved by audits.
        mode: Whether a violation counts or is only recorded.
        source: Where it came from, e.g. ``starter``, ``import``, ``mined``.
        licence: SPDX expression of its text, or empty where none is stated.
        tenant: Whose it is.
    """

    id: IndicatorId
    pool: str
    name: str
    definition: str
    trigger_condition: str = ""
    risk_alert: str = ""
    examples: tuple[Example, ...] = ()
    status: Status = Status.ACTIVE
    mode: Mode = Mode.ENFORCE
    source: str = ""
    licence: str = ""
    tenant: str = DEFAULT_TENANT

    @property
    def trigger_text(self) -> str:
        """The text behind the ``trigger`` vector: what a message is compared with."""
        return self.trigger_condition or self.definition

    @property
    def definition_text(self) -> str:
        """The text behind the ``definition`` vector: what duplicates are compared by."""
        return f"{self.definition}\n{self.trigger_condition}".rstrip("\n")

    @property
    def whole_text(self) -> str:
        """Every word of it, for search by word."""
        words = self.name.replace("_", " ")
        return "\n".join(
            part
            for part in (words, self.definition, self.trigger_condition, self.risk_alert)
            if part
        )

    @property
    def content_hash(self) -> str:
        """SHA-256 over every field, hex: equal exactly when nothing differs."""
        canonical = json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()


def indicator_id(
    *, tenant: str, pool: str, name: str, definition: str, trigger_condition: str
) -> IndicatorId:
    """Return the UUIDv5 of an indicator's origin, so that a repeated write is the same point.

    White space is folded, case is kept only in the texts: the name is compared without case.
    """
    parts = (
        tenant,
        pool,
        _folded(name).casefold(),
        _folded(definition),
        _folded(trigger_condition),
    )
    return IndicatorId(str(uuid.uuid5(NAMESPACE, json.dumps(parts, ensure_ascii=False))))


def check_pool_name(name: str, *, field: str = "pool") -> str:
    """Return ``name`` where it is a pool's name.

    Raises:
        InputError: It is not ``[a-z0-9_-]{1,64}``.
    """
    if not POOL_NAME.fullmatch(name):
        raise InputError("a pool name is 1 to 64 of a-z, 0-9, _ and -", field=field)
    return name


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())
