"""Array types, boxes and 3x3 transforms the stages hand to each other."""

from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

Rgb = npt.NDArray[np.uint8]  # (H, W, 3)
Gray = npt.NDArray[np.uint8]  # (H, W)
Mask = npt.NDArray[np.bool_]  # (H, W)
Transform = npt.NDArray[np.float64]  # (3, 3), acts on column vectors (x, y, 1)
Samples = npt.NDArray[np.uint8]  # (H, W) or (H, W, channels)
Glyphs = npt.NDArray[np.int32]  # (N, 5): x, y, width, height, area of connected ink
Points = npt.NDArray[np.float64]  # (N, 2), x then y


class Box(NamedTuple):
    """A rectangle in pixels of the image it was found in; x and y are its top left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """One past the last column."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """One past the last row."""
        return self.y + self.height

    @property
    def centre(self) -> tuple[float, float]:
        """The middle, x then y."""
        return self.x + self.width / 2, self.y + self.height / 2

    def grown(self, by_px: float) -> "Box":
        """The box with `by_px` more on each side."""
        return Box(self.x - by_px, self.y - by_px, self.width + 2 * by_px, self.height + 2 * by_px)

    def holds(self, other: "Box") -> bool:
        """Whether the other box's middle lies inside."""
        x, y = other.centre
        return self.x <= x <= self.right and self.y <= y <= self.bottom


@dataclass(frozen=True)
class Size:
    """Width and height in pixels."""

    width: int
    height: int


def union(boxes: list[Box]) -> Box:
    """The smallest box around all of them; at least one is needed."""
    x, y, right, bottom = boxes[0].x, boxes[0].y, boxes[0].right, boxes[0].bottom
    for left, top, width, height in boxes:  # a loop is several times faster than four generators
        x, y, right, bottom = min(x, left), min(y, top), max(right, left + width), max(bottom, top + height)
    return Box(x, y, right - x, bottom - y)


def corners(box: Box) -> Points:
    """The four corners clockwise from the top left, (4, 2)."""
    return np.array(
        [[box.x, box.y], [box.right, box.y], [box.right, box.bottom], [box.x, box.bottom]], dtype=np.float64
    )


def apply(transform: Transform, points: Points) -> Points:
    """The points after the transform, (N, 2)."""
    lifted = np.column_stack([points, np.ones(len(points))]) @ transform.T
    return np.asarray(lifted[:, :2] / lifted[:, 2:], dtype=np.float64)


def bounds(points: Points, size: Size) -> Box:
    """The box around the points, cut to the image."""
    low = np.clip(points.min(axis=0), 0, [size.width, size.height])
    high = np.clip(points.max(axis=0), 0, [size.width, size.height])
    return Box(float(low[0]), float(low[1]), float(high[0] - low[0]), float(high[1] - low[1]))


def scaling(factor_x: float, factor_y: float) -> Transform:
    """The transform that stretches pixels' areas, so that corner (0, 0) stays and (w, h) goes to the new (w, h)."""
    return np.diag([factor_x, factor_y, 1.0])


def shifting(x: float, y: float) -> Transform:
    """The transform that moves by x and y."""
    return np.array([[1.0, 0.0, x], [0.0, 1.0, y], [0.0, 0.0, 1.0]])


def resized(samples: Samples, factor: float) -> Samples:
    """The picture scaled, each side at least 1 px; smooth upwards, averaging downwards."""
    if factor == 1:
        return samples
    size = max(1, round(samples.shape[1] * factor)), max(1, round(samples.shape[0] * factor))
    how = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(samples, size, interpolation=how), dtype=np.uint8)
