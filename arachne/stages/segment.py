"""Stage 5: where text stands, as regions in reading order."""

from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
import numpy.typing as npt

from arachne.stages import ink
from arachne.stages.arrays import Box, Gray, union

VERSION = 4

RegionKind = Literal["text", "table", "code", "figure", "control"]


@dataclass(frozen=True)
class SegmentOptions:
    """Distances as multiples of the usual glyph height; `texture_glyphs` in a square of `texture_px` are no text."""

    ink_below: int = 140
    max_glyph_px: int = 260
    word_gap: float = 0.7
    letter_gap: float = 0.3
    column_gap: float = 2.0
    gutter: float = 0.8
    paragraph_gap: float = 1.6
    prose_width: float = 14
    prose_full: float = 0.7
    prose_lines: int = 4
    texture_px: int = 120
    texture_glyphs: int = 36


@dataclass(frozen=True)
class Region:
    """A part of the enhanced picture that is read at once.

    `rows` is the number of lines expected in it, `chunks` are the words and runs of words its ink looks like.
    """

    kind: RegionKind
    box: Box
    text_height_px: float
    rows: int
    chunks: tuple[Box, ...] = ()


@dataclass(frozen=True)
class Segments:
    """Regions in reading order, boxes in pixels of the enhanced picture."""

    regions: tuple[Region, ...]


def segment(gray: Gray, options: SegmentOptions) -> Segments:
    """The regions of an enhanced picture, uint8 (H, W): cut at white gutters until nothing more parts."""
    dark = gray < options.ink_below
    glyphs = ink.glyph_boxes(dark & ~ink.rules(dark, 80, 80), options.max_glyph_px)  # frames would join letters
    glyphs = _without_texture(glyphs, gray.shape, options)
    height = ink.glyph_height(glyphs)
    if height is None and len(glyphs) == 0:
        return Segments(())
    words = _chunks(glyphs, gray.shape, options.letter_gap)
    leaves = _cut(words, height or float(np.median(glyphs[:, 3])), options)
    return Segments(tuple(_region(leaf, glyphs, options) for leaf in leaves))


