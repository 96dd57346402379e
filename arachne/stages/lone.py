"""Glyphs that stand alone, such as digits in cells and braces on lines: put side by side and read as one line."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from arachne.stages.arrays import Box, Gray, resized
from arachne.stages.engine import EngineWord
from arachne.stages.merge import in_order
from arachne.stages.rapid import LINE_PX, READER, SeenLine
from arachne.stages.read import Overview, Reading, ReadWord, is_covered, mean_confidence
from arachne.stages.segment import Region

_GLYPH_PX = 20.0
_APART_PX = 14  # between two glyphs; the second reader tells a place within 7 px
_STRIP_PX = 900
_NEW_LINES = 200_000  # far above the readers' own numbers
_MARK = "{}[]()<>=+#$%&~?!@^*/\\•→←↑↓✓"  # besides letters and digits; smaller ones are mostly specks and edges


@dataclass(frozen=True)
class LoneOptions:
    """Confidences, 0..1, from which a word is known and a reading counts; sizes in heights of the region's text."""

    known: float = 0.9
    sure: float = 0.8
    widest: float = 1.6
    lowest: float = 0.5
    highest: float = 1.45
    most: int = 150


@dataclass(frozen=True)
class Lone:
    """A glyph or two with nothing beside them, and what was read there unsurely."""

    box: Box
    region: int
    text_height_px: float
    words: tuple[ReadWord, ...] = ()


@dataclass(frozen=True)
class Told:
    """What a strip's reader says about the stripe from `x` to `right`."""

    text: str
    confidence: float


Strip = tuple[Gray, tuple[tuple[float, float], ...]]  # a picture one line high, and the stripe of each glyph in it
Teller = Callable[[Strip], Sequence[Told | None]]


def with_lone(reading: Reading, over: Overview, tell: Teller, *, reader: str, options: LoneOptions) -> Reading:
    """The reading of a picture that was looked over, with its lone glyphs as `tell` reads them.

    Marks that were read unsurely and that `tell` does not know are left out: they are icons and edges.
    """
    found = find_lone(reading.words, over.regions, options)
    if not found:
        return reading
    gone, new = set[int](), list[ReadWord]()
    for some in _portions(found):
        for lone, told in zip(some, tell(_strip(over.gray, some)), strict=True):
            known = told is not None and told.confidence >= options.sure and _is_telling(told.text, lone, options)
            if told is not None and known:
                line = lone.words[0].line if lone.words else _NEW_LINES + len(new)
                new.append(ReadWord(told.text, lone.box, round(told.confidence, 4), reader, lone.region, line))
            low = lone.box.height < options.lowest * lone.text_height_px
            if known or (reader == READER and not low):
                gone.update(id(word) for word in lone.words)
    words = tuple(in_order([*(word for word in reading.words if id(word) not in gone), *new]))
    return Reading(words, round(mean_confidence(words), 4), reading.degraded)


def find_lone(words: Sequence[ReadWord], regions: Sequence[Region], options: LoneOptions) -> list[Lone]:
    """Narrow chunks of ink that no word, or only a short and unsure one, lies over."""
    sure = [word.box for word in words if word.confidence >= options.known or len(word.text) > 2]
    unsure = [word for word in words if word.confidence < options.known and len(word.text) <= 2]
    found = []
    for index, region in enumerate(regions):
        height = region.text_height_px
        for chunk in region.chunks:
            low = max(chunk.width, chunk.height) < 0.3 * height or chunk.height > options.highest * height
            if low or chunk.width > options.widest * height or is_covered(chunk, sure):
                continue
            under = tuple(word for word in unsure if chunk.grown(2).holds(word.box))
            found.append(Lone(chunk, index, height, under))
    return found[: options.most]


def _portions(found: Sequence[Lone]) -> list[list[Lone]]:
    """The glyphs in portions of which each makes a strip of bounded length."""
    portions, length = [list[Lone]()], 0.0
    for lone in found:
        length += lone.box.width * _GLYPH_PX / lone.text_height_px + _APART_PX
        if length > _STRIP_PX and portions[-1]:
            portions.append([])
            length = lone.box.width * _GLYPH_PX / lone.text_height_px + _APART_PX
        portions[-1].append(lone)
    return portions


def _strip(gray: Gray, some: Sequence[Lone]) -> Strip:
    parts, stripes, x = [np.full((LINE_PX, _APART_PX), 255, np.uint8)], list[tuple[float, float]](), float(_APART_PX)
    for lone in some:
        glyph = _cut_out(gray, lone)
        canvas = np.full((LINE_PX, glyph.shape[1] + _APART_PX), 255, np.uint8)
        top = max(0, (LINE_PX - glyph.shape[0]) // 2)
        canvas[top : top + glyph.shape[0], : glyph.shape[1]] = glyph[:LINE_PX]
        parts.append(canvas)
        stripes.append((x, x + glyph.shape[1]))
        x += canvas.shape[1]
    return np.concatenate(parts, axis=1), tuple(stripes)


def _cut_out(gray: Gray, lone: Lone) -> Gray:
    """The glyph alone at the usual size."""
    box = lone.box.grown(2)
    part = gray[max(0, int(box.y)) : int(box.bottom) + 1, max(0, int(box.x)) : int(box.right) + 1]
    factor = _GLYPH_PX / lone.text_height_px
    factor = min(factor if not 0.7 < factor < 1.3 else 1.0, LINE_PX / part.shape[0])
    return np.asarray(resized(part, factor)[:LINE_PX], dtype=np.uint8)


def _is_telling(text: str, lone: Lone, options: LoneOptions) -> bool:
    """Whether that can be what stands there: a low bar is no digit, and a strange letter is an icon."""
    if lone.box.height < options.lowest * lone.text_height_px:
        return text in {"-", "~"} and lone.box.width < 0.9 * lone.text_height_px
    return any(c.isalnum() or c in _MARK for c in text) and all(ord(c) < 0x250 or c in _MARK for c in text)


def told_by_line(line: SeenLine | None, stripes: Sequence[tuple[float, float]]) -> list[Told | None]:
    """What the second reader saw in each stripe of a strip."""
    shares: list[list[tuple[str, float]]] = [[] for _ in stripes]
    for one in line.characters if line else ():
        away = [max(0.0, left - one.x, one.x - right) for left, right in stripes]
        shares[int(np.argmin(away))].append((one.text, one.confidence))
    return [
        Told("".join(text for text, _ in share), min(confidence for _, confidence in share)) if share else None
        for share in shares
    ]


def told_by_words(words: Sequence[EngineWord], stripes: Sequence[tuple[float, float]]) -> list[Told | None]:
    """What Tesseract read in each stripe: digits and capitals, where it read as many characters as there are glyphs."""
    told: list[Told | None] = [None for _ in stripes]
    for word in words:
        inside = [
            at for at, (left, right) in enumerate(stripes) if word.box.x - 3 < (left + right) / 2 < word.box.right + 3
        ]
        if len(inside) == len(word.text):
            for at, letter in zip(inside, word.text, strict=True):
                if letter.isdigit() or letter.isupper() or letter == "#":
                    told[at] = Told(letter, word.confidence)
    return told
