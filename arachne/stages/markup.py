"""Blocks as plain text and as Markdown."""

import re
import unicodedata
from collections.abc import Sequence

from arachne.schemas.result import Block, Table

_BULLET = re.compile(r"^(?:[•·▪◦●○*-])\s+(?=\S)")
_NUMBER = re.compile(r"^\(?\d{1,3}[.)]\s+(?=\S)")
_SARA_AM = re.compile("\u0e4d([\u0e48-\u0e4b]?)\u0e32")  # readers give its two strokes as letters of their own


def clean(text: str) -> str:
    """The text without NUL, other control characters and lone surrogates, which databases and JSON refuse."""
    kept = "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in {"Cc", "Cs"})
    return _SARA_AM.sub("\\1\u0e33", kept)


def starts_item(text: str) -> bool:
    """Whether a line begins like an item of a list."""
    return bool(_BULLET.match(text) or _NUMBER.match(text))


def to_text(parts: Sequence[Block | Table]) -> str:
    """Plain text: blocks parted by an empty line, cells by tabs, code with its columns."""
    return "\n\n".join(text for part in parts if (text := _plain(part)))


def to_markdown(parts: Sequence[Block | Table]) -> str:
    """Markdown with headings, lists, fenced code and pipe tables."""
    return "\n\n".join(text for part in parts if (text := _marked(part)))


def _plain(part: Block | Table) -> str:
    if isinstance(part, Table):
        return "\n".join("\t".join(row) for row in _cells(part))
    return "\n".join(line.text for line in part.lines)


def _marked(part: Block | Table) -> str:
    if isinstance(part, Table):
        return _pipe_table(part)
    lines = [line.text for line in part.lines]
    match part.kind:
        case "code":
            fence = "```" if all("```" not in line for line in lines) else "~~~~"
            return "\n".join([fence, *lines, fence])
        case "heading":
            return f"## {' '.join(lines)}"
        case "list":
            return "\n".join(_BULLET.sub("- ", line) for line in lines)
        case _:
            return "\n".join(lines)


def _cells(table: Table) -> list[list[str]]:
    """The text of each row's cells that begin there."""
    rows: list[list[str]] = [[] for _ in range(table.rows)]
    for cell in table.cells:
        rows[cell.row].append(cell.text)
    return [row for row in rows if any(row)]


def _pipe_table(table: Table) -> str:
    grid = [[""] * table.columns for _ in range(table.rows)]
    for cell in table.cells:
        grid[cell.row][cell.column] = cell.text.replace("|", "\\|").replace("\n", " ")
    lines = ["| " + " | ".join(row) + " |" for row in grid]
    lines.insert(1, "|" + " --- |" * table.columns)
    return "\n".join(lines)
