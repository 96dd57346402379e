"""Stage 3: text turned the right way up: a skew that is measured, and quarter turns that are proved by reading.

Most pictures are upright and read well as they are; a reading that does is proof enough, so that quarter turns are
tried only where it does not.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import cv2
import numpy as np
import numpy.typing as npt

from arachne.stages import ink, tesseract
from arachne.stages.arrays import Glyphs, Gray, Rgb, Transform, resized, shifting
from arachne.stages.engine import EngineWord
from arachne.stages.enhance import EnhanceOptions, enhance
from arachne.stages.perspective import Flattened, flatten
from arachne.stages.read import ReadWord, mean_confidence

VERSION = 4

QuarterTurn = Literal[0, 90, 180, 270]
_QUARTERS: tuple[QuarterTurn, ...] = (0, 90, 180, 270)
_MOST_PIXELS = 8_000_000
_LONG_WORD = 3  # characters from which a word is wider than high
_FLAT_GAIN = 1.02  # of the rows' sharpness
_BLOCK = 6  # of Tesseract's page segmentation modes
_SURE_CHARACTERS = 12
_MANY_CHARACTERS, _MANY_LEEWAY = 150, 0.05  # a page of text upside down stays under .70, however long
_FEWEST_GLYPHS = 5
_NOISE = 0.3  # confidence of what readers make of marks


@dataclass(frozen=True)
class UprightOptions:
    """`sure` is the confidence from which a probe's reading stands without trying other turns."""

    tessdata_dir: Path
    languages: tuple[str, ...]
    deadline: float
    max_skew_deg: float = 15
    least_skew_deg: float = 0.4
    sure: float = 0.78
    probe_px: int = 420
    probe_limit_s: float = 5
    even_levels: int = ink.EVEN


@dataclass(frozen=True)
class Upright:
    """The turned picture, uint8 (H, W, 3); turns are clockwise degrees; displayed pixels -> upright pixels.

    `text_height_px` is measured anew, since glyphs on their side have their width for a height; `glyphs` are those of
    the level picture, before quarter turns.
    """

    rgb: Rgb
    rotation_deg: QuarterTurn
    skew_deg: float
    transform: Transform
    text_height_px: float | None
    glyphs: Glyphs


def level(rgb: Rgb, boxes: Glyphs | None, text_height_px: float | None, options: UprightOptions) -> Upright:
    """The picture laid flat with its lines of text level, or plumb; unchanged where there is no text to tell.

    `boxes` are what may be characters in it, looked for where they are None.
    """
    boxes = _glyphs(rgb, text_height_px, options) if boxes is None else boxes
    if len(boxes) < _FEWEST_GLYPHS:
        return Upright(rgb, 0, 0.0, np.eye(3), text_height_px, boxes)
    levelled, transform, flat_deg = rgb, np.eye(3), 0.0
    flat = _flattened(rgb, boxes, text_height_px, options)
    if flat is not None:
        levelled, transform, flat_deg = flat.rgb, flat.transform, round(flat.turn_deg, 1)
        boxes = _glyphs(levelled, text_height_px, options)
    skew_deg = measure_skew(boxes, options)
    if skew_deg:
        levelled, turn = _turned(levelled, skew_deg)
        transform = turn @ transform
        boxes = _glyphs(levelled, text_height_px, options)
        text_height_px = ink.glyph_height(boxes) or text_height_px
    return Upright(levelled, 0, round(skew_deg + flat_deg, 1), transform, text_height_px, boxes)


