"""The history of a pool: its changes, what a stretch of them comes to, and what undoes it.

Each change says what was on record of its indicator until then (`Change.was`), also where a crash
hid the indicator itself. With that mark the indicator is found among the other changes, or it is
known to be lost: nothing here is guessed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from rectifier_core.errors import ConflictError
from rectifier_core.indicator import Indicator, IndicatorId

VERSION = r"[1-9][0-9]{0,18}(-[0-9a-f]{16})?"  # a version, or its number alone

Operation = Literal["put", "delete", "create", "drop"]


@dataclass(frozen=True, slots=True)
class Change:
    """An entry of a pool's change stream.

    Attributes:
        seq: Its number, from 1, without gaps.
        version: The pool's version that it led to.
        op: ``create`` and ``drop`` are about the pool itself.
        id: The indicator; empty for ``create`` and ``drop``.
        before: The indicator until then; None where there was none, or a crash hid it.
        after: The indicator since then; None after ``delete``.
        was: Status and content hash on record until then, ``active:9f86..``; empty where there was
            none; None in entries of before this was kept.
        time: When it was recorded, in seconds since 1970; None in such entries.
    """

    seq: int
    version: str
    op: Operation
    id: IndicatorId
    before: Indicator | None
    after: Indicator | None
    was: str | None = None
    time: int | None = None

    @property
    def name(self) -> str:
        """The indicator's newest name; empty where the change is about the pool."""
        named = self.after or self.before
        return named.name if named else ""


@dataclass(frozen=True, slots=True)
class Edit:
    """What changes come to for one indicator.

    Attributes:
        id: The indicator.
        before: As it was; None where it was not there.
        after: As it became; None where it is no longer there.
    """

    id: IndicatorId
    before: Indicator | None
    after: Indicator | None

    @property
    def reverse(self) -> "Edit":
        """The edit that undoes this one."""
        return Edit(self.id, self.after, self.before)


@dataclass(frozen=True, slots=True)
class Difference:
    """What lies between two versions of a pool.

    Attributes:
        start: The version that it starts from.
        end: The version that it leads to; it may be the older one.
        edits: By id; only indicators that differ.
    """

    start: str
    end: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Rollback:
    """What a rollback did.

    Attributes:
        version: The pool's version now.
        written: Indicators that are back, or back to what they were.
        removed: Indicators that were not there at that version.
    """

    version: str
    written: int
    removed: int


class Stretch:
    """Sums up changes that follow one another; it keeps two indicators for each id, at most."""

    def __init__(self, since: int) -> None:
        """Start after change number ``since``."""
        self._newest = since
        self._was: dict[IndicatorId, str | None] = {}
        self._before: dict[IndicatorId, Indicator | None] = {}
        self._after: dict[IndicatorId, Indicator | None] = {}

    @property
    def newest(self) -> int:
        """Number of the newest change that was taken in."""
        return self._newest

    def take(self, changes: Iterable[Change]) -> None:
        """Take in the changes that come next, oldest first.

        Raises:
            ConflictError: One is missing in between (``history_gap``).
        """
        for change in changes:
            if change.seq != self._newest + 1:
                raise ConflictError("history_gap", f"change {self._newest + 1} is lost")
            self._newest = change.seq
            if not change.id:
                continue
            if change.id not in self._was:
                self._was[change.id] = change.was
                self._before[change.id] = change.before
            self._after[change.id] = change.after

    def hidden(self) -> set[IndicatorId]:
        """Return the ids of which is not known what they were, but that they were something."""
        return {one for one, was in self._was.items() if was != "" and self._before[one] is None}

    def search(self, changes: Iterable[Change]) -> None:
        """Look for what is hidden among other changes, of any age."""
        hidden = self.hidden()
        for change in changes:
            for one in (change.before, change.after):
                if one is not None and one.id in hidden and mark(one) == self._was[one.id]:
                    self._before[one.id] = one

    def edits(self) -> tuple[Edit, ...]:
        """Return what it all comes to, by id; what ended as it began is left out.

        Raises:
            ConflictError: Something is hidden still (``history_gap``).
        """
        if hidden := sorted(self.hidden()):
            raise ConflictError(
                "history_gap",
                f"a crash hid what indicator {hidden[0]} was ({len(hidden)} such in all)",
            )
        edits = (Edit(one, self._before[one], self._after[one]) for one in sorted(self._was))
        return tuple(edit for edit in edits if edit.before != edit.after)


def mark(indicator: Indicator) -> str:
    """Return what is on record of an indicator: its status and content hash."""
    return f"{indicator.status.value}:{indicator.content_hash}"
