"""``rectifier audit``: judge one message with a running service."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rectifier.commands.outcome import fail
from rectifier.commands.pool import DEFAULT_BASE_URL, ApiKey, AsJson, BaseUrl
from rectifier.commands.remote import Remote
from rectifier_core.errors import RectifierError

STANDARD_INPUT = Path("-")


def audit(
    file: Annotated[Path, typer.Argument(help="The message, or a request as JSON; - is stdin.")],
    task: Annotated[str | None, typer.Option(help="What the agent was asked.")] = None,
    role: Annotated[str, typer.Option(help="The agent's role specification.")] = "",
    pool: Annotated[list[str] | None, typer.Option(help="A pool to look in; repeatable.")] = None,
    policy: Annotated[str | None, typer.Option(help="A preset.")] = None,
    base_url: BaseUrl = DEFAULT_BASE_URL,
    api_key: ApiKey = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Judge one message: exit 0 on pass, 1 on fail or without a verdict, 2 where it cannot be done.

    With --task the file is the message itself; without, it is a request of POST /audit.
    """
    text = _read(file)
    if task is None:
        body = text
    else:
        request: dict[str, Any] = {"task": task, "message": {"content": text, "role": role}}
        request |= {"pool": pool} if pool else {}
        request |= {"policy": policy} if policy else {}
        body = json.dumps(request)
    try:
        with Remote(base_url, api_key) as remote:
            found = remote.post("/audit", body.encode(), media_type="application/json")
    except RectifierError as error:
        hint = "; give the task with --task, or a JSON request" if task is None else ""
        fail(f"{error}{hint}")
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
    else:
        _show(found)
    sys.exit(0 if found["verdict"] == "pass" else 1)


def _read(file: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if file == STANDARD_INPUT else file.read_bytes()
        return data.decode()
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    except UnicodeDecodeError:
        fail(f"{file}: not UTF-8")


def _show(found: dict[str, Any]) -> None:
    console = Console()
    rate = "" if found["pass_rate"] is None else f", pass rate {found['pass_rate']:.2f}"
    console.print(f"[bold]{found['verdict']}[/bold] ({found['reason']}{rate})", highlight=False)
    if found["findings"]:
        table = Table(box=None)
        for column in ("indicator", "violated", "evidence", "suggestion", "source"):
            table.add_column(column, overflow="fold")
        for one in found["findings"]:
            shown = (one["name"], "yes" if one["violated"] else "no", one["evidence"])
            table.add_row(*(escape(str(v)) for v in (*shown, one["suggestion"], one["source"])))
        console.print(table)
    if found["degraded"]:
        console.print(f"degraded: {', '.join(found['degraded'])}", highlight=False)
    if found["feedback"]:
        console.print(f"\n{escape(found['feedback'])}", highlight=False)
