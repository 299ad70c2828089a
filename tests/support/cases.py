"""The shared hard cases, with their shorthand written out."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rectifier_core.errors import ChatTimeoutError
from rectifier_core.testing.chat import Line

# Cases are JSON of many shapes; each test reads the fields that its case has.
Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One case.

    Attributes:
        id: ``H01`` to ``H20``.
        area: The kind of fault.
        title: What happens.
        input: Its input, with ``$repeat``, ``$concat`` and ``$range`` written out.
    """

    id: str
    area: str
    title: str
    input: Fields

    @property
    def judge_script(self) -> list[Line]:
        """What the judge says, call by call; a failure of all calls is a long run of errors."""
        if self.input.get("scripted_judge_failure"):
            return [ChatTimeoutError("no reply in time") for _ in range(100)]
        return list(self.input.get("scripted_judge_replies", []))


def load_cases(shared: Path) -> dict[str, Case]:
    """Return the cases by id."""
    lines = (shared / "cases" / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return {
        row["id"]: Case(row["id"], row["area"], row["title"], written_out(row["input"]))
        for row in rows
    }


def written_out(value: Any) -> Any:
    """Return ``value`` with the shorthand of the cases replaced by what it stands for."""
    match value:
        case {"$repeat": [text, times]}:
            return text * times
        case {"$concat": parts}:
            return "".join(written_out(part) for part in parts)
        case {"$range": [start, stop, template]}:
            return [_numbered(written_out(template), number) for number in range(start, stop)]
        case dict():
            return {key: written_out(item) for key, item in value.items()}
        case list():
            return [written_out(item) for item in value]
        case _:
            return value


def _numbered(value: Any, number: int) -> Any:
    match value:
        case str():
            return value.replace("{i}", str(number))
        case dict():
            return {key: _numbered(item, number) for key, item in value.items()}
        case list():
            return [_numbered(item, number) for item in value]
        case _:
            return value