def upright(found: Upright, options: UprightOptions) -> Upright:
    """The level picture the right way up; as it is where no quarter turn reads clearly better."""
    rgb, boxes = found.rgb, found.glyphs
    lying_px = ink.glyph_height(boxes[:, [1, 0, 3, 2, 4]]) if len(boxes) else None
    quarter = _quarter_turn(rgb, boxes, {0: found.text_height_px, 90: lying_px}, options)
    if not quarter:
        return found
    turn = quarter_transform(quarter, rgb.shape[1], rgb.shape[0])
    return replace(
        found,
        rgb=np.ascontiguousarray(np.rot90(rgb, k=-quarter // 90)),
        rotation_deg=quarter,
        transform=turn @ found.transform,
        text_height_px=lying_px if quarter in {90, 270} else found.text_height_px,
    )


def _flattened(rgb: Rgb, boxes: Glyphs, text_height_px: float | None, options: UprightOptions) -> Flattened | None:
    """The picture laid flat, where it is a surface seen at an angle and its rows of text part better for it."""
    flat = flatten(rgb, boxes)
    if flat is None:
        return None
    after = _glyphs(flat.rgb, text_height_px, options)
    return flat if _sharpest_at_all(after, options) > _FLAT_GAIN * _sharpest_at_all(boxes, options) else None


def _sharpest_at_all(boxes: Glyphs, options: UprightOptions) -> float:
    """How sharply rows of text part at the best angle, whatever the number of characters."""
    if len(boxes) < _FEWEST_GLYPHS:
        return 0.0
    height = max(4.0, ink.glyph_height(boxes) or 4.0)
    angles = np.arange(-options.max_skew_deg, options.max_skew_deg + 0.01, 0.5)
    return max(_sharpest(points, angles, height)[1] for points in _ends(boxes)) / len(boxes) ** 2


def _ends(boxes: Glyphs) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Where characters stand on their line, for level text and for text on its side."""
    feet = np.column_stack([boxes[:, 0] + boxes[:, 2] / 2, boxes[:, 1] + boxes[:, 3]]).astype(np.float64)
    return feet, np.column_stack([boxes[:, 1] + boxes[:, 3] / 2, -boxes[:, 0].astype(np.float64)])


def _glyphs(rgb: Rgb, text_height_px: float | None, options: UprightOptions) -> Glyphs:
    """Boxes of glyphs in the picture's pixels; large pictures are looked at scaled down."""
    factor = min(1.0, float((_MOST_PIXELS / (rgb.shape[0] * rgb.shape[1])) ** 0.5))
    small = resized(rgb, factor)
    apart = ink.distance(small, ink.ground(small, (text_height_px or 12) * factor, options.even_levels))
    return ink.unscaled(ink.glyph_boxes(ink.mask(apart)), factor)


def quarter_transform(degrees: QuarterTurn, width: int, height: int) -> Transform:
    """The transform of a clockwise quarter turn of a picture that was width x height."""
    return {
        0: np.eye(3),
        90: np.array([[0.0, -1.0, height], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]),
        180: np.array([[-1.0, 0.0, width], [0.0, -1.0, height], [0.0, 0.0, 1.0]]),
        270: np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, width], [0.0, 0.0, 1.0]]),
    }[degrees]


def measure_skew(boxes: Glyphs, options: UprightOptions) -> float:
    """The clockwise turn in degrees that makes lines level (or upright, for text on its side); 0 where none is clear.

    Lines that are level put many glyphs' feet into few rows: the angle is the one where the feet's histogram is
    sharpest, and it counts only where it is clearly sharper than at no turn.
    """
    if len(boxes) < 12:
        return 0.0
    height = max(4.0, ink.glyph_height(boxes) or 4.0)
    limit = options.max_skew_deg
    found = []
    for points in _ends(boxes):
        coarse = _sharpest(points, np.arange(-limit, limit + 0.01, 0.5), height)
        fine = _sharpest(points, np.arange(coarse[0] - 0.5, coarse[0] + 0.51, 0.1), height)
        found.append((*fine, _sharpness(points, 0.0, height)))
    angle, score, level = max(found, key=lambda one: one[1])
    if abs(angle) < options.least_skew_deg or abs(angle) > limit or score < 1.25 * max(one[2] for one in found):
        return 0.0
    del level
    return round(float(angle), 1)


def _sharpest(points: npt.NDArray[np.float64], angles: npt.NDArray[np.float64], height: float) -> tuple[float, float]:
    scores = [_sharpness(points, float(angle), height) for angle in angles]
    best = int(np.argmax(scores))
    return float(angles[best]), scores[best]


def _sharpness(points: npt.NDArray[np.float64], angle_deg: float, height: float) -> float:
    """How unevenly the points fall into rows a third of a glyph high, after a clockwise turn."""
    radians = np.deg2rad(angle_deg)
    rows = points[:, 0] * np.sin(radians) + points[:, 1] * np.cos(radians)
    bins = np.floor((rows - rows.min()) / max(2.0, height / 3)).astype(np.int64)
    counts = np.bincount(bins).astype(np.float64)
    return float((counts**2).sum())


