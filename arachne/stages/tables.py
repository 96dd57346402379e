"""Tables: ruled ones from the cells their lines enclose, others from columns that keep to their places."""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from arachne.stages import ink
from arachne.stages.arrays import Box, Gray, union
from arachne.stages.read import ReadWord
from arachne.stages.rows import Row, into_cells, into_rows
from arachne.stages.spans import part_spans


@dataclass(frozen=True)
class Cell:
    """A cell of a grid; `box` in pixels of the enhanced picture."""

    row: int
    column: int
    row_span: int
    column_span: int
    box: Box
    words: tuple[ReadWord, ...]

    @property
    def text(self) -> str:
        """Its words, line by line, with single spaces."""
        return " ".join(row.text for row in into_rows(self.words))


@dataclass(frozen=True)
class Grid:
    """A table in pixels of the enhanced picture."""

    box: Box
    rows: int
    columns: int
    cells: tuple[Cell, ...]


def find_ruled(gray: Gray, words: Sequence[ReadWord], glyph_px: float) -> list[Grid]:
    """Grids drawn with lines, with merged cells as they are drawn; uint8 (H, W), dark ink."""
    length = max(20, int(glyph_px * 2.5))
    rules = ink.rules(gray < 200, 2 * length, length).astype(np.uint8)
    grids = []
    for x, y, width, height in ink.component_boxes(rules).tolist():
        if width < 6 * glyph_px or height < 3 * glyph_px:
            continue
        boxes = _enclosed(rules[y : y + height, x : x + width], x, y, glyph_px)
        grid = _grid_of(boxes, words, glyph_px) if len(boxes) >= 4 else None
        if grid is not None:
            grids.append(grid)
    return [grid for grid in grids if not any(other is not grid and _within(grid.box, other.box) for other in grids)]


def _within(inner: Box, outer: Box) -> bool:
    return outer.x <= inner.x and outer.y <= inner.y and outer.right >= inner.right and outer.bottom >= inner.bottom


def _enclosed(rules: Gray, left: int, top: int, glyph_px: float) -> list[Box]:
    """White areas within the lines that are large enough to hold text."""
    white, boxes = (rules == 0).astype(np.uint8), []
    for x, y, width, height in ink.component_boxes(white).tolist():
        roomy = width > 0.8 * glyph_px and height > 0.9 * glyph_px
        roomy = roomy and cv2.countNonZero(white[y : y + height, x : x + width]) > 0.7 * width * height
        if roomy and (width < 0.98 * rules.shape[1] or height < 0.5 * rules.shape[0]):
            boxes.append(Box(float(left + x), float(top + y), float(width), float(height)))
    return boxes


