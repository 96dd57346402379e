"""Stage 2: how good the picture is and what it looks like."""

from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
import numpy.typing as npt

from arachne.stages import ink
from arachne.stages.arrays import Gray, Rgb, resized

VERSION = 1

Polarity = Literal["dark", "light", "mixed"]


@dataclass(frozen=True)
class AssessOptions:
    """`max_side_px` bounds the work: larger pictures are measured scaled down."""

    max_side_px: int = 2400
    palette_colours: int = 6


@dataclass(frozen=True)
class Assessment:
    """`sharpness` is the variance of the Laplacian, `noise` in gray levels, the rest as in the result."""

    sharpness: float
    contrast: float
    noise: float
    brightness: float
    polarity: Polarity
    text_height_px: float | None
    palette: tuple[tuple[str, float], ...]
    phash: str
    edge_density: float
    blank: bool


def assess(rgb: Rgb, options: AssessOptions) -> Assessment:
    """Measured quality and looks of a picture, uint8 (H, W, 3)."""
    scale = min(1.0, options.max_side_px / max(rgb.shape[:2]))
    small = resized(rgb, scale)
    gray = np.asarray(cv2.cvtColor(small, cv2.COLOR_RGB2GRAY), dtype=np.uint8)
    behind = ink.ground(small, 12)
    apart = ink.distance(small, behind)
    low, high = np.percentile(gray[:: max(1, len(gray) // 512)], [1, 99])
    height = ink.glyph_height(ink.glyph_boxes(ink.mask(apart)))
    return Assessment(
        sharpness=round(float(cv2.Laplacian(gray, cv2.CV_16S).var()), 2),
        contrast=round(float(high - low) / 255, 4),
        noise=round(_noise(gray), 3),
        brightness=round(float(gray.mean()) / 255, 4),
        polarity=_polarity(behind),
        text_height_px=None if height is None else round(height / scale, 1),
        palette=_palette(small, options.palette_colours),
        phash=_phash(gray),
        edge_density=round(float((cv2.Canny(gray, 60, 160) > 0).mean()), 5),
        blank=int(apart.max(initial=0)) < ink.MIN_CONTRAST,
    )


def _noise(gray: Gray) -> float:
    """Standard deviation of noise in gray levels.

    Source: J. Immerkær, Fast Noise Variance Estimation, 1996; the median instead of the mean ignores text.
    """
    if min(gray.shape) < 3:
        return 0.0
    kernel = np.array([[1, -2, 1], [-2, 4, -2], [1, -2, 1]], np.float32)
    response = np.abs(cv2.filter2D(gray, cv2.CV_16S, kernel))[1:-1, 1:-1]
    return float(np.median(response[:: max(1, len(response) // 512)])) / (0.6745 * 6)


def _polarity(behind: Rgb) -> Polarity:
    """Whether text stands on dark or light ground; mixed where each has a fifth of the area."""
    dark = float((behind[::4, ::4].max(axis=2) < 128).mean())
    if dark > 0.8:
        return "dark"
    return "light" if dark < 0.2 else "mixed"


def _palette(rgb: Rgb, colours: int) -> tuple[tuple[str, float], ...]:
    """The commonest colours after rounding to 16 levels a channel, each as the mean of its pixels."""
    step = max(1, int((rgb.shape[0] * rgb.shape[1] / 65_536) ** 0.5))
    pixels = rgb[::step, ::step].reshape(-1, 3)
    keys = (pixels >> 4).astype(np.int32) @ np.array([256, 16, 1], dtype=np.int32)
    counts = np.bincount(keys, minlength=4096)
    top = [int(key) for key in np.argsort(counts, kind="stable")[::-1][:colours] if counts[key]]
    return tuple((_hex(pixels[keys == key].mean(axis=0)), round(float(counts[key]) / len(keys), 4)) for key in top)


def _hex(colour: npt.NDArray[np.float64]) -> str:
    red, green, blue = (round(float(value)) for value in colour)
    return f"#{red:02x}{green:02x}{blue:02x}"


def _phash(gray: Gray) -> str:
    """64 bits of the picture's lowest frequencies, in hex; pictures that look alike differ in few bits."""
    small = cv2.resize(gray, (32, 32), interpolation=cv2.INTER_AREA).astype(np.float32)
    low = cv2.dct(small)[:8, :8].ravel()
    bits = low > np.median(low[1:])
    return f"{int(''.join('1' if bit else '0' for bit in bits), 2):016x}"
