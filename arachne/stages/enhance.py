"""Stage 4: the picture as a reader wants it: dark text on even, light ground, at the size it reads best."""

from dataclasses import dataclass

import cv2
import numpy as np

from arachne.stages import ink
from arachne.stages.arrays import Gray, Rgb, Transform, resized, scaling

VERSION = 2


@dataclass(frozen=True)
class EnhanceOptions:
    """`glyph_px` is the aimed height of usual characters; scaling stays in bounds and under `max_pixels`.

    `even_levels` are those within which an area is ground of one colour; photographed surfaces need more.
    """

    glyph_px: float = 20
    min_scale: float = 0.3
    max_scale: float = 4
    max_pixels: int = 12_000_000
    min_stretch: int = 40
    even_levels: int = ink.EVEN


@dataclass(frozen=True)
class Enhanced:
    """Gray uint8 (H, W), the scale it has, upright pixels -> its pixels, and the share of dark ground turned light."""

    gray: Gray
    scale: float
    transform: Transform
    inverted_share: float


def enhance(rgb: Rgb, text_height_px: float | None, options: EnhanceOptions) -> Enhanced:
    """Upright RGB uint8 (H, W, 3) as ink on paper.

    Each pixel's darkness is its distance from the ground around it, in whichever channel differs most, so dark,
    light and coloured grounds come out alike; faint text is stretched to full contrast, noise is not.
    """
    height, shrink = text_height_px or options.glyph_px, min(1.0, _most(rgb, options))
    displayed = rgb.shape
    rgb, height = resized(rgb, shrink), height * shrink  # before anything larger than the picture is made of it
    behind = ink.ground(rgb, height, options.even_levels)
    apart = ink.distance(rgb, behind)
    scale = _scale(rgb, height, options)
    gray = _stretched(resized(apart, scale), options)
    factors = gray.shape[1] / displayed[1], gray.shape[0] / displayed[0]
    return Enhanced(gray, scale * shrink, scaling(*factors), round(ink.dark_share(behind), 4))


def _scale(rgb: Rgb, height_px: float, options: EnhanceOptions) -> float:
    wanted = float(np.clip(options.glyph_px / height_px, options.min_scale, options.max_scale))
    scale = min(wanted, _most(rgb, options))
    return 1.0 if 0.9 < scale < 1.1 else scale


def _most(rgb: Rgb, options: EnhanceOptions) -> float:
    """The scale at which the picture has the most pixels it may have."""
    return float((options.max_pixels / (rgb.shape[0] * rgb.shape[1])) ** 0.5)


def _stretched(apart: Gray, options: EnhanceOptions) -> Gray:
    """255 where there is ground, towards 0 where ink is strongest in its neighbourhood."""
    strongest = cv2.blur(ink.local_maximum(apart, round(4.5 * options.glyph_px)), (61, 61))
    strongest = cv2.max(strongest, np.full_like(strongest, options.min_stretch))
    return np.asarray(255 - cv2.divide(apart, strongest, scale=255), dtype=np.uint8)
