"""Where there is ink: how far each pixel is from the ground around it, whatever the ground's colour."""

import cv2
import numpy as np
import numpy.typing as npt

from arachne.stages.arrays import Gray, Mask, Rgb

EVEN = 9  # gray levels within which an area counts as one colour
WIDE = 1.3  # glyph heights; what is wider is no stroke of a letter
MIN_CONTRAST = 14  # gray levels; less is taken for noise


def ground(rgb: Rgb, glyph_px: float) -> Rgb:
    """The colour behind the text, uint8 (H, W, 3), for glyphs of about that height.

    It is the colour of the nearest even area that is too large to be part of a letter; so it changes exactly where
    panels and buttons end. Where none is near, as in photographs, it is the median of the surroundings.
    """
    gray = np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), dtype=np.uint8)
    even = _even_areas(gray, glyph_px)
    if not even.any():
        return _median_ground(rgb, glyph_px)
    away, labels = cv2.distanceTransformWithLabels(
        (~even).astype(np.uint8), cv2.DIST_L2, 3, labelType=cv2.DIST_LABEL_PIXEL
    )
    packed = cv2.cvtColor(rgb, cv2.COLOR_RGB2RGBA).view(np.uint32)[..., 0]  # one number a pixel is looked up faster
    colours = np.zeros(int(labels.max()) + 1, np.uint32)
    colours[labels[even]] = packed[even]
    nearest = np.take(colours, np.asarray(labels, dtype=np.int32)).view(np.uint8).reshape(*labels.shape, 4)
    nearest = np.asarray(cv2.cvtColor(nearest, cv2.COLOR_RGBA2RGB), dtype=np.uint8)
    far = away > 4 * glyph_px
    if far.any():
        nearest[far] = _median_ground(rgb, glyph_px)[far]
    return np.asarray(nearest, dtype=np.uint8)


def _even_areas(gray: Gray, glyph_px: float) -> Mask:
    """Pixels in areas of one colour that are somewhere wider than the strokes of a letter."""
    even = _even(gray, 3)
    count, labels = cv2.connectedComponents(even.astype(np.uint8), connectivity=4)
    wide = np.zeros(count, np.bool_)
    wide[labels[_even(gray, max(7, round(WIDE * glyph_px)) | 1)]] = True
    wide[0] = False
    return np.asarray(wide[labels], dtype=np.bool_)


def _even(gray: Gray, side_px: int) -> Mask:
    """Middles of squares in one colour."""
    square = np.ones((side_px, side_px), np.uint8)
    return np.asarray(cv2.subtract(cv2.dilate(gray, square), cv2.erode(gray, square)) < EVEN)


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


def glyph_boxes(ink: Mask, max_height_px: int = 200) -> npt.NDArray[np.int32]:
    """Boxes of connected ink that may be characters, (N, 5): x, y, width, height, area."""
    count, _, stats, _ = cv2.connectedComponentsWithStats(ink.astype(np.uint8), connectivity=8)
    boxes = np.asarray(stats[1:count], dtype=np.int32)
    if len(boxes) == 0:
        return boxes
    width, height, area = boxes[:, 2], boxes[:, 3], boxes[:, 4]
    fill = area / (width * height)
    shaped = (height >= 4) & (height <= max_height_px) & (width <= 4 * height) & (height <= 8 * width)
    return boxes[shaped & (area >= 6) & (fill >= 0.12) & (fill < 0.97)]


def glyph_height(boxes: npt.NDArray[np.int32]) -> float | None:
    """The usual height of characters in px, weighted by their width; None with too few of them."""
    if len(boxes) < 3:
        return None
    order = np.argsort(boxes[:, 3])
    weight = np.cumsum(boxes[order, 2])
    return float(boxes[order, 3][np.searchsorted(weight, weight[-1] / 2)])


def rules(dark: Mask, across_px: int, down_px: int) -> Mask:
    """Straight lines of at least these lengths, with a pixel around them, bool (H, W)."""
    ink_map = dark.astype(np.uint8)
    across = cv2.morphologyEx(ink_map, cv2.MORPH_OPEN, np.ones((1, across_px), np.uint8))
    down = cv2.morphologyEx(ink_map, cv2.MORPH_OPEN, np.ones((down_px, 1), np.uint8))
    return np.asarray(cv2.dilate(cv2.max(across, down), np.ones((3, 3), np.uint8)), dtype=np.bool_)
