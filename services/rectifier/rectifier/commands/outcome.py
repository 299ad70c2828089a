"""How a command ends: its exit status, and one line where it failed."""

import sys
from typing import NoReturn

import typer

EXIT_PARTLY = 1
EXIT_FAILED = 2


def fail(line: str) -> NoReturn:
    """Exit with one line on standard error."""
    typer.echo(f"rectifier: {line}", err=True)
    sys.exit(EXIT_FAILED)
