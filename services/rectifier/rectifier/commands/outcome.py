"""How a command ends: its exit status, and one line where it failed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from rectifier_core.errors import RectifierError

EXIT_PARTLY = 1
EXIT_FAILED = 2


def fail(line: str) -> NoReturn:
    """Exit with one line on standard error."""
    typer.echo(f"rectifier: {line}", err=True)
    sys.exit(EXIT_FAILED)


@contextmanager
def failing() -> Iterator[None]:
    """End the command with one line where it cannot be done."""
    try:
        yield
    except RectifierError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
