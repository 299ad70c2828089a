"""``rectifier pool``: what a pool holds, how it came to that, and the way back."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer

from rectifier.commands.outcome import failing
from rectifier.commands.pool import DEFAULT_BASE_URL, ApiKey, AsJson, BaseUrl
from rectifier.commands.remote import Remote
from rectifier.commands.table import print_table
from rectifier_core.errors import InputError
from rectifier_core.history import VERSION
from rectifier_core.indicator import check_pool_name
from rectifier_core.limits import check_id

PAGE = 1_000  # indicators that are read at once

PoolArgument = Annotated[str, typer.Argument(metavar="NAME", help="The pool's name.")]


def versions(
    pool: PoolArgument,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Versions at most.")] = 20,
    base_url: BaseUrl = DEFAULT_BASE_URL,
    api_key: ApiKey = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List a pool's versions, newest first, with the change that led to each."""
    with failing(), Remote(base_url, api_key) as remote:
        check_pool_name(pool)
        found = remote.get(f"/pools/{pool}/versions", limit=limit)["items"]
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    rows = [{**one, "time": _moment(one["time"])} for one in found]
    print_table(("version", "time", "op", "name", "id"), rows)


def rollback(
    pool: PoolArgument,
    version: Annotated[str, typer.Argument(help="A version of it, or its number.")],
    base_url: BaseUrl = DEFAULT_BASE_URL,
    api_key: ApiKey = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Bring a pool back to what it was at a version; that is a new version."""
    with failing(), Remote(base_url, api_key) as remote:
        check_pool_name(pool)
        if not re.fullmatch(VERSION, version):
            raise InputError(f"{version!r} is no version; `rectifier pool versions` lists them")
        asked = json.dumps({"version": version}).encode()
        done = remote.post(f"/pools/{pool}/rollback", asked, media_type="application/json")
    if as_json:
        typer.echo(json.dumps(done, ensure_ascii=False))
        return
    typer.echo(
        f"pool {pool}: {done['written']:,} written, {done['removed']:,} removed, "
        f"now at version {done['version']}"
    )


def stats(
    pool: PoolArgument,
    base_url: BaseUrl = DEFAULT_BASE_URL,
    api_key: ApiKey = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Count a pool's indicators by status, mode and source."""
    counts: dict[str, Counter[str]] = {"status": Counter(), "mode": Counter(), "source": Counter()}
    with failing(), Remote(base_url, api_key) as remote:
        check_pool_name(pool)
        version = remote.get(f"/pools/{pool}")["version"]
        for one in _indicators(remote, pool):
            counts["status"][one["status"]] += 1
            counts["mode"][one["mode"]] += 1
            counts["source"][_origin(one["source"])] += 1
    total = counts["status"].total()
    if as_json:
        found = {"pool": pool, "version": version, "indicators": total, **counts}
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    typer.echo(f"pool {pool}: {total:,} indicators at version {version}")
    rows = [
        {"by": by, "value": value, "indicators": f"{count:,}"}
        for by, counted in counts.items()
        for value, count in counted.most_common()
    ]
    print_table(("by", "value", "indicators"), rows)


def show(
    pool: PoolArgument,
    id_: Annotated[str, typer.Argument(metavar="ID", help="The indicator's id.")],
    base_url: BaseUrl = DEFAULT_BASE_URL,
    api_key: ApiKey = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show one indicator."""
    with failing(), Remote(base_url, api_key) as remote:
        check_pool_name(pool)
        check_id(id_)
        found = remote.get(f"/pools/{pool}/indicators/{quote(id_)}")
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    shown = {**found, "examples": "\n".join(map(_example, found["examples"]))}
    rows = [
        {"field": name.replace("_", " "), "value": value} for name, value in shown.items() if value
    ]
    print_table(("field", "value"), rows)


def _indicators(remote: Remote, pool: str) -> Iterator[dict[str, Any]]:
    query: dict[str, str | int] = {"limit": PAGE}
    while True:
        page = remote.get(f"/pools/{pool}/indicators", **query)
        yield from page["items"]
        if page["next"] is None:
            return
        query["after"] = page["next"]


def _origin(source: str) -> str:
    """Return the first word of a source, which goes on with an id of its own or a repository."""
    return re.split("[:@]", source, maxsplit=1)[0] or "-"


def _moment(seconds: int | None) -> str:
    return "-" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%SZ}"


def _example(example: dict[str, Any]) -> str:
    verdict = "violated" if example["violated"] else "not violated"
    return f"{verdict}: {example['message']} (task: {example['task']})"
