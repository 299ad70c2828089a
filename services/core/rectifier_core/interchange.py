"""Indicators in files: JSON Lines in the neutral format, and the array that the paper released.

A file is hostile until read. Nothing but the fields of an `Indicator` is taken over, so metadata
with reference solutions stays behind; a line that is refused leaves the others alone. Nothing is
stored here: a caller reads all of a file, looks at what was refused, and then decides.

The neutral format, one object a line: ``schema`` (``neutral-indicator/1``), ``id``, ``name``,
``definition``, ``trigger_condition``, ``risk_alert``, ``domain``, ``examples``, ``source``,
``licence``; our own lines add ``pool``, ``status`` and ``mode``. All but name and definition may be
null or missing.
"""

import json
import re
import uuid
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from rectifier_core.errors import InputError
from rectifier_core.indicator import (
    Example,
    Indicator,
    IndicatorId,
    Mode,
    Status,
    check_pool_name,
    indicator_id,
)
from rectifier_core.limits import NAME_LIMIT, checked_indicator

SCHEMA = "neutral-indicator/1"
LINE_LIMIT = 2 * 1024 * 1024  # bytes: the longest line that we write ourselves is shorter

# Text that was damaged on its way: control characters (tab and line feed aside), half a surrogate
# pair, and LaTeX whose backslash a JSON writer left single, which reads as tab or line feed.
_UNREADABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_HALF_LATEX = re.compile(r"\t(?:heta|imes|ext\{|frac|riangle)|\n(?:abla|otin|eq)\b")
# Format characters that show nothing and can hide orders: zero width, bidi, tags, variation.
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)
_LINE_BREAK = re.compile("\r\n|[\u2028\u2029]")
_RAW_LINE_BREAKS = str.maketrans({c: f"\\u{ord(c):04x}" for c in "\x85\u2028\u2029"})

_ORIGIN = re.compile(r"[A-Za-z0-9._:/#+-]{1,200}")
_REPOSITORY = re.compile(r"[A-Za-z0-9._-]{1,64}/[A-Za-z0-9._-]{1,100}")
_NOTHING = {"n/a", "none", "null"}

_BLANK = b" \t\r\n\xef\xbb\xbf"
_MARK = re.compile(rb'[]["{},\\]')
_STEP = {b"[": 1, b"{": 1, b"]": -1, b"}": -1, b",": 0}
_NOT_ONE_ARRAY = "the file is not one JSON array"

_NO_ID = IndicatorId(str(uuid.UUID(int=0)))  # until the texts are known that it is made of

W = TypeVar("W", Status, Mode)


@dataclass(frozen=True, slots=True)
class Refused:
    """A line that was not taken over.

    Attributes:
        line: Its number, from 1; in the released format the number of the array's element.
        reason: What is wrong, with the field's name where there is one; never the text itself.
    """

    line: int
    reason: str


class Reader:
    """Reads one file's lines in order; of those read it keeps the ids and no text."""

    def __init__(
        self, *, pool: str, tenant: str, source: str, present: Container[str] = frozenset()
    ) -> None:
        """Start a file.

        Args:
            pool: Where its indicators go; a pool that a line names is ignored.
            tenant: Whose they are.
            source: Where they come from, in one word; a line's own id is appended to it.
            present: Ids that this pool of this tenant holds now. A line with one of them replaces
                that indicator in place; every other line gets the id of its texts, so that a file
                cannot reach an indicator of another pool or tenant.

        Raises:
            InputError: ``pool`` is not a pool's name.
        """
        self._pool = check_pool_name(pool)
        self._tenant = tenant
        self._source = source
        self._present = present
        self._line = 0
        self._lines_by_id: dict[IndicatorId, int] = {}
        self._lines_by_origin: dict[str, int] = {}

    def read(self, line: bytes | str) -> Indicator | Refused | None:
        """Return what the next line holds; None for a blank one."""
        self._line += 1
        try:
            row = _row(line)
            return None if row is None else self._once(row)
        except InputError as exc:
            reason = str(exc) if exc.field is None else f"{exc.field}: {exc}"
            return Refused(self._line, reason)

    def _once(self, row: Mapping[str, Any]) -> Indicator:
        origin = _text(row, "id")
        if len(origin) > NAME_LIMIT:
            raise InputError(f"longer than {NAME_LIMIT} characters", field="id")
        indicator = self._indicator(row, origin)
        first = self._lines_by_origin.get(origin) or self._lines_by_id.get(indicator.id)
        if first is not None:
            raise InputError(f"duplicate of line {first}")
        self._lines_by_id[indicator.id] = self._line
        if origin:
            self._lines_by_origin[origin] = self._line
        return indicator

    def _indicator(self, row: Mapping[str, Any], origin: str) -> Indicator:
        one = checked_indicator(
            Indicator(
                id=_NO_ID,
                pool=self._pool,
                name=" ".join(_text(row, "name").split()),
                definition=_text(row, "definition"),
                trigger_condition=_hint(row, "trigger_condition"),
                risk_alert=_hint(row, "risk_alert"),
                examples=_examples(row.get("examples")),
                status=_word(row, "status", Status, Status.ACTIVE),
                mode=_word(row, "mode", Mode, Mode.ENFORCE),
                source=_provenance(row, self._source, origin),
                licence=_text(row, "licence"),
                tenant=self._tenant,
            )
        )
        if origin in self._present:
            return replace(one, id=IndicatorId(origin))
        derived = indicator_id(
            tenant=one.tenant,
            pool=one.pool,
            name=one.name,
            definition=one.definition,
            trigger_condition=one.trigger_condition,
        )
        return replace(one, id=derived)


