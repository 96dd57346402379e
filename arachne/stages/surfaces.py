"""What lies under and beside text: the boxes of buttons and fields, and pictures."""

from collections.abc import Sequence

import cv2
import numpy as np

from arachne.stages import ink
from arachne.stages.arrays import Box, Gray, Rgb, resized

_MOST_PIXELS = 1_200_000
_EVEN = 9  # gray levels within which a surface counts as one colour
_CELL_PX = 8
_BUSY = 0.6  # share of uneven pixels from which a cell belongs to a picture
_FULL = 0.6  # share of a picture's box that is busy


class Surfaces:
    """The even areas of a displayed picture, uint8 (H, W, 3); boxes are in its pixels."""

    def __init__(self, rgb: Rgb) -> None:
        self._factor = min(1.0, float((_MOST_PIXELS / (rgb.shape[0] * rgb.shape[1])) ** 0.5))
        gray = np.asarray(cv2.cvtColor(resized(rgb, self._factor), cv2.COLOR_RGB2GRAY), dtype=np.uint8)
        square = np.ones((3, 3), np.uint8)
        self._even = cv2.subtract(cv2.dilate(gray, square), cv2.erode(gray, square)) < _EVEN
        self._areas = ink.components(self._even.astype(np.uint8))

    def control_around(self, text: Box, height_px: float) -> Box | None:
        """The box of the button, field or item the line of text stands in; None where it stands on open ground."""
        if not all(np.isfinite(text)):
            return None
        text, height = self._scaled(text), height_px * self._factor
        found = self._surface_at(text.grown(0.45 * height))
        if found is None:
            return None
        rows, columns = self._even.shape
        inside = found.x <= text.x and found.right >= text.right and found.y <= text.y and found.bottom >= text.bottom
        low = 1.3 * text.height < found.height < 4.5 * height
        short = found.width < min(0.9 * columns, text.width + 30 * height)
        edges = (found.x <= 1) + (found.y <= 1) + (found.right >= columns - 1) + (found.bottom >= rows - 1)
        return self._unscaled(found) if inside and low and short and edges < 2 else None

    def _surface_at(self, box: Box) -> Box | None:
        """The surface that most of the box lies on."""
        rows = slice(max(0, int(box.y)), max(0, int(box.bottom) + 1))
        columns = slice(max(0, int(box.x)), max(0, int(box.right) + 1))
        counts = np.bincount(self._areas.labels[rows, columns].ravel(), minlength=1)
        counts[0] = 0
        label = int(np.argmax(counts))
        if counts[label] == 0:
            return None
        x, y, width, height = (float(value) for value in self._areas.boxes[label])
        return Box(x, y, width, height)

    def pictures(self, taken: Sequence[Box], least_px: float) -> list[Box]:
        """Boxes of areas full of detail, at least `least_px` wide and high, that none of the taken boxes explains."""
        busy = self._busy_cells()
        if busy.size == 0:
            return []
        for box in map(self._scaled, (box for box in taken if all(np.isfinite(box)))):
            left, top = int(box.x / _CELL_PX), int(box.y / _CELL_PX)
            busy[top : int(box.bottom / _CELL_PX) + 1, left : int(box.right / _CELL_PX) + 1] = 0
        whole = cv2.morphologyEx(busy, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
        whole = cv2.morphologyEx(whole, cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
        found = []
        for x, y, width, height in ink.component_boxes(np.asarray(whole, dtype=np.uint8)).tolist():
            area = cv2.countNonZero(whole[y : y + height, x : x + width])
            box = self._unscaled(Box(*(float(value * _CELL_PX) for value in (x, y, width, height))))
            if area > _FULL * width * height and min(box.width, box.height) >= least_px:
                found.append(box)
        return found

    def _busy_cells(self) -> Gray:
        rows, columns = (side // _CELL_PX for side in self._even.shape)
        cut = self._even[: rows * _CELL_PX, : columns * _CELL_PX].reshape(rows, _CELL_PX, columns, _CELL_PX)
        return np.asarray(cut.mean(axis=(1, 3)) < 1 - _BUSY, dtype=np.uint8)

    def _scaled(self, box: Box) -> Box:
        return Box(*(side * self._factor for side in box))

    def _unscaled(self, box: Box) -> Box:
        return Box(*(side / self._factor for side in box))
