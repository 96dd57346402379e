"""What two readers saw, as one reading: each line in the words of the one that is surer of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from arachne.stages.align import Aligned, align
from arachne.stages.arrays import Box, Gray
from arachne.stages.rapid import READER, SeenCharacter, SeenLine
from arachne.stages.read import Reading, ReadWord, mean_confidence, tightened
from arachne.stages.segment import Region
from arachne.stages.spacing import SpacingOptions, gaps_px, is_space

_NEW_LINES = 100_000  # far above the first reader's own numbers
_FIRST_FOREIGN = 0x0590  # Latin, Greek and Cyrillic come before; icons are seen as letters far behind


@dataclass(frozen=True)
class MergeOptions:
    """Confidences, 0..1: what a line must have that only one reader saw, and what a word must that one did not see."""

    least_missed: float = 0.8
    least_unseen: float = 0.8
    spacing: SpacingOptions = field(default_factory=SpacingOptions)


def merge(
    reading: Reading, seen: Sequence[SeenLine], gray: Gray, regions: Sequence[Region], options: MergeOptions
) -> Reading:
    """The reading of an enhanced picture, uint8 (H, W), with the lines that were seen better, and those it missed."""
    left, merged = list(reading.words), list[ReadWord]()
    for line in seen:
        under = sorted((word for word in left if _lies_in(word.box, line.box)), key=lambda word: word.box.x)
        stands = chosen(under, line, gray, regions, options)
        left = [word for word in left if word not in under]
        merged += stands
    merged += [word for word in left if word.confidence >= options.least_unseen]
    words = tuple(in_order(merged))
    return Reading(words, round(mean_confidence(words), 4), reading.degraded)


def chosen(
    under: list[ReadWord], line: SeenLine, gray: Gray, regions: Sequence[Region], options: MergeOptions
) -> list[ReadWord]:
    """The words that stand for the line: those that lay under it, the seen ones, or none."""
    text = "".join(one.text for one in line.characters)
    foreign = _is_foreign(text)
    if not under:
        if foreign or line.confidence < options.least_missed or not any(letter.isalnum() for letter in text):
            return []
        region, plain = _nearest(line.box, regions), align((), line.characters)
        return [
            _word(part, box, region, _NEW_LINES + int(line.box.y)) for part, box in _parts(plain, line, gray, options)
        ]
    if "".join(word.text for word in under) == text:
        return _confirmed(under, line, gray, options)
    if foreign or _is_foreign("".join(word.text for word in under)) or line.confidence < mean_confidence(under):
        return under
    aligned = align(under, line.characters)
    return [_word(part, box, *_place(box, under)) for part, box in _parts(aligned, line, gray, options)]


def _confirmed(under: list[ReadWord], line: SeenLine, gray: Gray, options: MergeOptions) -> list[ReadWord]:
    """The words that both readers read, parted further where the second saw white that the first did not."""
    parts = _parts(align(under, line.characters), line, gray, options)
    if len(parts) > len(under):
        return [_word(part, box, *_place(box, under)) for part, box in parts]
    return [replace(word, confidence=max(word.confidence, round(line.confidence, 4))) for word in under]


def _parts(
    aligned: Sequence[Aligned], line: SeenLine, gray: Gray, options: MergeOptions
) -> list[tuple[list[SeenCharacter], Box]]:
    """The line's words with their boxes: the model leaves out white space, so the ink and the other reader tell it."""
    top, bottom, right = max(0, int(line.box.y)), int(line.box.bottom) + 1, int(line.box.right) + 1
    edges, parts, owed = [max(0, int(line.box.x))], [[aligned[0].character]], False
    between = zip(aligned, aligned[1:], gaps_px(gray, line, [one.character.x for one in aligned]), strict=False)
    for before, after, (width, middle) in between:
        if owed and not after.character.spaced:
            # A letter told a little early: the white seen before it is found behind it.
            edges[-1] = int(middle) if width >= options.spacing.wide_px else edges[-1]
        elif is_space(before, after, width, options.spacing):
            edges.append(int(middle))
            parts.append([])
        parts[-1].append(after.character)
        owed = after.character.spaced and width < options.spacing.least_white_px
    edges.append(right)
    boxes = [Box(x, top, max(1, end - x), bottom - top) for x, end in pairwise(edges)]
    return [(part, tightened(gray, box)) for part, box in zip(parts, boxes, strict=True)]


def _place(box: Box, under: list[ReadWord]) -> tuple[int, int]:
    """Region and line of the word that is nearest along the line."""
    nearest = min(under, key=lambda word: abs(word.box.centre[0] - box.centre[0]))
    return nearest.region, nearest.line


def _word(part: Sequence[SeenCharacter], box: Box, region: int, line: int) -> ReadWord:
    confidence = sum(one.confidence for one in part) / len(part)
    return ReadWord("".join(one.text for one in part), box, round(confidence, 4), READER, region, line)


def _lies_in(word: Box, line: Box) -> bool:
    """Whether most of the word is within the line."""
    shared = min(word.bottom, line.bottom) - max(word.y, line.y)
    across = min(word.right, line.right) - max(word.x, line.x)
    return shared > 0.5 * min(word.height, line.height) and across > 0.5 * min(word.width, line.width)


def _is_foreign(text: str) -> bool:
    return any(ord(letter) >= _FIRST_FOREIGN and letter.isalpha() for letter in text)


def _nearest(box: Box, regions: Sequence[Region]) -> int:
    x, y = box.centre
    away = [max(0.0, one.box.x - x, x - one.box.right) + max(0.0, one.box.y - y, y - one.box.bottom) for one in regions]
    return away.index(min(away)) if away else 0


def in_order(words: Sequence[ReadWord]) -> list[ReadWord]:
    """The words by region and line from the top, lines numbered anew."""
    tops = dict[tuple[int, int], float]()
    for word in words:
        tops[word.region, word.line] = min(tops.get((word.region, word.line), word.box.y), word.box.y)
    order = sorted(tops, key=lambda key: (key[0], tops[key]))
    firsts = dict[int, int]()
    ranks = {key: rank - firsts.setdefault(key[0], rank) for rank, key in enumerate(order)}
    ranked = [replace(word, line=ranks[word.region, word.line]) for word in words]
    return sorted(ranked, key=lambda word: (word.region, word.line, word.box.x))