def read(
    lines: Iterable[bytes | str],
    *,
    pool: str,
    tenant: str,
    source: str,
    present: Container[str] = frozenset(),
) -> Iterator[Indicator | Refused]:
    r"""Yield an indicator or a refusal for every line that is not blank, in order.

    Args:
        lines: As an open file yields them, or `Lines`; cut at ``\n`` alone.
        pool: See `Reader`, as for the other arguments.
        tenant: Whose they are.
        source: Where they come from.
        present: Ids that may be replaced in place.

    Raises:
        InputError: ``pool`` is not a pool's name.
    """
    reader = Reader(pool=pool, tenant=tenant, source=source, present=present)
    for line in lines:
        result = reader.read(line)
        if result is not None:
            yield result


def read_released(
    chunks: Iterable[bytes | str],
    *,
    pool: str,
    tenant: str,
    source: str,
    present: Container[str] = frozenset(),
) -> Iterator[Indicator | Refused]:
    """Yield what the paper's released format holds: one JSON array of entries.

    An entry has ``name``, ``detailed_definition`` and ``evaluator_prompt`` with
    ``trigger_condition`` and ``risk_alert``; its ``metadata`` stays behind.

    Args:
        chunks: The file, in pieces of any size; one element is held at a time.
        pool: See `Reader`, as for the other arguments.
        tenant: Whose they are.
        source: Where they come from.
        present: Ids that may be replaced in place.

    Raises:
        InputError: ``pool`` is not a pool's name, or the file is not one JSON array; at its end,
            where that is cut off.
    """
    return read(_elements(chunks), pool=pool, tenant=tenant, source=source, present=present)


def write(indicators: Iterable[Indicator]) -> Iterator[str]:
    """Yield one line each, sorted by id: the same indicators give the same bytes.

    Reading the lines back gives the same indicators, in any pool but for their ids.
    """
    for indicator in sorted(indicators, key=lambda one: one.id):
        yield line_of(indicator)


def line_of(indicator: Indicator) -> str:
    r"""Return the line of one indicator, with its ``\n``: for a caller that has them sorted."""
    return _json(
        {
            "schema": SCHEMA,
            "id": indicator.id,
            "pool": indicator.pool,
            "name": indicator.name,
            "definition": indicator.definition,
            "trigger_condition": indicator.trigger_condition or None,
            "risk_alert": indicator.risk_alert or None,
            "domain": indicator.pool,
            "examples": [asdict(example) for example in indicator.examples] or None,
            "status": indicator.status,
            "mode": indicator.mode,
            "source": indicator.source,
            "licence": indicator.licence or None,
        }
    )


def write_released(indicators: Iterable[Indicator]) -> Iterator[str]:
    """Yield the released format, sorted by id; it has no place for examples, status and mode."""
    before = "[\n"
    for indicator in sorted(indicators, key=lambda one: one.id):
        entry = {
            "name": indicator.name,
            "detailed_definition": indicator.definition,
            "evaluator_prompt": {
                "trigger_condition": indicator.trigger_condition,
                "risk_alert": indicator.risk_alert,
            },
        }
        yield before + _json(entry).rstrip("\n")
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


class Lines:
    """Cuts a stream of bytes into lines, and holds at most one line's limit of it."""

    def __init__(self) -> None:
        self._held = _Held()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that ``chunk`` completes; one over the limit comes cut, but over it."""
        *ends, rest = chunk.split(b"\n")
        lines = []
        for end in ends:
            self._held.add(end)
            lines.append(self._held.take())
        self._held.add(rest)
        return lines

    def end(self) -> list[bytes]:
        """Return the last line, where it had no line end."""
        last = self._held.take()
        return [last] if last else []


class _Held:
    """Bytes held back, one more than the limit at most: enough for the reader to refuse them."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, piece: bytes) -> None:
        self._bytes += piece[: LINE_LIMIT + 1 - len(self._bytes)]

    def take(self) -> bytes:
        taken = bytes(self._bytes)
        self._bytes.clear()
        return taken


def _elements(chunks: Iterable[bytes | str]) -> Iterator[bytes]:
    held = _Held()
    scan = _Scan()
    opened = False
    for chunk in chunks:
        data = chunk.encode("utf-8", "surrogatepass") if isinstance(chunk, str) else chunk
        start = 0
        for at, depth in scan.borders(data):
            held.add(data[start:at])
            piece = held.take().strip(_BLANK)
            if depth == 0 and (piece or data[at] not in b"["):
                raise InputError(_NOT_ONE_ARRAY)
            opened = True
            if piece:
                yield piece
            start = at + 1
        held.add(data[start:])
    if not opened or scan.depth != 0 or held.take().strip(_BLANK):
        raise InputError(_NOT_ONE_ARRAY)


