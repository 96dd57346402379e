"""What commands print: data on stdout, all else on stderr."""

import json
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from arachne.errors import ArachneError


def print_json(data: object) -> None:
    """`data` as one JSON document on stdout."""
    sys.stdout.write(json.dumps(data, indent=2, default=str) + "\n")


def print_rows(rows: Sequence[Mapping[str, object]], columns: Sequence[str], *, as_json: bool) -> None:
    """`rows` as a table on stdout, or as JSON."""
    if as_json:
        print_json(list(rows))
        return
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*("" if row[column] is None else str(row[column]) for column in columns))
    Console(soft_wrap=not sys.stdout.isatty()).print(table)


def say(line: str) -> None:
    """A remark for the person at the terminal."""
    sys.stderr.write(line + "\n")


def complain(error: ArachneError) -> None:
    """What went wrong and what to do about it."""
    say(f"arachne: {error.message}")
