"""Cells that a broken line made one of many: parted where what is in them stands in rows with their neighbours."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from arachne.stages.arrays import Box
from arachne.stages.read import ReadWord
from arachne.stages.rows import into_cells, into_rows

if TYPE_CHECKING:
    from arachne.stages.tables import Cell

_LEVEL = 0.2  # of the glyphs' height; text of the same row is that level
_INTO = 0.6


def part_spans(cells: Sequence["Cell"], xs: Sequence[float], ys: Sequence[float], glyph_px: float) -> list["Cell"]:
    """The cells, spanning ones parted that hold what belongs to several rows or columns, given where these begin."""
    levels = dict[int, list[float]]()
    for cell in cells:
        if cell.row_span == cell.column_span == 1 and cell.words:
            levels.setdefault(cell.row, []).extend(row.box.centre[1] for row in into_rows(cell.words))
    parted = list["Cell"]()
    for cell in cells:
        pieces = _pieces(cell, xs, ys, glyph_px) if cell.row_span > 1 or cell.column_span > 1 else {}
        fit = all(
            _is_level(words, levels.get(row, []), glyph_px) for (row, _), words in pieces.items() if row > cell.row
        )
        parted += _cells(cell, pieces, xs, ys) if len(pieces) > 1 and fit else [cell]
    return parted


def _pieces(
    cell: "Cell", xs: Sequence[float], ys: Sequence[float], glyph_px: float
) -> dict[tuple[int, int], list[ReadWord]]:
    """The cell's words by the row and column they stand in."""
    pieces = dict[tuple[int, int], list[ReadWord]]()
    for row in into_rows(cell.words):
        at = max(cell.row, bisect_right(ys, row.box.centre[1]) - 1)
        for words in into_cells(row, 1.5 * glyph_px):
            column = max(cell.column, bisect_right(xs, words[0].box.x + _INTO * glyph_px) - 1)
            pieces.setdefault((at, column), []).extend(words)
    return pieces


def _is_level(words: Sequence[ReadWord], levels: Sequence[float], glyph_px: float) -> bool:
    return all(any(abs(row.box.centre[1] - level) < _LEVEL * glyph_px for level in levels) for row in into_rows(words))


def _cells(
    cell: "Cell", pieces: dict[tuple[int, int], list[ReadWord]], xs: Sequence[float], ys: Sequence[float]
) -> list["Cell"]:
    cells = []
    for (row, column), words in sorted(pieces.items()):
        left, top = max(xs[column], cell.box.x), max(ys[row], cell.box.y)
        right, bottom = (
            min(starts[index + 1], end) if index + 1 < len(starts) else end
            for starts, index, end in ((xs, column, cell.box.right), (ys, row, cell.box.bottom))
        )
        box = Box(left, top, max(1.0, right - left), max(1.0, bottom - top))
        cells.append(replace(cell, row=row, column=column, row_span=1, column_span=1, box=box, words=tuple(words)))
    return cells
