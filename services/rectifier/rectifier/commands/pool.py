"""``rectifier pool``: import, export, list and search the pools of a running service."""

import json
import os
import sys
from collections import deque
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from rectifier.commands.outcome import EXIT_PARTLY, failing
from rectifier.commands.remote import Remote
from rectifier.commands.table import print_table
from rectifier_core.errors import InputError
from rectifier_core.indicator import DEFAULT_TENANT, Indicator, check_pool_name
from rectifier_core.interchange import Lines, Reader, Refused, line_of, read_released
from rectifier_core.limits import is_id

NDJSON = "application/x-ndjson"
CHUNK = 64 * 1024  # bytes read at once
BATCH_LINES = 200
BATCH_BYTES = 4 * 1024 * 1024  # the longest line and then one more fit in

app = typer.Typer(no_args_is_help=True, help="Read and change the pools of a running service.")

BaseUrl = Annotated[
    str,
    typer.Option(
        "--base-url", envvar="RECTIFIER_BASE_URL", help="URL of the service; else RECTIFIER_PORT."
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", envvar="RECTIFIER_API_KEY", help="A key of it.", show_envvar=True),
]
PoolOption = Annotated[str, typer.Option("--pool", help="The pool's name.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DEFAULT_BASE_URL = ""  # the service that this environment describes


class Format(StrEnum):
    """How a file holds indicators."""

    NEUTRAL = "neutral"
    RELEASED = "released"


class By(StrEnum):
    """What a search ranks by."""

    HYBRID = "hybrid"
    TRIGGER = "trigger"
    MEANING = "meaning"
    WORDS = "words"


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="JSON Lines, or the array that the paper released.")],
    pool: PoolOption,
    format_: Annotated[
        Format | None, typer.Option("--format", help="Absent: what the file looks like.")
    ] = None,
    base_url: BaseUrl = DEFAULT_BASE_URL,
    api_key: ApiKey = None,
) -> None:
    """Import indicators; a line that is refused leaves the others alone."""
    with failing(), Remote(base_url, api_key) as remote, _opened(file) as source:
        check_pool_name(pool)
        with _progress(os.fstat(source.fileno()).st_size) as (advance, say):
            done = _Import(remote, pool, say)
            format_ = format_ or _format_of(source)
            if format_ is Format.RELEASED:  # an array that is cut off is known at its end alone
                deque(_entries(source, format_, pool), maxlen=0)
                source.seek(0)
            for entry in _entries(source, format_, pool):
                done.take(entry)
                advance(source.tell())
            done.send()
    typer.echo(
        f"pool {pool}: {done.created:,} created, {done.updated:,} updated, "
        f"{done.unchanged:,} unchanged, {done.refused:,} refused"
    )
    if done.refused:
        sys.exit(EXIT_PARTLY)


@app.command()
def export(
    pool: PoolOption,
    output: Annotated[Path | None, typer.Option(help="A file; absent: standard output.")] = None,
    base_url: BaseUrl = DEFAULT_BASE_URL,
    api_key: ApiKey = None,
) -> None:
    """Write a pool as JSON Lines, sorted by id."""
    with failing(), Remote(base_url, api_key) as remote:
        check_pool_name(pool)
        chunks = remote.stream(f"/pools/{pool}/indicators/export")
        if output is None:
            for chunk in chunks:
                sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            return
        # Beside it first: an export that breaks off leaves the file that was there.
        partial = output.with_name(f"{output.name}.partial")
        try:
            with partial.open("wb") as target:
                for chunk in chunks:
                    target.write(chunk)
            partial.replace(output)
        finally:
            partial.unlink(missing_ok=True)


@app.command("list")
def list_(
    base_url: BaseUrl = DEFAULT_BASE_URL, api_key: ApiKey = None, *, as_json: AsJson = False
) -> None:
    """List the pools."""
    with failing(), Remote(base_url, api_key) as remote:
        pools = remote.get("/pools")["items"]
    if as_json:
        typer.echo(json.dumps(pools, ensure_ascii=False))
        return
    print_table(("pool", "active", "candidate", "retired", "version"), pools)


