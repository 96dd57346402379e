"""Rows that belong together, and what each group is: heading, paragraph, list, code or table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from arachne.schemas.result import BlockKind
from arachne.stages import tables
from arachne.stages.arrays import Box, Gray, union
from arachne.stages.items import spell_rows, starts_item
from arachne.stages.read import ReadWord
from arachne.stages.rows import Row, advances_px, into_rows


@dataclass(frozen=True)
class GroupOptions:
    """Multiples of the usual line height, and of the usual thickness of strokes."""

    heading_height: float = 1.35
    heading_weight: float = 1.4
    block_gap: float = 1.0
    sure: float = 0.85


@dataclass(frozen=True)
class Group:
    """Rows that become one block, or one grid, in reading order; `advance` is the width of a character in code."""

    rows: tuple[Row, ...]
    kind: BlockKind
    grid: tables.Grid | None = None
    advance: float | None = None
    level: int = 2

    @property
    def box(self) -> Box:
        """Around all of it."""
        return self.grid.box if self.grid else union([row.box for row in self.rows])

    @property
    def texts(self) -> list[tuple[Row, str]]:
        """Each row with its text."""
        spelled = [row.text for row in self.rows] if self.grid else spell_rows(self.rows)
        return list(zip(self.rows, spelled, strict=True))


class _Usual(NamedTuple):
    """What most of a picture's words have: their height, and the thickness of strokes over the height of their row."""

    height: float
    weight: float


def into_groups(words: Sequence[ReadWord], gray: Gray, options: GroupOptions) -> list[Group]:
    """The words of an enhanced picture, uint8 (H, W), as groups in reading order."""
    if not words:
        return []
    height = float(np.median([word.box.height for word in words]))
    grids = tables.find_ruled(gray, words, height)
    tabled = {id(word) for grid in grids for cell in grid.cells for word in cell.words}
    rows = into_rows([word for word in words if id(word) not in tabled])
    groups = _aligned_and_plain(rows, gray, height, options)
    for grid in grids:
        inside = into_rows([word for cell in grid.cells for word in cell.words])
        groups.insert(_place(groups, grid.box), Group(tuple(inside), "table", grid))
    return groups


def _place(groups: list[Group], box: Box) -> int:
    """Where a table comes in reading order: before the first group that begins below it."""
    for index, group in enumerate(groups):
        around = group.box
        beside = around.x < box.right and around.right > box.x
        if beside and around.y >= box.centre[1]:
            return index
    return len(groups)


def _aligned_and_plain(rows: list[Row], gray: Gray, height: float, options: GroupOptions) -> list[Group]:
    fixed = advances_px(rows)
    weights = {id(row): _weight(row, gray) for row in rows}
    usual = _Usual(height, float(np.median(list(weights.values()))) if weights else 1.0)
    plain = [row for row in rows if fixed[row.region] is None]
    taken, inside = dict[int, Group](), set[int]()
    for grid, span in tables.find_aligned(plain, height):
        members = [plain[index] for index in span]
        taken[id(members[0])] = Group(tuple(members), "table", grid)
        inside.update(id(row) for row in members[1:])
    groups, run = list[Group](), list[Row]()
    for row in rows:
        if id(row) in inside:
            continue
        if run and (id(row) in taken or _breaks(run[-1], row, weights, options, fixed=fixed[row.region] is not None)):
            groups.append(_plain_group(run, fixed[run[0].region], usual, weights, options))
            run = []
        if id(row) in taken:
            groups.append(taken[id(row)])
        else:
            run.append(row)
    if run:
        groups.append(_plain_group(run, fixed[run[0].region], usual, weights, options))
    return _joined_code([group for group in groups if _tells(group, options)])


def _weight(row: Row, gray: Gray) -> float:
    """The mean width of strokes over the row's height: large for bold type."""
    box = row.box
    if not all(np.isfinite(box)):
        return 0.0
    dark = gray[max(0, int(box.y)) : int(box.bottom) + 1, max(0, int(box.x)) : int(box.right) + 1] < 128
    runs = int(np.count_nonzero(dark[:, 1:] & ~dark[:, :-1]))
    return float(np.count_nonzero(dark)) / max(1, runs) / max(1.0, row.height_px)


def _breaks(above: Row, row: Row, weights: dict[int, float], options: GroupOptions, *, fixed: bool) -> bool:
    """Whether a row begins another group: elsewhere, further down, of another size or, outside code, no longer bold."""
    if above.region != row.region:
        return True
    gap = row.box.y - above.box.bottom
    taller, smaller = max(above.height_px, row.height_px), min(above.height_px, row.height_px)
    if gap > options.block_gap * smaller or gap < -taller or taller > 1.6 * smaller:
        return True
    return not fixed and weights[id(above)] > options.heading_weight * weights[id(row)] > 0 and len(above.words) <= 8


def _plain_group(
    rows: list[Row], advance: float | None, usual: _Usual, weights: dict[int, float], options: GroupOptions
) -> Group:
    if advance is not None:
        return Group(tuple(rows), "code", None, advance)
    texts = spell_rows(rows)
    if sum(starts_item(text) for text in texts) >= max(1, len(rows) // 2):
        return Group(tuple(rows), "list")
    taller = float(np.median([row.height_px for row in rows])) / usual.height
    bolder = float(np.median([weights[id(row)] for row in rows])) / max(usual.weight, 1e-9)
    large = taller >= options.heading_height
    bold = bolder >= options.heading_weight and taller > 0.9 and not texts[-1].endswith((".", ",", ";", ":"))
    telling = sum(c.isalpha() for c in texts[0]) >= 2 and texts[0][0].isalnum() and len(texts[0]) < 120
    if len(rows) <= 2 and (large or bold) and telling:
        return Group(tuple(rows), "heading", level=1 if taller >= 2.2 else 2 if large else 3)
    return Group(tuple(rows), "paragraph")


def _tells(group: Group, options: GroupOptions) -> bool:
    """Whether a group says anything: edges and icons read as bars and dashes, rarely with certainty."""
    if group.grid or group.kind == "code" or any(c.isalnum() for row in group.rows for c in row.text):
        return True
    words = [word for row in group.rows for word in row.words]
    return all(word.confidence >= options.sure and set(word.text) - set("|_¦'`~.-") for word in words)


def _joined_code(groups: list[Group]) -> list[Group]:
    """Code that follows code of the same type below it is one block, whatever blank lines are between."""
    joined = list[Group]()
    for group in groups:
        last = joined[-1] if joined else None
        if last and last.advance and group.advance and _continues(last, group):
            joined[-1] = replace(last, rows=(*last.rows, *group.rows))
        else:
            joined.append(group)
    return joined


def _continues(above: Group, below: Group) -> bool:
    first, second = above.box, below.box
    same_type = abs((below.advance or 0) / (above.advance or 1) - 1) < 0.08
    overlapping = first.x < second.right and second.x < first.right
    gap = second.y - first.bottom
    return same_type and overlapping and 0 <= gap < 6 * above.rows[-1].height_px