def _grid_of(boxes: list[Box], words: Sequence[ReadWord], glyph_px: float) -> Grid | None:
    xs = _levels([box.x for box in boxes], glyph_px * 0.6)
    ys = _levels([box.y for box in boxes], glyph_px * 0.6)
    if len(xs) < 2 or len(ys) < 2:
        return None
    owners = [_smallest(boxes, word.box) for word in words]
    shares = [[word for word, owner in zip(words, owners, strict=True) if owner is box] for box in boxes]
    cells = [_cell_of(box, xs, ys, share, glyph_px * 0.6) for box, share in zip(boxes, shares, strict=True)]
    if sum(1 for cell in cells if cell.words) < max(3, len(cells) // 4):
        return None
    ordered = sorted(part_spans(cells, xs, ys, glyph_px), key=lambda cell: (cell.row, cell.column))
    return Grid(union(boxes), len(ys), len(xs), tuple(ordered))


def _smallest(boxes: Sequence[Box], word: Box) -> Box | None:
    """The smallest box that holds the word, where one lies in another as a broken frame makes it."""
    return min((box for box in boxes if box.holds(word)), key=lambda box: box.width * box.height, default=None)


def _levels(values: list[float], apart: float) -> list[float]:
    """Distinct starts of rows or columns."""
    levels = list[float]()
    for value in sorted(values):
        if not levels or value - levels[-1] > apart:
            levels.append(value)
    return levels


def _cell_of(box: Box, xs: list[float], ys: list[float], inside: Sequence[ReadWord], apart: float) -> Cell:
    row, column = (
        int(np.argmin([abs(level - start) for level in levels])) for levels, start in ((ys, box.y), (xs, box.x))
    )
    row_span = sum(1 for y in ys[row:] if y < box.bottom - apart)
    column_span = sum(1 for x in xs[column:] if x < box.right - apart)
    return Cell(row, column, max(1, row_span), max(1, column_span), box, tuple(inside))


def find_aligned(rows: Sequence[Row], glyph_px: float) -> list[tuple[Grid, range]]:
    """Grids without lines, with the range of rows each takes: three or more rows whose cells keep to columns."""
    gap = 1.5 * glyph_px
    cells = [into_cells(row, gap) for row in rows]
    found, start = list[tuple[Grid, range]](), 0
    while start < len(rows):
        stop = _run_end(rows, cells, start, glyph_px)
        grid = _aligned_grid(cells[start:stop], glyph_px) if stop - start >= 3 else None
        if grid is not None:
            found.append((grid, range(start, stop)))
        start = stop if grid is not None else start + 1
    return found


def _run_end(rows: Sequence[Row], cells: list[list[list[ReadWord]]], start: int, glyph_px: float) -> int:
    """One past the last row that goes on from `start`: near, below, with two cells or more."""
    stop = start
    while stop < len(rows) and len(cells[stop]) >= 2:
        if stop > start:
            gap = rows[stop].box.y - rows[stop - 1].box.bottom
            if not -glyph_px < gap < 3.5 * glyph_px or not _keeps_columns(cells[start:stop], cells[stop], glyph_px):
                break
        stop += 1
    return stop


def _spans(row: list[list[ReadWord]]) -> list[Box]:
    return [union([word.box for word in cell]) for cell in row]


def _columns(rows: list[list[list[ReadWord]]]) -> list[tuple[float, float]]:
    """Stripes that some row's cells cover, cells that bridge two of another row left out."""
    spans = sorted((box for row in rows if len(row) >= 2 for box in _spans(row)), key=lambda box: box.x)
    stripes = list[tuple[float, float]]()
    for box in spans:
        if stripes and box.x < stripes[-1][1]:
            stripes[-1] = stripes[-1][0], max(stripes[-1][1], box.right)
        else:
            stripes.append((box.x, box.right))
    return stripes


def _keeps_columns(above: list[list[list[ReadWord]]], row: list[list[ReadWord]], glyph_px: float) -> bool:
    """Whether adding the row leaves at least two columns apart."""
    del glyph_px
    before, after = len(_columns(above)), len(_columns([*above, row]))
    return after >= 2 and after >= before - 1


def _aligned_grid(rows: list[list[list[ReadWord]]], glyph_px: float) -> Grid | None:
    stripes = _columns(rows)
    if len(stripes) < 2 or _reads_like_prose(rows, glyph_px):
        return None
    cells = list[Cell]()
    for index, row in enumerate(rows):
        places = dict[int, list[ReadWord]]()
        for cell in row:
            x = union([word.box for word in cell]).centre[0]
            column = min(range(len(stripes)), key=lambda one: abs(sum(stripes[one]) / 2 - x) - _inside(stripes[one], x))
            places.setdefault(column, []).extend(cell)
        for column, words in sorted(places.items()):
            box = union([word.box for word in words])
            cells.append(Cell(index, column, 1, 1, box, tuple(words)))
    filled = len(cells) / (len(rows) * len(stripes))
    if filled < 0.55:
        return None
    return Grid(union([cell.box for cell in cells]), len(rows), len(stripes), tuple(cells))


def _inside(stripe: tuple[float, float], x: float) -> float:
    return 1e6 if stripe[0] <= x <= stripe[1] else 0.0


def _reads_like_prose(rows: list[list[list[ReadWord]]], glyph_px: float) -> bool:
    """Columns of long cells are texts side by side."""
    widths = [box.width for row in rows for box in _spans(row)]
    return float(np.median(widths)) > 22 * glyph_px
