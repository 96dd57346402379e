"""Blocks as plain text and as Markdown."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from arachne.schemas.result import Block, Table
from arachne.stages.items import mark_item, starts_item

_SARA_AM = re.compile("\u0e4d([\u0e48-\u0e4b]?)\u0e32")  # readers give its two strokes as letters of their own


@dataclass(frozen=True)
class Part:
    """A block in reading order, with its table if it is one and its level if it is a heading."""

    block: Block
    table: Table | None
    level: int = 2


def clean(text: str) -> str:
    """The text without NUL, other control characters and lone surrogates, which databases and JSON refuse."""
    kept = "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in {"Cc", "Cs"})
    return _SARA_AM.sub("\\1\u0e33", kept)


def to_text(parts: Sequence[Part], *, joined: bool = False) -> str:
    """Plain text: blocks parted by an empty line, cells by tabs, code with its columns; paragraphs `joined` or not."""
    return "\n\n".join(text for part in parts if (text := _plain(part, joined=joined)))


def to_markdown(parts: Sequence[Part], *, joined: bool = False) -> str:
    """Markdown with headings, lists, fenced code and pipe tables."""
    return "\n\n".join(text for part in parts if (text := _marked(part, joined=joined)))


def _plain(part: Part, *, joined: bool) -> str:
    if part.table:
        return "\n".join("\t".join(row) for row in _cells(part.table))
    lines = [line.text for line in part.block.lines]
    return _join(lines) if joined and part.block.kind == "paragraph" else "\n".join(lines)


def _marked(part: Part, *, joined: bool) -> str:
    if part.table:
        return _pipe_table(part.table)
    lines = [line.text for line in part.block.lines]
    match part.block.kind:
        case "code":
            fence = "```" if all("```" not in line for line in lines) else "~~~~"
            return "\n".join([fence, *lines, fence])
        case "heading":
            return f"{'#' * part.level} {' '.join(lines)}"
        case "list":
            return "\n".join(
                mark_item(line) if index or starts_item(line) else line for index, line in enumerate(lines)
            )
        case "control":
            return f"[{' '.join(lines)}]"
        case _:
            return _join(lines) if joined else "\n".join(lines)


def _join(lines: Sequence[str]) -> str:
    """A paragraph on one line; hyphens at ends of lines stay as they are printed, and their lines end there."""
    text = ""
    for line in lines:
        text += ("\n" if text.endswith("-") else " " if text else "") + line
    return text


def _cells(table: Table) -> list[list[str]]:
    """The text of each row's cells that begin there."""
    rows: list[list[str]] = [[] for _ in range(table.rows)]
    for cell in table.cells:
        rows[cell.row].append(cell.text)
    return [row for row in rows if any(row)]


def _pipe_table(table: Table) -> str:
    """The grid; merged cells are told again in each place they take, but once where they take a whole row."""
    grid = [[""] * table.columns for _ in range(table.rows)]
    for cell in table.cells:
        across = cell.column_span if cell.column_span < table.columns else 1
        for row in range(cell.row, min(table.rows, cell.row + cell.row_span)):
            for column in range(cell.column, min(table.columns, cell.column + across)):
                grid[row][column] = cell.text.replace("|", "\\|").replace("\n", " ")
    lines = ["| " + " | ".join(row) + " |" for row in grid]
    lines.insert(1, "|" + " --- |" * table.columns)
    return "\n".join(lines)
