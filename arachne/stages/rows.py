"""Words put into rows as they stand on the page, and what a row's spacing tells: cells, and fixed-width type."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from arachne.stages.arrays import Box, union
from arachne.stages.read import ReadWord

_THAI_SPACE = 0.42  # of the height of the words beside it
_THAI_STOP_SPACE = 0.7  # the same beside a full stop or colon, which has white around it


@dataclass(frozen=True)
class Row:
    """Words that share a base line, from left to right."""

    words: tuple[ReadWord, ...]
    region: int

    @cached_property
    def box(self) -> Box:
        """Around all words."""
        return union([word.box for word in self.words])

    @property
    def text(self) -> str:
        """The words as they are written on one line."""
        return spell(self.words)

    @cached_property
    def height_px(self) -> float:
        """The height of its taller words, which have letters that rise or hang."""
        return float(np.percentile([word.box.height for word in self.words], 80))


def spell(words: Sequence[ReadWord]) -> str:
    """The words of a line with single spaces; Thai, which readers give in pieces, with the spaces that are seen."""
    text, last = "", None
    for word in words:
        if last is not None and not _runs_on(last, word):
            text += " "
        text += word.text
        last = word
    return text


def _runs_on(word: ReadWord, following: ReadWord) -> bool:
    """Whether two words are pieces of one: Thai where they meet, with less white between than a space has."""
    ends = (word.text[-1:], following.text[:1])
    stops = (ends[0] == ".", ends[1] in {".", ":"})
    if not any(_is_thai(end) for end in ends) or not all(
        _is_thai(end) or stop for end, stop in zip(ends, stops, strict=True)
    ):
        return False
    gap = following.box.x - word.box.right
    share = _THAI_STOP_SPACE if any(stops) else _THAI_SPACE
    return gap < share * max(word.box.height, following.box.height) or unicodedata.category(ends[1]) == "Mn"


def _is_thai(character: str) -> bool:
    return "\u0e01" <= character <= "\u0e5b"


def into_rows(words: Sequence[ReadWord]) -> list[Row]:
    """The words of each region, in the regions' order, as rows from the top."""
    regions = dict[int, list[ReadWord]]()
    for word in words:
        regions.setdefault(word.region, []).append(word)
    return [row for region in sorted(regions) for row in _rows(regions[region], region)]


def _rows(words: list[ReadWord], region: int) -> list[Row]:
    parts = list[list[ReadWord]]()
    lines = dict[int, list[ReadWord]]()
    for word in words:
        lines.setdefault(word.line, []).append(word)
    for line in sorted(lines.values(), key=_middle):
        # What the reader took for lines of two columns stands in one row where the middles agree.
        if parts and _beside(parts[-1], line):
            parts[-1].extend(line)
        else:
            parts.append(list(line))
    return [Row(tuple(sorted(part, key=lambda word: word.box.x)), region) for part in parts]


def _middle(words: list[ReadWord]) -> float:
    return float(np.median([word.box.centre[1] for word in words]))


def _beside(some: list[ReadWord], others: list[ReadWord]) -> bool:
    """Whether the words share a row: heights that overlap by more than half, and no word over another."""
    first, second = union([word.box for word in some]), union([word.box for word in others])
    shared = min(first.bottom, second.bottom) - max(first.y, second.y)
    if shared < 0.55 * min(first.height, second.height):
        return False
    return not any(
        min(one.box.right, other.box.right) - max(one.box.x, other.box.x) > 0.2 * min(one.box.width, other.box.width)
        for one in some
        for other in others
    )


def into_cells(row: Row, gap_px: float) -> list[list[ReadWord]]:
    """The row's words parted where the white between them is wider than `gap_px`."""
    cells = [[row.words[0]]]
    for word in row.words[1:]:
        if word.box.x - cells[-1][-1].box.right > gap_px:
            cells.append([])
        cells[-1].append(word)
    return cells


def advance_px(rows: Sequence[Row]) -> float | None:
    """The width of one character in fixed-width type; None where widths vary as in other type."""
    widths = [word.box.width / (len(word.text) - 0.15) for row in rows for word in row.words if len(word.text) >= 4]
    steps = [
        (after.box.x - word.box.x) / (len(word.text) + 1)
        for row in rows
        for word, after in zip(row.words, row.words[1:], strict=False)
        if len(word.text) >= 3 and after.box.x - word.box.right < 1.2 * word.box.height
    ]
    if len(widths) < 4 or len(steps) < 3:
        return None
    usual = float(np.median(steps))
    if usual <= 0:  # words on top of each other
        return None
    regular_widths = float(np.mean([abs(width / usual - 1) < 0.07 for width in widths]))
    regular_steps = float(np.mean([abs(step / usual - 1) < 0.05 for step in steps]))
    return usual if regular_widths >= 0.7 and regular_steps >= 0.6 else None


def advances_px(rows: Sequence[Row]) -> dict[int, float | None]:
    """Each region's width of a character; regions with too few words to tell take one of the others' that fits."""
    regions = dict[int, list[Row]]()
    for row in rows:
        regions.setdefault(row.region, []).append(row)
    found = {region: advance_px(members) for region, members in regions.items()}
    known = sorted({advance for advance in found.values() if advance is not None})
    return {
        region: advance or next((one for one in known if _fits(regions[region], one)), None)
        for region, advance in found.items()
    }


def _fits(rows: Sequence[Row], advance: float) -> bool:
    widths = [word.box.width / (len(word.text) - 0.15) for row in rows for word in row.words if len(word.text) >= 3]
    return len(widths) > 0 and float(np.mean([abs(width / advance - 1) < 0.07 for width in widths])) >= 0.7


def columns_kept(row: Row, left_px: float, advance: float) -> str:
    """The row's text with each word at its column of fixed-width type, counted from `left_px`."""
    text, last = "", None
    for word in row.words:
        column = round((word.box.x - left_px) / advance)
        near = last is not None and word.box.x - last.box.right < 1.6 * advance
        text += " " * (1 if near else max(column - len(text), 1 if text else 0)) + word.text
        last = word
    return text
