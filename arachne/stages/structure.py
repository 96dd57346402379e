"""Stage 7: words to lines, blocks, tables and codes, with boxes in displayed pixels, and to text and Markdown."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from arachne.errors import ReadFailed
from arachne.schemas.result import Block, BlockKind, Code, Fields, Line, Table, TableCell, Word
from arachne.stages import slip, tables
from arachne.stages.arrays import Box, Gray, Rgb, Size, Transform, apply, bounds, corners, union
from arachne.stages.codes import find_codes
from arachne.stages.markup import clean, starts_item, to_markdown, to_text
from arachne.stages.read import ReadWord
from arachne.stages.rows import Row, advances_px, columns_kept, into_rows

VERSION = 2


@dataclass(frozen=True)
class StructureOptions:
    """`profile` slip looks for payment fields; the rest are multiples of the usual line height."""

    profile: Literal["screenshot", "document", "slip"] = "screenshot"
    heading_height: float = 1.35
    block_gap: float = 1.0


@dataclass(frozen=True)
class Structured:
    """Everything of the result that is made from words."""

    text: str
    markdown: str
    blocks: tuple[Block, ...]
    tables: tuple[Table, ...]
    codes: tuple[Code, ...]
    fields: Fields | None


@dataclass(frozen=True)
class _Group:
    """Rows that become one block, or one grid, in reading order."""

    rows: tuple[Row, ...]
    kind: BlockKind
    grid: tables.Grid | None = None
    advance: float | None = field(default=None)


@dataclass(frozen=True)
class _Frame:
    """How to get from enhanced to displayed pixels."""

    inverse: Transform
    size: Size

    def bbox(self, box: Box) -> list[float]:
        return [_finite(value) for value in bounds(apply(self.inverse, corners(box)), self.size)]

    def polygon(self, box: Box) -> list[list[float]]:
        return [[_finite(x), _finite(y)] for x, y in apply(self.inverse, corners(box)).tolist()]


def structure(
    words: Sequence[ReadWord], gray: Gray, displayed: Rgb, transform: Transform, options: StructureOptions
) -> Structured:
    """Blocks, tables and codes of one picture.

    `gray` is the enhanced picture, `displayed` the one boxes speak of, `transform` leads from its pixels to `gray`'s.

    Raises:
        ReadFailed: words were found but no text came out, which is always a fault.
    """
    frame = _Frame(np.linalg.inv(transform).astype(np.float64), Size(displayed.shape[1], displayed.shape[0]))
    words = [word for word in words if clean(word.text).strip()]
    groups = _groups(words, gray, options)
    parts = list[Block | Table]()
    blocks, grids = list[Block](), list[Table]()
    for group in groups:
        block = _block(group, len(blocks), frame)
        blocks.append(block)
        if group.grid is not None:
            grids.append(_table(group.grid, frame))
        parts.append(block if group.grid is None else grids[-1])
    text = to_text(parts)
    if words and not text.strip():
        raise ReadFailed(f"{len(words)} words were read but no text came out. Please report this.", stage="structure")
    codes = tuple(_code(found.kind, found.data, found.box) for found in find_codes(displayed))
    return Structured(
        text=text,
        markdown=to_markdown(parts),
        blocks=tuple(blocks),
        tables=tuple(grids),
        codes=codes,
        fields=slip.find_fields(text, [code.data for code in codes if code.kind == "qr"])
        if options.profile == "slip"
        else None,
    )


def _groups(words: Sequence[ReadWord], gray: Gray, options: StructureOptions) -> list[_Group]:
    if not words:
        return []
    usual = float(np.median([word.box.height for word in words]))
    grids = tables.find_ruled(gray, words, usual)
    tabled = {id(word) for grid in grids for cell in grid.cells for word in cell.words}
    rows = into_rows([word for word in words if id(word) not in tabled])
    groups = _aligned_and_plain(rows, usual, options)
    for grid in grids:
        inside = into_rows([word for cell in grid.cells for word in cell.words])
        groups.insert(_place(groups, grid.box), _Group(tuple(inside), "table", grid))
    return groups


def _place(groups: list[_Group], box: Box) -> int:
    """Where a table comes in reading order: before the first group that begins below it."""
    for index, group in enumerate(groups):
        around = union([row.box for row in group.rows])
        beside = around.x < box.right and around.right > box.x
        if beside and around.y >= box.centre[1]:
            return index
    return len(groups)


def _aligned_and_plain(rows: list[Row], usual: float, options: StructureOptions) -> list[_Group]:
    fixed = advances_px(rows)
    plain = [row for row in rows if fixed[row.region] is None]
    taken = dict[int, _Group]()
    inside = set[int]()
    for grid, span in tables.find_aligned(plain, usual):
        members = [plain[index] for index in span]
        taken[id(members[0])] = _Group(tuple(members), "table", grid)
        inside.update(id(row) for row in members[1:])
    groups, run = list[_Group](), list[Row]()
    for row in rows:
        if id(row) in inside:
            continue
        starts_other = id(row) in taken or (run and _breaks(run[-1], row, options))
        if run and starts_other:
            groups.append(_plain_group(run, fixed[run[0].region], usual, options))
            run = []
        if id(row) in taken:
            groups.append(taken[id(row)])
        else:
            run.append(row)
    if run:
        groups.append(_plain_group(run, fixed[run[0].region], usual, options))
    return _joined_code(groups)


def _breaks(above: Row, row: Row, options: StructureOptions) -> bool:
    if above.region != row.region:
        return True
    gap = row.box.y - above.box.bottom
    taller, smaller = max(above.height_px, row.height_px), min(above.height_px, row.height_px)
    return gap > options.block_gap * smaller or gap < -taller or taller > 1.6 * smaller


def _plain_group(rows: list[Row], advance: float | None, usual: float, options: StructureOptions) -> _Group:
    texts = [row.text for row in rows]
    height = float(np.median([row.height_px for row in rows]))
    kind: BlockKind = "paragraph"
    if advance is not None:
        kind = "code"
    elif sum(starts_item(text) for text in texts) >= max(1, len(rows) // 2):
        kind = "list"
    elif len(rows) <= 2 and height >= options.heading_height * usual and any(c.isalpha() for c in texts[0]):
        kind = "heading"
    return _Group(tuple(rows), kind, None, advance)


def _joined_code(groups: list[_Group]) -> list[_Group]:
    """Code that follows code of the same type below it is one block, whatever blank lines are between."""
    joined = list[_Group]()
    for group in groups:
        last = joined[-1] if joined else None
        if last and last.advance and group.advance and _continues(last, group):
            joined[-1] = _Group((*last.rows, *group.rows), "code", None, last.advance)
        else:
            joined.append(group)
    return joined


def _continues(above: _Group, below: _Group) -> bool:
    first, second = union([row.box for row in above.rows]), union([row.box for row in below.rows])
    same_type = abs((below.advance or 0) / (above.advance or 1) - 1) < 0.08
    overlapping = first.x < second.right and second.x < first.right
    gap = second.y - first.bottom
    return same_type and overlapping and 0 <= gap < 6 * above.rows[-1].height_px


def _block(group: _Group, index: int, frame: _Frame) -> Block:
    left = min(row.box.x for row in group.rows)
    lines = list[Line]()
    for row in group.rows:
        text = columns_kept(row, left, group.advance) if group.advance else row.text
        lines.append(_line(row, clean(text), frame))
    return Block(
        id=f"b{index}",
        kind=group.kind,
        bbox=frame.bbox(group.grid.box if group.grid else union([row.box for row in group.rows])),
        confidence=_mean([line.confidence for line in lines]),
        lines=lines,
    )


def _line(row: Row, text: str, frame: _Frame) -> Line:
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
    return Line(
        bbox=frame.bbox(row.box),
        polygon=frame.polygon(row.box),
        text=text,
        confidence=_mean([word.confidence for word in words]),
        words=words,
    )


def _table(grid: tables.Grid, frame: _Frame) -> Table:
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


def _code(kind: str, data: str, box: Box) -> Code:
    return Code(kind=kind, data=clean(data), bbox=[_finite(value) for value in box])


def _finite(value: float) -> float:
    return round(float(value), 2) if math.isfinite(value) else 0.0


def _unit(value: float) -> float:
    return min(1.0, max(0.0, round(value, 4))) if math.isfinite(value) else 0.0


def _mean(values: list[float]) -> float:
    return _unit(sum(values) / len(values)) if values else 0.0
