"""Pictures read in bands where they have more specks than layout analysis gets through at once.

Layout has no time limit of its own and takes more than twice as long for twice the specks: noise over a large picture
would keep it busy for minutes.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import cv2
import numpy as np
import numpy.typing as npt

from arachne.stages.arrays import Gray
from arachne.stages.engine import EngineWord

AT_ONCE = 6_000  # twice the characters of a densely printed page
MOST = 30_000  # more than print of the size that is read can have on as many pixels: that is noise, and no text
_DUST_PX = 9  # smaller specks go where there are too many: the dot of an i has as many pixels
_EVERY = 8  # of the rows, one is looked at first
_NEAR_PX = 60  # from where a band is to end, within which the row with least ink is looked for

ReadBand = Callable[[Gray, float], tuple[EngineWord, ...]]


def read_in_bands(gray: Gray, limit_s: float, read: ReadBand) -> tuple[EngineWord, ...]:
    """The words of uint8 (H, W), dark on light, fewer where `limit_s` is up; `read` gets a band and its seconds."""
    deadline = time.monotonic() + limit_s
    words = list[EngineWord]()
    for top, band in bands(gray):
        left_s = deadline - time.monotonic()
        if top and left_s <= 0:
            break
        first_line = 1 + max((word.line for word in words), default=-1)
        words += (
            replace(word, box=word.box._replace(y=word.box.y + top), line=first_line + word.line)
            for word in read(band, left_s)
        )
    return tuple(words)


def bands(gray: Gray) -> list[tuple[int, Gray]]:
    """The picture from top to bottom in parts with few enough specks each, and the row each begins at.

    It is one part in most cases, which some of its rows tell, and none where there is nothing but noise.
    """
    some = gray[::_EVERY] < 128
    starts = int(np.count_nonzero(some[:, 1:] & ~some[:, :-1])) + len(some)
    if starts * _EVERY <= AT_ONCE:
        return [(0, gray)]
    _, dark = cv2.threshold(gray, 0, 255, cv2.THRESH_BINARY_INV | cv2.THRESH_OTSU)
    if cv2.connectedComponents(dark, connectivity=8)[0] - 1 <= AT_ONCE:  # measuring them takes several times as long
        return [(0, gray)]
    count, labels, stats, _ = cv2.connectedComponentsWithStats(dark, connectivity=8)
    kept = np.arange(1, count)
    if count - 1 > MOST:
        stays = stats[:, cv2.CC_STAT_AREA] >= _DUST_PX
        stays[0] = False
        kept = np.flatnonzero(stays)
        if len(kept) > MOST:
            return []
        gray = np.where(stays[labels], np.uint8(0), np.uint8(255))
    tops = np.sort(stats[kept, cv2.CC_STAT_TOP])
    edges = [0, *_ends(gray, tops), len(gray)]
    return [(top, gray[top:bottom]) for top, bottom in pairwise(edges) if bottom > top]


def _ends(gray: Gray, tops: npt.NDArray[np.int32]) -> list[int]:
    """Rows at which bands end: near every so many specks, where there is least ink."""
    ink = (gray < 128).sum(axis=1)
    ends = set[int]()
    for at in range(AT_ONCE, len(tops), AT_ONCE):
        start = max(0, int(tops[at]) - _NEAR_PX)
        ends.add(start + int(np.argmin(ink[start : int(tops[at]) + _NEAR_PX])))
    return sorted(ends)
