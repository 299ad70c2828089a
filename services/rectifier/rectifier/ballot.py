"""A ballot: what one reply of the judge says of each numbered indicator.

One reading serves every way of asking. A ballot has one of three shapes: the two lists ``clean``
and ``violated``; one object with ``is_flawed``, about the only indicator that was asked or the
one it names; or a list of such objects. Whatever is missing, doubled or contradictory is no
verdict, and only a reply that is one JSON value and nothing else can clear.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from rectifier.evidence import has_impact, is_concrete
from rectifier_core.isolation import folded
from rectifier_core.reply import Json, Parsed, Value, as_bool, as_number, as_text, parse

_SQUEEZED = re.compile(r"[\s\\]+")
_VOTE_LIMIT = 1_000  # statements of one reply; more is no ballot
_NAME_LIMIT = 500  # characters of a name that are compared
_FLAG = ("is_flawed", "violated")
_OUTERMOST = frozenset({*_FLAG, "clean", "not_applying"})


@dataclass(frozen=True, slots=True)
class Accusation:
    """One indicator that the judge calls violated, unchecked.

    Attributes:
        number: The indicator's number.
        evidence: What is quoted.
        correction: What it should be.
        impact: What that changes.
        analysis: Why it is wrong, where the shape asks for it.
    """

    number: int
    evidence: str = ""
    correction: str = ""
    impact: str = ""
    analysis: str = ""


@dataclass(frozen=True, slots=True)
class Ballot:
    """What one reply says, each number at most once.

    Attributes:
        clean: Numbers that it clears, in its order.
        accused: Accusations, in its order.
        void: Numbers that it names without a verdict that counts.
        fault: What is wrong with it, as told to the judge; empty where nothing is.
    """

    clean: tuple[int, ...] = ()
    accused: tuple[Accusation, ...] = ()
    void: tuple[int, ...] = ()
    fault: str = ""

    @property
    def is_blank(self) -> bool:
        """True where it says nothing of any number."""
        return not (self.clean or self.accused or self.void)


@dataclass(frozen=True, slots=True)
class _Vote:
    """One statement: of a number (None: of which one is not known), violated or not (None: unclear)."""

    number: int | None
    violated: bool | None
    accusation: Accusation | None = None


def read_ballot(
    text: str, *, names: Sequence[str], only: int | None = None, message: str = ""
) -> Ballot:
    """Return what ``text`` says. Never raises.

    Args:
        text: The judge's reply.
        names: The indicators' names; number 1 is the first.
        only: The number that an object without one speaks of.
        message: The audited message: a reply that stands in it word for word was copied from it
            and clears nothing.
    """
    reading = _Reading(_numbered(names), only, len(names))
    parsed = parse(text)
    if not parsed.values:
        return Ballot(fault="it holds no readable JSON")
    if not parsed.is_sole:
        return reading.accusing(parsed, "it is not one JSON object alone")
    content = parsed.values[0].content
    inner = _unwrapped(content)
    if inner is not content:
        held = Parsed((Value(inner, parsed.values[0].text),))
        return reading.accusing(held, "it is wrapped in another object")
    if _is_copied(parsed.values[0], message):
        return reading.accusing(parsed, "it repeats text of the message")
    return reading.full(parsed.values[0].content)


@dataclass(frozen=True, slots=True)
class _Reading:
    numbers: dict[str, int | None]
    only: int | None
    count: int

    def full(self, value: Json) -> Ballot:
        """Count everything, each number once."""
        votes = list(islice(self._votes(value), _VOTE_LIMIT))
        if not votes or len(votes) == _VOTE_LIMIT:
            return Ballot(fault="it has not the shape asked for")
        if any(vote.number is None for vote in votes):
            return self._accused_of(votes, "it lacks a list, or names no given number")
        numbers = [vote.number for vote in votes if vote.number]
        once = {number for number, times in Counter(numbers).items() if times == 1}
        counted = [vote for vote in votes if vote.number in once and vote.violated is not None]
        sure = {vote.number for vote in counted}
        return Ballot(
            clean=tuple(v.number for v in counted if v.number and not v.violated),
            accused=tuple(v.accusation for v in counted if v.accusation and v.violated),
            void=tuple(n for n in dict.fromkeys(numbers) if n not in sure),
            fault="" if len(sure) == len(set(numbers)) else "it contradicts itself",
        )

    def accusing(self, parsed: Parsed, fault: str) -> Ballot:
        """Count accusations alone, of several for a number the last."""
        votes = (vote for value in parsed.values for vote in self._votes(value.content))
        return self._accused_of(list(islice(votes, _VOTE_LIMIT)), fault)

    def _accused_of(self, votes: list[_Vote], fault: str) -> Ballot:
        accused = {v.number: v.accusation for v in votes if v.number and v.accusation}
        named = dict.fromkeys(vote.number for vote in votes if vote.number)
        return Ballot(
            accused=tuple(accusation for accusation in accused.values()),
            void=tuple(number for number in named if number not in accused),
            fault=fault,
        )

    def _votes(self, value: Json) -> Iterator[_Vote]:
        """Yield what ``value`` states, in the order of its shapes; a fault of shape is a vote of no number."""
        if isinstance(value, list):
            for item in value:
                if isinstance(item, dict) and any(key in item for key in _FLAG):
                    yield from self._single(item, only=self.only if len(value) == 1 else None)
                else:
                    yield _Vote(None, None)
        elif not isinstance(value, dict):
            return
        elif "clean" in value or isinstance(value.get("violated"), list):
            yield from self._lists(value)
        elif any(key in value for key in _FLAG):
            yield from self._single(value, only=self.only)

    def _lists(self, value: dict[str, Json]) -> Iterator[_Vote]:
        for key in ("clean", "not_applying"):
            named = value.get(key, [] if key == "not_applying" else None)
            if not isinstance(named, list):
                yield _Vote(None, None)
                continue
            for item in named:
                number = self._known(as_number(item))
                if number:
                    yield _Vote(number, violated=False)
        violated = value.get("violated")
        if not isinstance(violated, list):
            yield _Vote(None, None)
            return
        for item in violated:
            fields: dict[str, Json] = item if isinstance(item, dict) else {"id": item}
            yield _vote(self._number(fields, only=None), violated=True, fields=fields)

    def _single(self, fields: dict[str, Json], *, only: int | None) -> Iterator[_Vote]:
        flags = {as_bool(fields[key]) for key in _FLAG if key in fields}
        violated = flags.pop() if len(flags) == 1 else None
        number = self._number(fields, only=only)
        if number is None and violated is False:
            return
        yield _vote(number, violated=violated, fields=fields)

    def _number(self, fields: dict[str, Json], *, only: int | None) -> int | None:
        if "id" in fields:
            return self._known(as_number(fields["id"]))
        name = fields.get("metric", fields.get("name"))
        if isinstance(name, str):
            return self.numbers.get(folded(name[:_NAME_LIMIT]))
        return only

    def _known(self, number: int | None) -> int | None:
        return number if number and number <= self.count else None


def _numbered(names: Sequence[str]) -> dict[str, int | None]:
    """Return the number of each name, None where several indicators bear it."""
    known = [folded(name[:_NAME_LIMIT]) for name in names]
    return {name: n if known.count(name) == 1 else None for n, name in enumerate(known, 1)}


def _vote(number: int | None, *, violated: bool | None, fields: dict[str, Json]) -> _Vote:
    accusation = Accusation(
        number=number or 0,
        evidence=_field(fields, "evidence", "evidence_quote"),
        correction=_field(fields, "correction", "suggestion"),
        impact=_field(fields, "impact", "impact_assessment"),
        analysis=_field(fields, "analysis"),
    )
    if violated:
        return _Vote(number, violated=True, accusation=accusation if number else None)
    if violated is False and _accuses_all_the_same(accusation):
        return _Vote(number, None)
    return _Vote(number, violated)


def _accuses_all_the_same(said: Accusation) -> bool:
    """Return True for ``is_flawed: false`` over a correction that changes the answer."""
    changes = said.impact.strip().casefold().startswith(("yes", "true")) and has_impact(said.impact)
    return changes and is_concrete(said.correction, evidence=said.evidence)


def _field(fields: dict[str, Json], *keys: str) -> str:
    return next((as_text(fields[key]) for key in keys if key in fields), "")


def _unwrapped(content: Json) -> Json:
    """Return what stands alone in objects of one field that means nothing here, three at most."""
    for _ in range(3):
        match content:
            case dict() if len(content) == 1 and not content.keys() & _OUTERMOST:
                (inner,) = content.values()
                if not isinstance(inner, dict | list):
                    return content
                content = inner
            case _:
                return content
    return content


def _is_copied(value: Value, message: str) -> bool:
    squeezed = _SQUEEZED.sub("", message)
    return _SQUEEZED.sub("", value.text) in squeezed
