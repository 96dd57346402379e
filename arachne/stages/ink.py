"""Where there is ink: how far each pixel is from the ground around it, whatever the ground's colour."""

from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from arachne.stages.arrays import Glyphs, Gray, Mask, Rgb

EVEN = 9  # gray levels within which an area counts as one colour
WIDE = 1.3  # glyph heights; what is wider is no stroke of a letter
_RULE_STEP = 4
_STRIP_PIXELS = 1_000_000
_MOST_OUTLINES = 50_000
MIN_CONTRAST = 14  # gray levels; less is taken for noise


def ground(rgb: Rgb, glyph_px: float, even_levels: int = EVEN) -> Rgb:
    """The colour behind the text, uint8 (H, W, 3), for glyphs of about that height.

    It is the colour of the nearest even area that is too large to be part of a letter; so it changes exactly where
    panels and buttons end. Where none is near, as in photographs, it is the median of the surroundings. `even_levels`
    are the gray levels within which an area counts as one colour.
    """
    gray = np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), dtype=np.uint8)
    even = _even_areas(gray, glyph_px, even_levels)
    if not even.any():
        return _median_ground(rgb, glyph_px)
    away, labels = cv2.distanceTransformWithLabels(
        (~even).astype(np.uint8), cv2.DIST_L2, 3, labelType=cv2.DIST_LABEL_PIXEL
    )
    # One number a pixel is looked up faster. Labels count the even pixels row by row, from 1.
    colours = cv2.cvtColor(rgb, cv2.COLOR_RGB2RGBA).view(np.uint32).ravel()
    named, flat_labels = colours[even.ravel()], labels.ravel()
    for start in range(0, colours.size, _STRIP_PIXELS):  # indexes of all pixels at once would take eight bytes each
        strip = slice(start, start + _STRIP_PIXELS)
        uneven = np.flatnonzero(~even.ravel()[strip])
        colours[strip][uneven] = named[flat_labels[strip][uneven] - 1]
    found = cv2.cvtColor(colours.view(np.uint8).reshape(*even.shape, 4), cv2.COLOR_RGBA2RGB)
    if cv2.minMaxLoc(away)[1] > 4 * glyph_px:
        far = away > 4 * glyph_px
        found[far] = _median_ground(rgb, glyph_px)[far]
    return np.asarray(found, dtype=np.uint8)


def _even_areas(gray: Gray, glyph_px: float, levels: int) -> Mask:
    """Pixels in areas of one colour that are somewhere wider than the strokes of a letter."""
    even = _even(gray, 3, levels)
    count, labels = cv2.connectedComponents(even.astype(np.uint8), connectivity=4)
    middles = _even(gray, max(7, round(WIDE * glyph_px)) | 1, levels).astype(np.uint8)
    # All of the square around such a middle is one area, so of nine neighbours one is enough to tell which.
    grown = cv2.dilate(middles, np.ones((3, 3), np.uint8))[::3, ::3] > 0
    wide = np.zeros(count, np.bool_)
    wide[labels[::3, ::3][grown]] = True
    wide[0] = False
    return np.take(wide, np.asarray(labels, dtype=np.int32))


def _even(gray: Gray, side_px: int, levels: int) -> Mask:
    """Middles of squares in one colour."""
    square = np.ones((side_px, side_px), np.uint8)
    return np.asarray(cv2.subtract(cv2.dilate(gray, square), cv2.erode(gray, square)) < levels)


