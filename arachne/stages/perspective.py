"""Pages, slips and screens that were photographed at an angle, laid flat."""

from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from arachne.stages.arrays import Gray, Points, Rgb, Transform, resized, shifting

_LOOK_PX = 700
_LEAST_AREA, _MOST_AREA = 0.15, 0.98  # of the picture
_FILLED = 0.9  # of the four-sided outline
_STRAIGHT_DEG = 1.2  # opposite sides further from parallel than this tell perspective
_SKEW_DEG = 14.0  # turns beyond what levelling undoes
_HOLDS = 0.95  # share of the text that has to be inside
_MOST_STRETCH = 2.5


@dataclass(frozen=True)
class Flattened:
    """The flat picture, uint8 (H, W, 3), displayed pixels -> its pixels, and the clockwise turn of its upper edge."""

    rgb: Rgb
    transform: Transform
    turn_deg: float


def flatten(rgb: Rgb, glyphs: npt.NDArray[np.int32]) -> Flattened | None:
    """What stands on the bright or dark four-sided surface that holds the text; None without such, or if it is flat.

    `glyphs` are boxes of characters, (N, 5): x, y, width, height, area.
    """
    factor = min(1.0, _LOOK_PX / max(rgb.shape[:2]))
    gray = np.asarray(cv2.cvtColor(resized(rgb, factor), cv2.COLOR_RGB2GRAY), dtype=np.uint8)
    middles = (glyphs[:, :2] + glyphs[:, 2:4] / 2).astype(np.float64)
    for outline in _outlines(gray):
        corners = _ordered(outline / factor)
        if _is_askew(corners) and _holds(corners, middles):
            return _warped(rgb, corners)
    return None


def _outlines(gray: Gray) -> Iterator[Points]:
    """Corners of large four-sided areas, brighter or darker than what is around them, (4, 2)."""
    smooth = cv2.medianBlur(gray, 5)
    _, bright = cv2.threshold(smooth, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    whole = cv2.getStructuringElement(cv2.MORPH_RECT, (15, 15))
    for mask in (bright, 255 - bright):
        closed = cv2.morphologyEx(mask, cv2.MORPH_CLOSE, whole)
        contours, _ = cv2.findContours(closed, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
        for contour in sorted(contours, key=cv2.contourArea, reverse=True)[:2]:
            corners = _four_corners(np.asarray(contour, dtype=np.int32), gray.size)
            if corners is not None:
                yield corners


def _four_corners(contour: npt.NDArray[np.int32], pixels: int) -> Points | None:
    hull = cv2.convexHull(contour)
    for tolerance in (0.01, 0.02, 0.03, 0.05):
        corners = cv2.approxPolyDP(hull, tolerance * cv2.arcLength(hull, closed=True), closed=True)
        if len(corners) == 4:
            area = cv2.contourArea(corners)
            large = _LEAST_AREA * pixels < area < _MOST_AREA * pixels
            filled = cv2.contourArea(contour) > _FILLED * area
            return corners.reshape(4, 2).astype(np.float64) if large and filled else None
    return None


def _ordered(corners: Points) -> Points:
    """The corners clockwise from the one that is top left."""
    middle = corners.mean(axis=0)
    clockwise = corners[np.argsort(np.arctan2(corners[:, 1] - middle[1], corners[:, 0] - middle[0]))]
    first = int(np.argmin(clockwise.sum(axis=1)))
    return np.roll(clockwise, -first, axis=0)


def _directions(corners: Points) -> npt.NDArray[np.float64]:
    """Directions of the upper, right, lower and left side in degrees, each taken from left to right or downwards."""
    sides = np.roll(corners, -1, axis=0) - corners
    sides[2:] *= -1
    return np.degrees(np.arctan2(sides[:, 1], sides[:, 0]))


def _is_askew(corners: Points) -> bool:
    upper, right, lower, left = _directions(corners)
    askew = max(abs(upper - lower), abs(right - left)) > _STRAIGHT_DEG
    plausible = max(abs(upper - lower), abs(right - left)) < 40 and abs(upper) < 45 and abs(lower) < 45
    return bool((askew or abs(upper + lower) / 2 > _SKEW_DEG) and plausible)


def _holds(corners: Points, points: Points) -> bool:
    """Whether nearly all points lie inside."""
    inside = np.ones(len(points), np.bool_)
    for start, end in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        across = (end[0] - start[0]) * (points[:, 1] - start[1]) - (end[1] - start[1]) * (points[:, 0] - start[0])
        inside &= across >= 0
    return bool(inside.mean() > _HOLDS)


def _warped(rgb: Rgb, corners: Points) -> Flattened | None:
    lengths = np.linalg.norm(np.roll(corners, -1, axis=0) - corners, axis=1)
    width, height = round(max(lengths[0], lengths[2])), round(max(lengths[1], lengths[3]))
    if width < 20 or height < 20 or max(lengths[:2] / lengths[2:].clip(1)) > _MOST_STRETCH:
        return None
    goal = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    transform = np.asarray(cv2.getPerspectiveTransform(corners.astype(np.float32), goal), dtype=np.float64)
    centred = shifting(-0.5, -0.5) @ transform @ shifting(0.5, 0.5)  # OpenCV counts from pixels' middles
    flat = cv2.warpPerspective(rgb, centred, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return Flattened(np.asarray(flat, dtype=np.uint8), transform, -float(_directions(corners)[0]))