def _turned(rgb: Rgb, angle_deg: float) -> tuple[Rgb, Transform]:
    """The picture turned clockwise on a canvas that holds all of it, filled with its edge's usual colour."""
    height, width = rgb.shape[:2]
    radians = np.deg2rad(angle_deg)
    cosine, sine = float(np.cos(radians)), float(np.sin(radians))
    wide, high = (
        int(np.ceil(abs(width * cosine) + abs(height * sine))),
        int(np.ceil(abs(width * sine) + abs(height * cosine))),
    )
    rotation = np.array([[cosine, -sine, 0.0], [sine, cosine, 0.0], [0.0, 0.0, 1.0]])
    transform = shifting(wide / 2, high / 2) @ rotation @ shifting(-width / 2, -height / 2)
    centred = shifting(-0.5, -0.5) @ transform @ shifting(0.5, 0.5)  # OpenCV counts from pixels' middles
    edge = np.concatenate([rgb[0], rgb[-1], rgb[:, 0], rgb[:, -1]])
    fill = [float(value) for value in np.median(edge, axis=0)]
    turned = cv2.warpAffine(rgb, centred[:2], (wide, high), flags=cv2.INTER_CUBIC, borderValue=fill)
    return np.asarray(turned, dtype=np.uint8), transform


def _quarter_turn(rgb: Rgb, boxes: Glyphs, heights_px: dict[int, float | None], options: UprightOptions) -> QuarterTurn:
    """The clockwise turn whose probe reads clearly best; 0 where reading as it is is good or nothing is better.

    `heights_px` has the glyphs' height for text that is level (0) and for text on its side (90).
    """
    if len(boxes) < _FEWEST_GLYPHS:
        return 0
    engine = tesseract.engine(options.tessdata_dir, options.languages)
    worth = dict[QuarterTurn, float]()
    for degrees in _QUARTERS:
        if time.monotonic() > options.deadline:
            return 0
        probe = np.rot90(_probe(rgb, boxes, heights_px[degrees % 180], options), k=-degrees // 90)
        words = engine.read(np.ascontiguousarray(probe), _BLOCK, options.probe_limit_s)
        if degrees == 0 and is_upright(words, options.sure):
            return 0
        worth[degrees] = worth_of(words)
    best = max(worth, key=lambda degrees: worth[degrees])
    return best if worth[best] > 1.5 * worth[0] + 3 else 0


def is_upright(words: Sequence[EngineWord | ReadWord], sure: float = UprightOptions.sure) -> bool:
    """Whether a reading is good enough to be of text that stands the right way up.

    Tesseract reads a page on its side as well as a level one, though line by line from its foot: its words are upright.
    """
    confidence, characters = _found(words)
    long = [word.box for word in words if len(word.text) >= _LONG_WORD]
    lying = sum(box.height > box.width for box in long)
    needed = sure if characters < _MANY_CHARACTERS else sure - _MANY_LEEWAY
    return confidence >= needed and characters >= _SURE_CHARACTERS and 2 * lying <= len(long)


def worth_of(words: Sequence[EngineWord | ReadWord]) -> float:
    """How much a reading is worth beside others of the same picture: characters, by far fewer where unsure."""
    confidence, characters = _found(words)
    return characters * confidence**3


def _found(words: Sequence[EngineWord | ReadWord]) -> tuple[float, int]:
    """The mean confidence and number of characters, without the words that are most likely noise."""
    words = [word for word in words if word.confidence > _NOISE]
    return mean_confidence(words), sum(len(word.text) for word in words)


def _probe(rgb: Rgb, boxes: Glyphs, text_height_px: float | None, options: UprightOptions) -> Gray:
    """The part of the picture with most glyphs, enhanced; about a square of `probe_px` once scaled."""
    aim = EnhanceOptions(glyph_px=20)
    side = max(24, round(options.probe_px * (text_height_px or aim.glyph_px) / aim.glyph_px))
    block = max(1, side // 6)
    counts = np.zeros((rgb.shape[0] // block + 1, rgb.shape[1] // block + 1), np.float32)
    np.add.at(counts, ((boxes[:, 1] + boxes[:, 3] // 2) // block, (boxes[:, 0] + boxes[:, 2] // 2) // block), 1)
    spread = cv2.boxFilter(counts, -1, (6, 6), normalize=False, borderType=cv2.BORDER_CONSTANT)
    row, column = np.unravel_index(int(np.argmax(spread)), spread.shape)
    top = int(np.clip((row - 3) * block, 0, max(0, rgb.shape[0] - side)))
    left = int(np.clip((column - 3) * block, 0, max(0, rgb.shape[1] - side)))
    part = np.ascontiguousarray(rgb[top : top + side, left : left + side])
    return enhance(part, text_height_px, aim).gray
