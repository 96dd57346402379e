"""Stage 6: words with boxes and confidence; weak or missed regions are read again in another way."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np

from arachne.errors import ReadFailed
from arachne.stages import ink, tesseract
from arachne.stages.arrays import Box, Gray, resized
from arachne.stages.engine import Engine, EngineWord
from arachne.stages.segment import Region

VERSION = 5
READER = "tesseract"


_CERTAIN = 0.9
_RULE_ACROSS_PX = 60
_RULE_DOWN_GLYPHS = 2.6
_PAGE, _BLOCK, _LINE, _SPARSE = 3, 6, 7, 11  # Tesseract's page segmentation modes


@dataclass(frozen=True)
class ReadOptions:
    """`deadline` is on the monotonic clock; after it nothing is read again. Confidences are 0..1."""

    tessdata_dir: Path
    languages: tuple[str, ...]
    deadline: float
    glyph_px: float = 20
    sure: float = 0.8
    drop_below: float = 0.4
    max_retries: int = 40
    max_missed: int = 30
    page_limit_s: float = 60


@dataclass(frozen=True)
class ReadWord:
    """A word: its box in pixels of the enhanced picture, the region it is in and the line within that region."""

    text: str
    box: Box
    confidence: float
    reader: str
    region: int
    line: int


@dataclass(frozen=True)
class Reading:
    """Words in reading order, mean confidence weighted by characters, and why it is less than it could be."""

    words: tuple[ReadWord, ...]
    confidence: float
    degraded: str | None


@dataclass(frozen=True)
class Overview:
    """What the page as a whole reads like: the enhanced picture, uint8 (H, W), and the words of each region.

    `clean` is the picture without rules.
    """

    gray: Gray
    clean: Gray
    regions: Sequence[Region]
    parts: tuple[tuple[EngineWord, ...], ...]

    @property
    def words(self) -> list[EngineWord]:
        """Those of all regions."""
        return [word for part in self.parts for word in part]


def look_over(gray: Gray, regions: Sequence[Region], options: ReadOptions) -> Overview:
    """The words of an enhanced picture, uint8 (H, W), read once as a page.

    Raises:
        ReadFailed: the reader can't be started or fails on the picture.
    """
    if not regions:
        return Overview(gray, gray, (), ())
    clean = _without_rules(gray, options)
    left_s = max(1.0, min(options.page_limit_s, options.deadline - time.monotonic()))
    with _failing():
        parts = _share_out(_engine(options).read(clean, _PAGE, left_s), regions)
    return Overview(gray, clean, regions, tuple(parts))


def read(over: Overview, options: ReadOptions) -> Reading:
    """The words of a picture that was looked over, weak and missed regions read again as often as `options` allow.

    Raises:
        ReadFailed: the reader can't be started or fails on the picture.
    """
    with _failing():
        return _read(over, options)


@contextmanager
def _failing() -> Iterator[None]:
    """Tesseract's errors as the stage's."""
    try:
        yield
    except RuntimeError as error:
        raise ReadFailed(
            f"Tesseract failed: {error}. `arachne doctor` checks its language data.", stage="read"
        ) from error


def _engine(options: ReadOptions) -> Engine:
    return tesseract.engine(options.tessdata_dir, options.languages)


def _read(over: Overview, options: ReadOptions) -> Reading:
    gray, regions, parts = over.clean, over.regions, list(over.parts)
    degraded, retries = None, 0
    for index, region in enumerate(regions):
        if options.max_retries == 0 or not _weak(parts[index], region, options):
            continue
        if time.monotonic() > options.deadline or retries >= options.max_retries:
            degraded = "soft_time_limit" if time.monotonic() > options.deadline else "too_many_weak_regions"
            break
        retries += 1
        parts[index] = _read_again(_engine(options), gray, region, parts[index], options)
    if options.max_missed:
        parts = _with_missed(_engine(options), gray, regions, parts, options)
    words = tuple(
        replace(word, box=tightened(gray, word.box))
        for index, part in enumerate(parts)
        for word in _ordered(part, index, options)
    )
    return Reading(words, round(mean_confidence(words), 4), degraded)


def read_line(gray: Gray, options: ReadOptions) -> tuple[EngineWord, ...]:
    """The words of a picture, uint8 (H, W), that is one line.

    Raises:
        ReadFailed: the reader can't be started or fails on the picture.
    """
    with _failing():
        return _engine(options).read(gray, _LINE, max(0.5, options.deadline - time.monotonic()))


def mean_confidence(words: Sequence[ReadWord | EngineWord]) -> float:
    """The mean over characters, 0..1; 0 without words."""
    characters = sum(len(word.text) for word in words)
    return sum(len(word.text) * word.confidence for word in words) / characters if characters else 0.0


def _share_out(words: Sequence[EngineWord], regions: Sequence[Region]) -> list[tuple[EngineWord, ...]]:
    """Each region's words: those whose middle is inside, else nearest."""
    shares: list[list[EngineWord]] = [[] for _ in regions]
    boxes = np.array([region.box for region in regions], dtype=np.float64)
    for word in words:
        x, y = word.box.centre
        across = np.maximum(np.maximum(boxes[:, 0] - x, x - boxes[:, 0] - boxes[:, 2]), 0)
        down = np.maximum(np.maximum(boxes[:, 1] - y, y - boxes[:, 1] - boxes[:, 3]), 0)
        shares[int(np.argmin(across + down))].append(word)
    return [tuple(share) for share in shares]


def _weak(words: Sequence[EngineWord], region: Region, options: ReadOptions) -> bool:
    """Whether a reading is unsure, or covers less of the region's width or lines than its ink promises."""
    if not words or mean_confidence(words) < options.sure:
        return True
    return len({word.line for word in words}) < 0.7 * region.rows


