"""Stage 2: how good the picture is and what it looks like."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np

from arachne.stages import ink
from arachne.stages.arrays import Glyphs, Gray, Rgb, resized

VERSION = 3

_ENOUGH_PIXELS = 500_000
_BAND_PX = 32

Polarity = Literal["dark", "light", "mixed"]


@dataclass(frozen=True)
class AssessOptions:
    """`max_side_px` bounds the work: larger pictures are measured scaled down; `even_levels` as in `enhance`.

    Text is looked for in a picture of `first_side_px` first, which is enough where it is `clear_px` high there.
    """

    max_side_px: int = 2400
    first_side_px: int = 1200
    clear_px: float = 8
    palette_colours: int = 6
    even_levels: int = ink.EVEN


@dataclass(frozen=True)
class Assessment:
    """`sharpness` is the variance of the Laplacian, `noise` in gray levels, the rest as in the result.

    `glyphs` are boxes of what may be characters, (N, 5): x, y, width, height, area, in the picture's pixels.
    """

    sharpness: float
    contrast: float
    noise: float
    brightness: float
    polarity: Polarity
    text_height_px: float | None
    palette: tuple[tuple[str, float], ...]
    phash: str
    edge_density: float
    glyphs: Glyphs


def assess(rgb: Rgb, options: AssessOptions) -> Assessment:
    """Measured quality and looks of a picture, uint8 (H, W, 3)."""
    scale = min(1.0, options.max_side_px / max(rgb.shape[:2]))
    small = resized(rgb, scale)
    gray = np.asarray(cv2.cvtColor(small, cv2.COLOR_RGB2GRAY), dtype=np.uint8)
    sample = _sampled(gray)
    low, high = _spread(gray)
    inked = _find_ink(small, scale, options)
    return Assessment(
        sharpness=round(float(cv2.Laplacian(sample, cv2.CV_16S).var()), 2),
        contrast=round(float(high - low) / 255, 4),
        noise=round(_noise(sample), 3),
        brightness=round(float(gray.mean()) / 255, 4),
        polarity=inked.polarity,
        text_height_px=None if inked.height_px is None else round(inked.height_px, 1),
        palette=_palette(small, options.palette_colours),
        phash=_phash(gray),
        edge_density=round(float((cv2.Canny(sample, 60, 160) > 0).mean()), 5),
        glyphs=inked.glyphs,
    )


@dataclass(frozen=True)
class _Inked:
    """What stands out from its ground, in the picture's pixels."""

    glyphs: Glyphs
    height_px: float | None
    polarity: Polarity


def _find_ink(small: Rgb, scale: float, options: AssessOptions) -> _Inked:
    """The ink of a picture that was scaled by `scale`; looked for at a smaller size where its text is large enough."""
    less = min(1.0, options.first_side_px / max(small.shape[:2]))
    if less < 1:
        found = _find_ink_at(resized(small, less), scale * less, options)
        if found.height_px is not None and found.height_px * scale * less >= options.clear_px:
            return found
    return _find_ink_at(small, scale, options)


def _find_ink_at(rgb: Rgb, scale: float, options: AssessOptions) -> _Inked:
    behind = ink.ground(rgb, 12, options.even_levels)
    apart = ink.distance(rgb, behind)
    glyphs = ink.glyph_boxes(ink.mask(apart))
    height = ink.glyph_height(glyphs)
    return _Inked(
        ink.unscaled(glyphs, scale),
        None if height is None else height / scale,
        _polarity(behind),
    )


def _noise(gray: Gray) -> float:
    """Standard deviation of noise in gray levels.

    Source: J. Immerkær, Fast Noise Variance Estimation, 1996; the median instead of the mean ignores text.
    """
    if min(gray.shape) < 3:
        return 0.0
    kernel = np.array([[1, -2, 1], [-2, 4, -2], [1, -2, 1]], np.float32)
    response = np.abs(cv2.filter2D(gray, cv2.CV_16S, kernel))[1:-1, 1:-1]
    counts = np.cumsum(np.bincount(response.ravel()))
    return float(np.searchsorted(counts, counts[-1] / 2)) / (0.6745 * 6)


def _sampled(gray: Gray) -> Gray:
    """Enough bands of the picture, one above the other, to tell how sharp, noisy and full of edges all of it is."""
    every = gray.size // _ENOUGH_PIXELS
    if every < 2 or len(gray) < every * _BAND_PX:
        return gray
    bands = gray[: len(gray) // _BAND_PX * _BAND_PX].reshape(-1, _BAND_PX, gray.shape[1])
    return np.ascontiguousarray(bands[::every].reshape(-1, gray.shape[1]))


def _spread(gray: Gray) -> tuple[int, int]:
    """The levels below and above which a hundredth of the pixels lies."""
    counts = np.cumsum(cv2.calcHist([gray], [0], None, [256], [0, 256]))
    low, high = np.searchsorted(counts, [0.01 * counts[-1], 0.99 * counts[-1]])
    return int(low), int(high)


def _polarity(behind: Rgb) -> Polarity:
    """Whether text stands on dark or light ground; mixed where each has a fifth of the area."""
    dark = ink.dark_share(behind)
    if dark > 0.8:
        return "dark"
    return "light" if dark < 0.2 else "mixed"


def _palette(rgb: Rgb, colours: int) -> tuple[tuple[str, float], ...]:
    """The commonest colours after rounding to 16 levels a channel, each as the mean of its pixels."""
    step = max(1, int((rgb.shape[0] * rgb.shape[1] / 16_384) ** 0.5))
    pixels = rgb[::step, ::step].reshape(-1, 3)
    red, green, blue = ((pixels[:, channel] >> 4).astype(np.int32) for channel in range(3))
    keys = (red << 8) | (green << 4) | blue
    counts = np.bincount(keys, minlength=4096)
    top = [int(key) for key in np.argsort(counts, kind="stable")[::-1][:colours] if counts[key]]
    sums = [np.bincount(keys, weights=pixels[:, channel], minlength=4096) for channel in range(3)]
    return tuple(
        (_hex([float(one[key]) / float(counts[key]) for one in sums]), round(float(counts[key]) / len(keys), 4))
        for key in top
    )


def _hex(colour: Sequence[float]) -> str:
    red, green, blue = (round(value) for value in colour)
    return f"#{red:02x}{green:02x}{blue:02x}"


def _phash(gray: Gray) -> str:
    """64 bits of the picture's lowest frequencies, in hex; pictures that look alike differ in few bits."""
    step = 2 if min(gray.shape) >= 256 else 1
    small = cv2.resize(gray[::step, ::step], (32, 32), interpolation=cv2.INTER_AREA).astype(np.float32)
    low = cv2.dct(small)[:8, :8].ravel()
    bits = low > np.median(low[1:])
    return f"{int(''.join('1' if bit else '0' for bit in bits), 2):016x}"