def _without_texture(
    glyphs: npt.NDArray[np.int32], shape: tuple[int, ...], options: SegmentOptions
) -> npt.NDArray[np.int32]:
    """The glyphs without those where there are more of them than the smallest print has: noise, foliage, dither."""
    side = options.texture_px
    row, column = glyphs[:, 1] // side, glyphs[:, 0] // side
    counts = np.zeros((shape[0] // side + 1, shape[1] // side + 1), np.float32)
    np.add.at(counts, (row, column), 1)
    around = cv2.boxFilter(counts, -1, (3, 3), borderType=cv2.BORDER_REPLICATE)
    texture = (around >= options.texture_glyphs).astype(np.uint8)
    away = glyphs[cv2.dilate(texture, np.ones((3, 3), np.uint8))[row, column] == 0]
    left = glyphs[texture[row, column] == 0] if len(away) else away  # with nothing further off, the rest is its edge
    return np.asarray(left, dtype=np.int32)


def _chunks(glyphs: npt.NDArray[np.int32], shape: tuple[int, ...], gap: float) -> list[Box]:
    """Boxes of glyphs that follow each other closely; `gap` is in heights of the glyph, on each side."""
    canvas = np.zeros((shape[0], shape[1]), np.uint8)
    for x, y, width, height, _ in glyphs.tolist():
        reach = int(gap * height)
        inset = height // 6
        cv2.rectangle(canvas, (x - reach, y + inset), (x + width + reach, y + height - inset), 1, -1)
    return [Box(*map(float, box)) for box in ink.component_boxes(canvas).tolist()]


def _cut(words: list[Box], height: float, options: SegmentOptions) -> list[list[Box]]:
    """The words parted into leaves in reading order: columns where they are no table, else bands from the top."""
    if len(words) < 2:
        return [words]
    columns = _columns(words, height, options)
    if len(columns) > 1:
        return [leaf for column in columns for leaf in _cut(column, height, options)]
    bands = _with_columns(_parts(words, height * options.paragraph_gap, axis=1), height, options)
    if len(bands) > 1:
        return [leaf for band in bands for leaf in _cut(band, height, options)]
    return [words]


def _columns(words: list[Box], height: float, options: SegmentOptions) -> list[list[Box]]:
    """The words as texts beside each other; all in one where they are cells of the same rows.

    Columns of running text are told apart by any gutter that stays white all the way down, others by a wide one.
    """
    narrow = _parts(words, height * options.gutter, axis=0)
    if len(narrow) > 1 and sum(_is_prose(column, height, options) for column in narrow) >= max(2, 0.6 * len(narrow)):
        return narrow
    wide = _parts(words, height * options.column_gap, axis=0)
    if len(wide) == 1 or _aligned(wide, height):
        return [words]
    return _with_rows(wide, height, options)


def _with_rows(columns: list[list[Box]], height: float, options: SegmentOptions) -> list[list[Box]]:
    """The columns, those put together again that are cells of the same rows or stand nowhere beside each other.

    A menu's names and keys are such, and so are braces and what is indented between them.
    """
    joined = columns[:1]
    for column in columns[1:]:
        prose = any(_is_prose(one, height, options) for one in (joined[-1], column))
        if not prose and (_aligned([joined[-1], column], height) or not _beside(joined[-1], column)):
            joined[-1] = [*joined[-1], *column]
        else:
            joined.append(column)
    return joined


def _with_columns(bands: list[list[Box]], height: float, options: SegmentOptions) -> list[list[Box]]:
    """The bands, those put together again that go on with the same columns of running text."""
    joined = bands[:1]
    for band in bands[1:]:
        before, after = (_columns(part, height, options) for part in (joined[-1], band))
        both = _columns([*joined[-1], *band], height, options)
        if len(both) == len(before) == len(after) > 1 and all(_is_prose(one, height, options) for one in both):
            joined[-1] = [*joined[-1], *band]
        else:
            joined.append(band)
    return joined


def _parts(boxes: list[Box], gap: float, *, axis: int) -> list[list[Box]]:
    """The boxes parted at each empty stripe at least `gap` wide across the axis."""
    ordered = sorted(boxes, key=lambda box: box[axis])
    parts, reach = [[ordered[0]]], ordered[0][axis] + ordered[0][axis + 2]
    for box in ordered[1:]:
        if box[axis] - reach >= gap:
            parts.append([])
        parts[-1].append(box)
        reach = max(reach, box[axis] + box[axis + 2])
    return parts


def _aligned(columns: list[list[Box]], height: float) -> bool:
    """Whether the columns are cells of the same rows rather than texts beside each other."""
    rows = [[union(line).centre[1] for line in _parts(column, 0.0, axis=1)] for column in columns]
    largest = max(rows, key=len)
    others = [y for row in rows if row is not largest for y in row]
    met = sum(1 for y in others if min(abs(y - other) for other in largest) < 0.5 * height)
    return met >= 0.7 * len(others)


def _beside(some: list[Box], others: list[Box]) -> bool:
    """Whether any row of one shares its height with a row of the other."""
    rows, more = ([union(line) for line in _parts(column, 0.0, axis=1)] for column in (some, others))
    return any(min(a.bottom, b.bottom) > max(a.y, b.y) for a in rows for b in more)


def _is_prose(column: list[Box], height: float, options: SegmentOptions) -> bool:
    """Whether most lines are long and fill the column."""
    widths = np.array([union(line).width for line in _parts(column, 0.0, axis=1)])
    widths = widths[widths > 1.5 * height]  # less is a speck, or what hangs down from a line
    if len(widths) < options.prose_lines:
        return False
    full = widths >= max(options.prose_full * widths.max(), options.prose_width * height)
    return float(full.mean()) >= 0.7


def _trimmed(glyphs: npt.NDArray[np.int32], options: SegmentOptions) -> tuple[Box, ...]:
    """Words and runs of words, each cut to its glyphs."""
    corner = glyphs[:, :2].min(axis=0)
    shape = (glyphs[:, :2] + glyphs[:, 2:4]).max(axis=0) - corner
    at_zero = glyphs.copy()
    at_zero[:, :2] -= corner
    x, y = at_zero[:, 0] + at_zero[:, 2] / 2, at_zero[:, 1] + at_zero[:, 3] / 2
    trimmed = []
    for chunk in _chunks(at_zero, (int(shape[1]), int(shape[0])), options.word_gap):
        inside = glyphs[(x >= chunk.x) & (x <= chunk.right) & (y >= chunk.y) & (y <= chunk.bottom)]
        if len(inside):
            low, high = inside[:, :2].min(axis=0), (inside[:, :2] + inside[:, 2:4]).max(axis=0)
            trimmed.append(Box(*map(float, low), *map(float, high - low)))
    return tuple(trimmed)


def _region(leaf: list[Box], glyphs: npt.NDArray[np.int32], options: SegmentOptions) -> Region:
    box = union(leaf)
    middle = glyphs[:, :2] + glyphs[:, 2:4] / 2
    inside = (
        (middle[:, 0] >= box.x) & (middle[:, 0] <= box.right) & (middle[:, 1] >= box.y) & (middle[:, 1] <= box.bottom)
    )
    own = glyphs[inside]
    height = ink.glyph_height(own) or (float(np.median(own[:, 3])) if len(own) else box.height)
    rows = len(_parts(leaf, 0.0, axis=1))
    columns = len(_parts(leaf, height * options.column_gap, axis=0))
    chunks = _trimmed(own, options) if len(own) else ()
    return Region("table" if rows > 2 and columns > 1 else "text", box, height, rows, chunks)