def _median_ground(rgb: Rgb, glyph_px: float) -> Rgb:
    """The median over a window larger than a glyph."""
    height, width = rgb.shape[:2]
    window_px = float(np.clip(4 * glyph_px, 32, 200))
    step = max(1, int(window_px) // 12)
    small = np.ascontiguousarray(rgb[step // 2 :: step, step // 2 :: step])
    if small.size == 0:
        small = rgb
    side = max(3, min(2 * (int(window_px) // step // 2) + 1, 255))
    smooth = cv2.medianBlur(small, side)
    return np.asarray(cv2.resize(smooth, (width, height), interpolation=cv2.INTER_NEAREST), dtype=np.uint8)


def dark_share(behind: Rgb) -> float:
    """The share of ground that is dark in all channels, 0..1."""
    red, green, blue = cv2.split(np.ascontiguousarray(behind[::4, ::4]))
    return float((cv2.max(cv2.max(red, green), blue) < 128).mean())


def distance(rgb: Rgb, behind: Rgb) -> Gray:
    """Each pixel's largest difference from the ground over the channels, uint8 (H, W)."""
    apart = cv2.absdiff(rgb, behind)
    return np.asarray(cv2.max(cv2.max(apart[..., 0], apart[..., 1]), apart[..., 2]), dtype=np.uint8)


def mask(apart: Gray) -> Mask:
    """Pixels that stand out at least half as far as the strongest around them, bool (H, W)."""
    strongest = local_maximum(apart, 48)
    return np.asarray(apart > np.maximum(strongest // 2, MIN_CONTRAST))


def local_maximum(values: Gray, window_px: int) -> Gray:
    """The largest value within about a window around each pixel, blockwise, uint8 (H, W)."""
    height, width = values.shape
    block = max(1, window_px // 3)
    rows, columns = -(-height // block), -(-width // block)
    padded = np.zeros((rows * block, columns * block), np.uint8)
    padded[:height, :width] = values
    blocks = padded.reshape(rows, block, columns, block).max(axis=(1, 3))
    wide = cv2.dilate(blocks, np.ones((3, 3), np.uint8))
    grown = cv2.resize(wide, (columns * block, rows * block), interpolation=cv2.INTER_NEAREST)
    return np.asarray(grown[:height, :width], dtype=np.uint8)


@dataclass(frozen=True)
class Components:
    """Connected areas: each pixel's number, int32 (H, W), 0 where there is none, and boxes by number, (N, 4)."""

    labels: npt.NDArray[np.int32]
    boxes: npt.NDArray[np.int32]


def components(mask: Gray) -> Components:
    """Areas of `mask` that are not 0, joined over edges and corners; number 0 has an empty box.

    OpenCV's own boxes come with statistics of every pixel, the ground's too, and take several times as long.
    """
    count, labels = cv2.connectedComponents(mask, connectivity=8)
    if count > _MOST_OUTLINES:  # of noise; outlines take more memory than numbers
        _, labels, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
        stats[0] = 0
        return Components(np.asarray(labels, dtype=np.int32), np.asarray(stats[:, :4], dtype=np.int32))
    boxes = np.zeros((count, 4), np.int32)
    for line in _outlines(mask):
        x, y = line[0, 0]
        boxes[labels[y, x]] = cv2.boundingRect(line)
    return Components(np.asarray(labels, dtype=np.int32), boxes)


def component_boxes(mask: Gray) -> npt.NDArray[np.int32]:
    """Boxes of connected areas that are not 0, (N, 4): x, y, width, height, from the top."""
    boxes = np.array([cv2.boundingRect(line) for line in _outlines(mask)], np.int32).reshape(-1, 4)
    return boxes[np.lexsort((boxes[:, 0], boxes[:, 1]))]


def _outlines(mask: Gray) -> Iterator[npt.NDArray[np.int32]]:
    """The outer outline of each connected area, (N, 1, 2)."""
    outlines, nesting = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    if outlines:
        for line, parent in zip(outlines, np.asarray(nesting)[0, :, 3].tolist(), strict=True):
            if parent < 0:  # the others go around holes
                yield np.asarray(line, dtype=np.int32)


def glyph_boxes(ink: Mask, max_height_px: int = 200) -> Glyphs:
    """Boxes of connected ink that may be characters, (N, 5): x, y, width, height, area."""
    found = components(ink.astype(np.uint8))
    areas = np.bincount(found.labels.ravel()[np.flatnonzero(ink)], minlength=len(found.boxes))
    boxes = np.column_stack([found.boxes, areas]).astype(np.int32)[1:]
    if len(boxes) == 0:
        return boxes
    width, height, area = boxes[:, 2], boxes[:, 3], boxes[:, 4]
    fill = area / (width * height)
    shaped = (height >= 4) & (height <= max_height_px) & (width <= 4 * height) & (height <= 8 * width)
    return boxes[shaped & (area >= 6) & (fill >= 0.12) & (fill < 0.97)]


def unscaled(boxes: Glyphs, factor: float) -> Glyphs:
    """Boxes found in a picture that was scaled by `factor`, in pixels of the picture before."""
    if factor == 1:
        return boxes
    return np.asarray(boxes / [factor, factor, factor, factor, factor**2], dtype=np.int32)


def glyph_height(boxes: Glyphs) -> float | None:
    """The usual height of characters in px, weighted by their width; None with too few of them."""
    if len(boxes) < 3:
        return None
    order = np.argsort(boxes[:, 3])
    weight = np.cumsum(boxes[order, 2])
    return float(boxes[order, 3][np.searchsorted(weight, weight[-1] / 2)])


def rules(dark: Mask, across_px: int, down_px: int) -> Mask:
    """Straight lines of at least about these lengths, with a pixel around them, bool (H, W).

    Every fourth pixel along a line tells as much as all of them, in a quarter of the time.
    """
    ink_map, (height, width) = dark.astype(np.uint8), dark.shape
    step = _RULE_STEP
    across = cv2.morphologyEx(ink_map[:, ::step], cv2.MORPH_OPEN, np.ones((1, max(2, across_px // step)), np.uint8))
    down = cv2.morphologyEx(ink_map[::step], cv2.MORPH_OPEN, np.ones((max(2, down_px // step), 1), np.uint8))
    across, down = (np.repeat(across, step, axis=1)[:, :width], np.repeat(down, step, axis=0)[:height])
    return np.asarray(cv2.dilate(cv2.max(across, down), np.ones((3, 3), np.uint8)), dtype=np.bool_)
