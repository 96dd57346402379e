"""What commands print: data on stdout, all else on stderr."""

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from arachne.errors import ArachneError, RequestError

_UNFOLDED_WIDTH = 500  # for pipes and files: a record stays on its line


def print_json(data: object) -> None:
    """`data` as one JSON document on stdout."""
    sys.stdout.write(json.dumps(data, indent=2, default=_plain) + "\n")


def print_rows(rows: Sequence[Mapping[str, object]], columns: Sequence[str], *, as_json: bool) -> None:
    """`rows` as a table on stdout, or as JSON."""
    if as_json:
        print_json(list(rows))
        return
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*("" if row[column] is None else escape(_written(row[column])) for column in columns))
    Console(width=None if sys.stdout.isatty() else _UNFOLDED_WIDTH).print(table)


def print_csv(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
    """`rows` as CSV on stdout, under a header; what a row hasn't is empty.

    Source: RFC 4180, but for the line ends, which are this system's.
    """
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def print_record(record: Mapping[str, object], *, as_json: bool) -> None:
    """One record on stdout, a line a member, or as JSON."""
    if as_json:
        print_json(record)
        return
    for name, value in record.items():
        sys.stdout.write(f"{name.replace('_', ' ')}: {_written(value)}\n")


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return value if isinstance(value, int | float | str) else str(value)


def _written(value: object) -> str:
    return shown(str(_plain(value)))


def say(line: str) -> None:
    """A remark for the person at the terminal."""
    sys.stderr.write(line + "\n")


def shown(text: str) -> str:
    """The text with its control characters written out: what comes from elsewhere must not drive a terminal."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def complain(error: ArachneError) -> None:
    """What went wrong and what to do about it."""
    code = f" ({error.code})" if isinstance(error, RequestError) else ""
    say("\n".join(shown(line) for line in f"arachne: {error.message}{code}".splitlines()))
