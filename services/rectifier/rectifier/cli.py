"""Commands of ``rectifier``."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from rectifier import logs
from rectifier.commands import audit, history, pool
from rectifier.commands.outcome import fail
from rectifier.settings import PREFIX, Settings, unknown_settings
from rectifier_core.errors import RectifierError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Audits the messages of a multi-agent system before the other agents read them.",
)
for command in (history.versions, history.rollback, history.stats, history.show):
    pool.app.command()(command)
app.add_typer(pool.app, name="pool")
app.command()(audit.audit)


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the embedded default.")] = None,
) -> None:
    """Run the service. Settings come from the environment; options override them."""
    # Imported here: the other commands need none of it, and it takes a second or more.
    from rectifier.serve import serve as serve_until_stopped

    settings = read_settings(host=host, port=port, data_dir=data_dir)
    logs.configure(settings.log_level)
    try:
        serve_until_stopped(settings)
    except RectifierError as error:
        fail(str(error))


@app.command()
def reembed(
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the embedded default.")] = None,
) -> None:
    """Give stored indicators vectors of the configured embedding model; no service may run."""
    # Imported here, as above.
    from rectifier.wiring import reembed as reembed_all

    settings = read_settings(data_dir=data_dir)
    try:
        count = asyncio.run(reembed_all(settings))
    except RectifierError as error:
        fail(str(error))
    typer.echo(f"{count} indicators were embedded anew")


def read_settings(**overrides: Any) -> Settings:
    """Return the settings, or exit with one line that names the offending one."""
    if unknown := unknown_settings():
        fail(f"there is no setting {unknown[0]}; `rectifier serve --help` and the README list them")
    try:
        return Settings(**{name: value for name, value in overrides.items() if value is not None})
    except (ValidationError, SettingsError) as error:
        fail(_first(error))


def _first(error: ValidationError | SettingsError) -> str:
    if isinstance(error, SettingsError):
        return str(error)
    worst = error.errors(include_input=False)[0]
    name = ".".join(str(step) for step in worst["loc"])
    shown = f"{PREFIX}{name.upper()}: " if name in Settings.model_fields else ""
    return shown + worst["msg"].removeprefix("Value error, ")
