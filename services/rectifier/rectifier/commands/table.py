"""A table in a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def print_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Print these fields of each row; long texts go over several lines, whole."""
    table = Table(box=None)
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(escape(str(row[column])) for column in columns))
    Console().print(table)