def _worth(words: Sequence[EngineWord]) -> float:
    """Characters weighted by the square of their word's confidence, so that noise counts for little."""
    return sum(len(word.text) * word.confidence**2 for word in words)


def _read_again(
    engine: Engine,
    gray: Gray,
    region: Region,
    first: tuple[EngineWord, ...],
    options: ReadOptions,
) -> tuple[EngineWord, ...]:
    """The best of the first reading and one of the region alone, without rules and at the aimed size."""
    margin = 0.35 * region.text_height_px + 2
    crop, corner = _cut_out(gray, region.box.grown(margin))
    factor = _factor(region, options)
    crop = resized(crop, factor)
    left_s = max(0.5, options.deadline - time.monotonic())
    mode = _LINE if region.rows == 1 else _BLOCK
    again = [replace(word, box=_placed(word.box, factor, corner)) for word in engine.read(crop, mode, left_s)]
    return max((first, tuple(again)), key=_worth)


def _with_missed(
    engine: Engine,
    gray: Gray,
    regions: Sequence[Region],
    parts: list[tuple[EngineWord, ...]],
    options: ReadOptions,
) -> list[tuple[EngineWord, ...]]:
    """The readings with words for ink that none of them covers, such as lone digits in cells."""
    words = [word.box for part in parts for word in part]
    left, complete = options.max_missed, list(parts)
    for index, region in enumerate(regions):
        for chunk in region.chunks:
            if left == 0 or time.monotonic() > options.deadline:
                return complete
            if is_covered(chunk, words) or chunk.height > 2.5 * region.text_height_px:
                continue
            left -= 1
            alone = Region("text", chunk, region.text_height_px, 1)
            found = [word for word in _read_again(engine, gray, alone, (), options) if _is_telling(word)]
            first_line = 1 + max((word.line for word in complete[index]), default=-1)
            complete[index] += tuple(replace(word, line=first_line + word.line) for word in found)
    return complete


def _is_telling(word: EngineWord) -> bool:
    """Whether a lone word is surely text: a number or a longer word; icons read as single letters."""
    telling = any(c.isdigit() for c in word.text) or sum(c.isalnum() for c in word.text) >= 3
    return telling and word.confidence >= _CERTAIN


def is_covered(chunk: Box, words: Sequence[Box]) -> bool:
    """Whether words lie over at least a third of the chunk's width."""
    shared = 0.0
    for word in words:
        if min(word.bottom, chunk.bottom) - max(word.y, chunk.y) > 0.3 * min(word.height, chunk.height):
            shared += max(0.0, min(word.right, chunk.right) - max(word.x, chunk.x))
    return shared > chunk.width / 3


def _factor(region: Region, options: ReadOptions) -> float:
    factor = options.glyph_px / max(1.0, region.text_height_px)
    return 1.0 if 0.7 < factor < 1.3 else float(np.clip(factor, 0.2, 2.5))


def _cut_out(gray: Gray, box: Box) -> tuple[Gray, tuple[float, float]]:
    x, y = max(0, int(box.x)), max(0, int(box.y))
    return gray[y : int(box.bottom) + 1, x : int(box.right) + 1], (x, y)


def _placed(box: Box, factor: float, corner: tuple[float, float]) -> Box:
    x, y, width, height = (side / factor for side in box)
    return Box(x + corner[0], y + corner[1], width, height)


def tightened(gray: Gray, box: Box) -> Box:
    """The box cut to the ink inside it; the reader's may reach over the whole line."""
    x, y = max(0, int(box.x)), max(0, int(box.y))
    dark = gray[y : round(box.bottom), x : round(box.right)] < 150
    rows, columns = np.flatnonzero(dark.any(axis=1)), np.flatnonzero(dark.any(axis=0))
    if len(rows) == 0:
        return box
    top, left = float(y + rows[0]), float(x + columns[0])
    return Box(left, top, float(x + columns[-1] + 1) - left, float(y + rows[-1] + 1) - top)


def _without_rules(gray: Gray, options: ReadOptions) -> Gray:
    """The picture with thin straight lines longer than letters painted over; they read as bars and join letters."""
    dark = gray < 170
    thick = cv2.morphologyEx(dark.astype(np.uint8), cv2.MORPH_OPEN, np.ones((7, 7), np.uint8))
    thin = dark & (cv2.dilate(thick, np.ones((3, 3), np.uint8)) == 0)
    down_px = round(_RULE_DOWN_GLYPHS * options.glyph_px)
    return np.where(ink.rules(thin, _RULE_ACROSS_PX, down_px), np.uint8(255), gray)


def _is_noise(words: Sequence[EngineWord]) -> bool:
    """Whether a region's words are only marks, or one unsure letter: icons, edges and shadows read so."""
    letters = sum(c.isalnum() for word in words for c in word.text)
    return letters == 0 or (letters == 1 and mean_confidence(words) < _CERTAIN)


def _ordered(words: Sequence[EngineWord], region: int, options: ReadOptions) -> list[ReadWord]:
    """The region's words by line from the top, without the ones that are noise."""
    kept = [word for word in words if word.confidence >= options.drop_below]
    if _is_noise(kept):
        return []
    tops = dict[int, float]()
    for word in kept:
        tops[word.line] = min(tops.get(word.line, word.box.y), word.box.y)
    ranks = {line: rank for rank, line in enumerate(sorted(tops, key=lambda line: tops[line]))}
    ordered = sorted(kept, key=lambda word: (ranks[word.line], word.box.x))
    return [
        ReadWord(word.text, word.box, round(word.confidence, 4), READER, region, ranks[word.line]) for word in ordered
    ]
