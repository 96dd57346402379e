"""Stage 5: where text stands, as regions in reading order."""

from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
import numpy.typing as npt

from arachne.stages import ink
from arachne.stages.arrays import Box, Gray, union

VERSION = 1

RegionKind = Literal["text", "table", "code", "figure", "control"]


@dataclass(frozen=True)
class SegmentOptions:
    """Distances as multiples of the usual glyph height."""

    ink_below: int = 140
    max_glyph_px: int = 260
    word_gap: float = 0.7
    column_gap: float = 2.0
    paragraph_gap: float = 1.6
    prose_width: float = 18


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
    height = ink.glyph_height(glyphs)
    if height is None and len(glyphs) == 0:
        return Segments(())
    chunks = _chunks(glyphs, gray.shape, options)
    leaves = _cut(chunks, height or float(np.median(glyphs[:, 3])), options)
    return Segments(tuple(_region(leaf, glyphs, options) for leaf in leaves))


def _chunks(glyphs: npt.NDArray[np.int32], shape: tuple[int, ...], options: SegmentOptions) -> list[Box]:
    """Boxes of glyphs that follow each other closely: words and runs of words."""
    canvas = np.zeros((shape[0], shape[1]), np.uint8)
    for x, y, width, height, _ in glyphs.tolist():
        reach = int(options.word_gap * height)
        inset = height // 6
        cv2.rectangle(canvas, (x - reach, y + inset), (x + width + reach, y + height - inset), 1, -1)
    count, _, stats, _ = cv2.connectedComponentsWithStats(canvas, connectivity=4)
    return [Box(*map(float, row[:4])) for row in stats[1:count]]


def _cut(chunks: list[Box], height: float, options: SegmentOptions) -> list[list[Box]]:
    """The chunks parted into leaves in reading order: columns where they are no table, else bands from the top."""
    if len(chunks) < 2:
        return [chunks]
    columns = _parts(chunks, height * options.column_gap, axis=0)
    if len(columns) > 1 and not _aligned(columns, height, options):
        return [leaf for column in columns for leaf in _cut(column, height, options)]
    bands = _parts(chunks, height * options.paragraph_gap, axis=1)
    if len(bands) > 1:
        return [leaf for band in bands for leaf in _cut(band, height, options)]
    return [chunks]


def _parts(chunks: list[Box], gap: float, *, axis: int) -> list[list[Box]]:
    """The chunks parted at each empty stripe at least `gap` wide across the axis."""
    ordered = sorted(chunks, key=lambda box: box[axis])
    parts, reach = [[ordered[0]]], ordered[0][axis] + ordered[0][axis + 2]
    for box in ordered[1:]:
        if box[axis] - reach >= gap:
            parts.append([])
        parts[-1].append(box)
        reach = max(reach, box[axis] + box[axis + 2])
    return parts


def _aligned(columns: list[list[Box]], height: float, options: SegmentOptions) -> bool:
    """Whether the columns are cells of the same rows rather than texts beside each other."""
    if all(_usual_width(column) > options.prose_width * height for column in columns):
        return False
    rows = [[box.centre[1] for box in column] for column in columns]
    largest = max(rows, key=len)
    others = [y for row in rows if row is not largest for y in row]
    met = sum(1 for y in others if min(abs(y - other) for other in largest) < 0.5 * height)
    return met >= 0.7 * len(others)


def _usual_width(boxes: list[Box]) -> float:
    """The usual width of a column's lines."""
    return float(np.median([union(line).width for line in _parts(boxes, 0.0, axis=1)]))


def _trimmed(chunks: list[Box], glyphs: npt.NDArray[np.int32]) -> tuple[Box, ...]:
    """The chunks cut to their glyphs, without the reach that joined them."""
    trimmed = []
    x, y = glyphs[:, 0] + glyphs[:, 2] / 2, glyphs[:, 1] + glyphs[:, 3] / 2
    for chunk in chunks:
        inside = glyphs[(x >= chunk.x) & (x <= chunk.right) & (y >= chunk.y) & (y <= chunk.bottom)]
        if len(inside):
            trimmed.append(union([Box(*map(float, glyph[:4])) for glyph in inside]))
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
    return Region("table" if rows > 2 and columns > 1 else "text", box, height, rows, _trimmed(leaf, own))