class _Scan:
    """Follows brackets and strings of JSON bytes; what is between them is for the reader."""

    def __init__(self) -> None:
        self.depth = 0
        self._in_string = False
        self._escaped_until = 0

    def borders(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield where an element of the outermost array begins or ends, and the depth before it."""
        for mark in _MARK.finditer(data):
            at, sign = mark.start(), mark[0]
            if at < self._escaped_until:
                continue
            if sign == b"\\":
                self._escaped_until = at + 2
            elif sign == b'"':
                self._in_string = not self._in_string
            elif not self._in_string:
                before, self.depth = self.depth, self.depth + _STEP[sign]
                if min(before, self.depth) <= 0 or (sign == b"," and before == 1):
                    yield at, before
        self._escaped_until = max(0, self._escaped_until - len(data))


def _json(fields: Mapping[str, object]) -> str:
    return json.dumps(fields, ensure_ascii=False).translate(_RAW_LINE_BREAKS) + "\n"


def _row(line: bytes | str) -> Mapping[str, Any] | None:
    """Return the fields of a line, by the names of the neutral format; None for a blank one."""
    if len(line) > LINE_LIMIT:
        raise InputError(f"longer than {LINE_LIMIT} bytes")
    try:
        text = line.decode() if isinstance(line, bytes) else line
        text = text.removeprefix("\ufeff")
        if not text.strip():
            return None
        row = json.loads(text, object_pairs_hook=_unambiguous, parse_constant=_no_number)
    except UnicodeDecodeError as exc:
        raise InputError("not UTF-8") from exc
    except RecursionError as exc:
        raise InputError("nested too deeply") from exc
    except ValueError as exc:
        raise InputError("not JSON") from exc
    return _neutral(_object(row))


def _unambiguous(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise InputError("names a field twice")
    return fields


def _no_number(_word: str) -> None:
    raise InputError("holds NaN or Infinity")


def _object(value: object, field: str | None = None) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError("not an object", field=field)
    return value


def _neutral(row: Mapping[str, Any]) -> Mapping[str, Any]:
    if row.get("schema", SCHEMA) != SCHEMA:
        raise InputError(f"not {SCHEMA}", field="schema")
    if "detailed_definition" not in row:
        return row
    prompt = _object(row.get("evaluator_prompt", {}), "evaluator_prompt")
    return {
        "name": row.get("name"),
        "definition": row["detailed_definition"],
        "trigger_condition": prompt.get("trigger_condition"),
        "risk_alert": prompt.get("risk_alert"),
    }


def _text(row: Mapping[str, Any], field: str, *, within: str = "") -> str:
    """Return a field's text without the characters that show nothing; null and missing are ""."""
    path = within + field
    value = row.get(field)
    if not isinstance(value, str | None):
        raise InputError("not a text", field=path)
    text = _INVISIBLE.sub("", _LINE_BREAK.sub("\n", value or ""))
    # Before the ends are stripped: a form feed at the start is what is left of a LaTeX \frac.
    if _UNREADABLE.search(text) or _HALF_LATEX.search(text):
        raise InputError("holds control characters or damaged escapes", field=path)
    return text.strip()


def _hint(row: Mapping[str, Any], field: str) -> str:
    text = _text(row, field)
    return "" if text.casefold() in _NOTHING else text


def _examples(value: object) -> tuple[Example, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InputError("not a list", field="examples")
    return tuple(_example(item, f"examples.{n}") for n, item in enumerate(value))


def _example(value: object, path: str) -> Example:
    row = _object(value, path)
    violated = row.get("violated")
    if not isinstance(violated, bool):
        raise InputError("not true or false", field=f"{path}.violated")
    return Example(
        task=_text(row, "task", within=f"{path}."),
        message=_text(row, "message", within=f"{path}."),
        violated=violated,
    )


def _word(row: Mapping[str, Any], field: str, words: type[W], default: W) -> W:
    value = row.get(field)
    if value is None:
        return default
    try:
        return words(value)
    except ValueError as exc:
        raise InputError(f"not one of {', '.join(words)}", field=field) from exc


def _provenance(row: Mapping[str, Any], source: str, origin: str) -> str:
    """Return where a line comes from in one word: ``import:adv2-math-0000@owner/repository``.

    A source that is a text already is ours, from an export.
    """
    given = row.get("source")
    if isinstance(given, str):
        return _text(row, "source")
    repository = None if given is None else _object(given, "source").get("repo")
    word = f"{source}:{origin}" if _ORIGIN.fullmatch(origin) else source
    if isinstance(repository, str) and _REPOSITORY.fullmatch(repository):
        word = f"{word}@{repository}"
    return word
