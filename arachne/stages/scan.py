"""Scanned pages as they were printed: without grain, specks of single pixels and the steps of black and white."""

import cv2
import numpy as np

from arachne.stages.arrays import Gray, Mask, Rgb

_APART = 60  # gray levels by which a speck differs from its surroundings
_EVEN = 40  # gray levels within which surroundings are one ground
_SPECKLED = 0.001  # share of pixels that are specks on open ground; print has none
_BLUR_PX = 0.8  # standard deviation
_LEAST_GLYPH_PX = 6.5  # smaller letters lose their shape by it, and ones of unknown height are no page's


def clean_scan(rgb: Rgb, text_height_px: float | None) -> Rgb:
    """RGB uint8 (H, W, 3), smoothed a little, so that thresholds cut strokes and not grain; else as it is."""
    gray = np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), dtype=np.uint8)
    specks = _specks_on_ground(gray)
    speckled = float(specks.mean()) > _SPECKLED
    small = text_height_px is not None and text_height_px < _LEAST_GLYPH_PX
    if not speckled and (small or text_height_px is None):
        return rgb
    if speckled:
        specks = specks if small else _single_pixels(gray)  # of small letters' strokes, some are single pixels
        rgb = np.where(specks[..., None], cv2.medianBlur(rgb, 3), rgb)
    return np.asarray(cv2.GaussianBlur(rgb, (0, 0), _BLUR_PX), dtype=np.uint8)


def _specks_on_ground(gray: Gray) -> Mask:
    """Pixels that stand out from eight neighbours which are alike."""
    ring = np.ones((3, 3), np.uint8)
    ring[1, 1] = 0
    high, low = cv2.dilate(gray, ring), cv2.erode(gray, ring)
    out = cv2.max(cv2.subtract(low, gray), cv2.subtract(gray, high))
    return np.asarray((cv2.subtract(high, low) < _EVEN) & (out > _APART))


def _single_pixels(gray: Gray) -> Mask:
    """Pixels that are far from all but one of their neighbours."""
    padded = np.pad(gray, 1, mode="reflect")
    height, width = gray.shape
    alike = np.zeros(gray.shape, np.uint8)
    for y, x in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (2, 2)):
        alike += cv2.absdiff(gray, padded[y : y + height, x : x + width]) < _APART
    return np.asarray(alike <= 1)
