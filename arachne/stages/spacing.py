"""Where words of a seen line part: by the first reader's words, the ink's gaps and what the model saw."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np
import numpy.typing as npt

from arachne.stages.align import Aligned
from arachne.stages.arrays import Gray, Mask
from arachne.stages.rapid import SeenLine

# In type of one width much white is beside these.
_OPENING, _CLOSING = "([{", ")]},.;:"


@dataclass(frozen=True)
class SpacingOptions:
    """Gaps in px of an enhanced picture, whose glyphs are about 20 px high; rows more than `ruled` full are lines."""

    ink_below: int = 150
    faint_below: int = 200
    sure_px: float = 20
    least_px: float = 9.5
    least_white_px: float = 1
    ruled: float = 0.9
    doubted_px: float = 7
    wide_px: float = 18.5


def gaps_px(gray: Gray, line: SeenLine, places: Sequence[float]) -> list[tuple[float, float]]:
    """Width and middle of the widest stripe without ink between each two neighbouring places."""
    top, bottom = max(0, int(line.box.y)), int(line.box.bottom) + 1
    options = SpacingOptions()
    part = gray[top:bottom]
    dark = part < _ink_below(part, options)
    along = dark[:, max(0, int(line.box.x)) : int(line.box.right) + 1]
    ruled = along.mean(axis=1) > options.ruled if along.size else np.zeros(len(dark), np.bool_)
    inked = np.asarray(dark[~ruled].any(axis=0), dtype=np.bool_)
    return [_widest(inked, before, after) for before, after in pairwise(places)]


def _ink_below(part: Gray, options: SpacingOptions) -> npt.NDArray[np.float32]:
    """What counts as ink in each column: faint letters beside strong ones are told from their own surroundings."""
    if part.size == 0:
        return np.zeros(part.shape[1], np.float32)
    darkest = cv2.erode(part.min(axis=0)[None, :], np.ones((1, 2 * len(part) + 1), np.uint8))[0].astype(np.float32)
    share = (255 - options.ink_below) / 255
    return np.asarray(np.clip(255 - share * (255 - darkest), options.ink_below, options.faint_below), dtype=np.float32)


def is_space(before: Aligned, after: Aligned, gap_px: float, options: SpacingOptions) -> bool:
    """Whether white space parts two neighbouring characters with that much white between them."""
    if gap_px >= options.sure_px:
        return True
    spaced = after.character.spaced
    if before.word is not None and after.word is not None:
        if before.word != after.word:
            return spaced or gap_px >= options.least_px
        hugs = before.character.text in _OPENING or after.character.text in _CLOSING
        return spaced and gap_px >= options.doubted_px and not hugs  # one word to the first reader
    return spaced or gap_px >= options.wide_px


def _widest(inked: Mask, start: float, end: float) -> tuple[float, float]:
    first, last = max(0, int(start)), min(len(inked), int(end) + 1)
    if last <= first:
        return 0.0, (start + end) / 2
    stops = np.concatenate([[-1], np.flatnonzero(inked[first:last]), [last - first]])
    gaps = np.diff(stops) - 1
    widest = int(np.argmax(gaps))
    if gaps[widest] <= 0:
        return 0.0, (start + end) / 2
    return float(gaps[widest]), first + float(stops[widest] + 1 + stops[widest + 1]) / 2
