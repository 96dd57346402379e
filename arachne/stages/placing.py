"""Groups of rows as the result's blocks and tables, with boxes brought back to displayed pixels."""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median

from arachne.schemas.result import Block, Code, Line, Table, TableCell, Word
from arachne.stages.arrays import Box, Size, Transform, union
from arachne.stages.codes import FoundCode
from arachne.stages.groups import Group
from arachne.stages.markup import clean
from arachne.stages.rows import Row, columns_kept
from arachne.stages.tables import Grid

_MOST_BLANK_LINES = 5


@dataclass(frozen=True)
class Frame:
    """How to get from enhanced to displayed pixels."""

    inverse: Transform
    size: Size

    def displayed(self, box: Box) -> Box:
        """The upright box around a box of the enhanced picture, cut to the displayed one."""
        points = self._corners(box)
        xs = [min(max(x, 0.0), self.size.width) for x, _ in points]
        ys = [min(max(y, 0.0), self.size.height) for _, y in points]
        return Box(min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys))

    def bbox(self, box: Box) -> list[float]:
        """The same as it goes over the wire."""
        return [_finite(value) for value in self.displayed(box)]

    def polygon(self, box: Box) -> list[list[float]]:
        """Exactly where the box's corners are displayed."""
        return [[_finite(x), _finite(y)] for x, y in self._corners(box)]

    def _corners(self, box: Box) -> list[tuple[float, float]]:
        """The four corners clockwise from the top left; in plain numbers, since arrays of four are slow."""
        around = ((box.x, box.y), (box.right, box.y), (box.right, box.bottom), (box.x, box.bottom))
        return [self._point(x, y) for x, y in around]

    def _point(self, x: float, y: float) -> tuple[float, float]:
        (a, b, c), (d, e, f), (g, h, i) = self._rows
        depth = g * x + h * y + i
        return (a * x + b * y + c) / depth, (d * x + e * y + f) / depth

    @cached_property
    def _rows(self) -> list[list[float]]:
        return [[float(value) for value in row] for row in self.inverse.tolist()]

    @property
    def level(self) -> bool:
        """Whether boxes stay upright on the way: no turns but quarter ones, and no perspective."""
        (a, b, _), (c, d, _), (e, f, _) = self._rows
        straight = min(abs(a), abs(b)) + min(abs(c), abs(d)) < 0.01 * (abs(a) + abs(b))
        return bool(straight and abs(e) + abs(f) < 1e-9)


def place_block(group: Group, block_id: str, frame: Frame) -> Block:
    """The group as a block; code keeps its columns and blank lines."""
    lines = (
        _code_lines(group, frame) if group.advance else [_line(row, row_text, frame) for row, row_text in group.texts]
    )
    return Block(
        id=block_id,
        kind=group.kind,
        bbox=frame.bbox(group.box),
        confidence=_mean([line.confidence for line in lines if line.words]),
        lines=lines,
    )


def place_table(grid: Grid, frame: Frame) -> Table:
    """The grid with its cells."""
    cells = [
        TableCell(
            row=cell.row,
            column=cell.column,
            row_span=cell.row_span,
            column_span=cell.column_span,
            bbox=frame.bbox(cell.box),
            text=clean(cell.text),
        )
        for cell in grid.cells
    ]
    return Table(bbox=frame.bbox(grid.box), rows=grid.rows, columns=grid.columns, cells=cells)


def place_figure(box: Box, block_id: str) -> Block:
    """A picture at a box of displayed pixels."""
    return Block(id=block_id, kind="figure", bbox=[_finite(value) for value in box], confidence=1.0, lines=[])


def place_code(found: FoundCode) -> Code:
    """A QR or bar code."""
    return Code(kind=found.kind, data=clean(found.data), bbox=[_finite(value) for value in found.box])


def _code_lines(group: Group, frame: Frame) -> list[Line]:
    left = min(row.box.x for row in group.rows)
    lines, pitch = list[Line](), _pitch(group.rows)
    for above, row in zip((None, *group.rows), group.rows, strict=False):
        blank = round((row.box.centre[1] - above.box.centre[1]) / pitch) - 1 if above and pitch else 0
        lines += [_blank(above or row, row, frame)] * min(max(blank, 0), _MOST_BLANK_LINES)
        lines.append(_line(row, columns_kept(row, left, group.advance or 1.0), frame))
    return lines


def _pitch(rows: tuple[Row, ...]) -> float:
    """From one line of code to the next; 0 where there is but one. Every other gap may be a blank line."""
    steps = [below.box.centre[1] - above.box.centre[1] for above, below in pairwise(rows)]
    steps = [step for step in steps if step > 0]
    near = [step for step in steps if step < 1.5 * min(steps)]
    return median(near) if near else 0.0


def _blank(above: Row, below: Row, frame: Frame) -> Line:
    gap = Box(above.box.x, above.box.bottom, 0.0, max(0.0, below.box.y - above.box.bottom))
    return Line(bbox=frame.bbox(gap), polygon=frame.polygon(gap), text="", confidence=1.0, words=[])


def _line(row: Row, text: str, frame: Frame) -> Line:
    words = [
        Word(
            text=clean(word.text),
            bbox=frame.bbox(word.box),
            polygon=frame.polygon(word.box),
            confidence=_unit(word.confidence),
            reader=word.reader,
        )
        for word in row.words
    ]
    box = union([word.box for word in row.words])
    confidence = _mean([word.confidence for word in words])
    return Line(bbox=frame.bbox(box), polygon=frame.polygon(box), text=clean(text), confidence=confidence, words=words)


def _finite(value: float) -> float:
    return round(float(value), 2) if math.isfinite(value) else 0.0


def _unit(value: float) -> float:
    return min(1.0, max(0.0, round(value, 4))) if math.isfinite(value) else 0.0


def _mean(values: list[float]) -> float:
    return _unit(sum(values) / len(values)) if values else 0.0