@app.command()
def search(
    text: Annotated[str, typer.Argument(help="A message, a task, or words.")],
    pool: PoolOption,
    limit: Annotated[int, typer.Option(min=1, max=100, help="Hits at most.")] = 10,
    by: Annotated[By, typer.Option(help="What to rank by.")] = By.HYBRID,
    base_url: BaseUrl = DEFAULT_BASE_URL,
    api_key: ApiKey = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Search a pool's active indicators, as audits do."""
    asked = json.dumps({"q": text, "limit": limit, "by": by}).encode()
    with failing(), Remote(base_url, api_key) as remote:
        check_pool_name(pool)
        path = f"/pools/{pool}/indicators/search"
        hits = remote.post(path, asked, media_type="application/json")["items"]
    if as_json:
        typer.echo(json.dumps(hits, ensure_ascii=False))
        return
    for hit in hits:
        hit["score"] = f"{hit['score']:.4f}"
    print_table(("score", "name", "trigger_condition"), hits)


@dataclass(frozen=True, slots=True)
class _Line:
    """A line to send, and its number in the file."""

    number: int
    content: bytes


@dataclass(slots=True)
class _Import:
    """What has been sent, and what waits for the next batch."""

    remote: Remote
    pool: str
    say: Callable[[str], None]
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    refused: int = 0
    _batch: list[_Line] = field(default_factory=list)
    _size: int = 0

    def take(self, entry: "_Line | Refused") -> None:
        if isinstance(entry, Refused):
            self._refuse(entry.line, entry.reason)
            return
        self._batch.append(entry)
        self._size += len(entry.content)
        if len(self._batch) == BATCH_LINES or self._size >= BATCH_BYTES:
            self.send()

    def send(self) -> None:
        if not self._batch:
            return
        content = b"".join(line.content for line in self._batch)
        path = f"/pools/{self.pool}/indicators/import"
        answer = self.remote.post(path, content, media_type=NDJSON)
        self.created += answer["created"]
        self.updated += answer["updated"]
        self.unchanged += answer["unchanged"]
        for refused in answer["reasons"]:
            self._refuse(self._batch[refused["line"] - 1].number, refused["reason"])
        self._batch, self._size = [], 0

    def _refuse(self, number: int, reason: str) -> None:
        self.refused += 1
        self.say(f"line {number}: {reason}")


class _AnyId(Container[str]):
    """Any id may be one that the pool holds; the service knows, and decides."""

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str) and is_id(value)


def _entries(source: BinaryIO, format_: Format, pool: str) -> Iterator[_Line | Refused]:
    """Yield what of ``source`` can be sent, one line each, and what is refused here already."""
    chunks = iter(lambda: source.read(CHUNK), b"")
    if format_ is Format.RELEASED:
        found = read_released(chunks, pool=pool, tenant=DEFAULT_TENANT, source="import")
        for number, entry in enumerate(found, 1):
            yield _Line(number, _without_id(entry)) if isinstance(entry, Indicator) else entry
        return
    reader = Reader(pool=pool, tenant=DEFAULT_TENANT, source="import", present=_AnyId())
    for number, line in enumerate(_lines(chunks), 1):
        match reader.read(line):
            case Refused() as refused:
                yield refused
            case Indicator():
                yield _Line(number, line.rstrip(b"\r\n") + b"\n")
            case None:
                pass


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    lines = Lines()
    for chunk in chunks:
        yield from lines.feed(chunk)
    yield from lines.end()


def _without_id(indicator: Indicator) -> bytes:
    """Return the line of an indicator whose id is made of its texts, as the service makes it."""
    return json.dumps({**json.loads(line_of(indicator)), "id": None}).encode() + b"\n"


def _format_of(source: BinaryIO) -> Format:
    start = source.read(CHUNK).removeprefix(b"\xef\xbb\xbf").lstrip()
    source.seek(0)
    return Format.RELEASED if start.startswith(b"[") else Format.NEUTRAL


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    if not file.is_file():
        raise InputError(f"{file} is not a file")
    with file.open("rb") as source:
        yield source


@contextmanager
def _progress(total: int) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """Show a bar in a terminal; yield what moves it, and what writes a line above it."""
    console = Console(stderr=True)
    columns = (TextColumn("importing"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("importing", total=total)

        def advance(position: int) -> None:
            bar.update(task, completed=position)

        def say(line: str) -> None:
            if console.is_terminal:
                console.print(escape(line), highlight=False)
            else:
                typer.echo(line, err=True)

        yield advance, say
