"""A picture on its way to being read: stages 3 to 6, looked at in other ways where it reads badly as it stands."""

import time
from dataclasses import dataclass, replace

import cv2
import numpy as np

from arachne.pipeline.plan import ReadRequest
from arachne.pipeline.reports import Reports
from arachne.schemas.result import StageName
from arachne.stages.arrays import Box, Rgb
from arachne.stages.assess import AssessOptions, assess
from arachne.stages.enhance import Enhanced, EnhanceOptions, enhance
from arachne.stages.marks import without_marks
from arachne.stages.rapid import SecondReader
from arachne.stages.read import Overview, Reading, ReadOptions, look_over
from arachne.stages.script import choose_languages, probing_languages
from arachne.stages.segment import Region, SegmentOptions, Segments, segment
from arachne.stages.twice import TwiceOptions, read_twice
from arachne.stages.upright import Upright, UprightOptions, is_upright, level, upright, worth_of

_FAST_GLYPH_PX = 17
_PHOTO_LEVELS = 28  # gray levels that a photographed surface of one colour spreads over
_BETTER = 1.5
_LEAST_GLYPH_PX = 10


@dataclass(frozen=True)
class Run:
    """What all stages of one picture share."""

    request: ReadRequest
    needed: tuple[StageName, ...]
    deadline: float
    reports: Reports
    second: SecondReader | None

    @property
    def glyph_px(self) -> float:
        """The height of text to read at; `fast` has fewer pixels to look at."""
        return _FAST_GLYPH_PX if self.is_fast else EnhanceOptions().glyph_px

    @property
    def turning(self) -> UprightOptions:
        """How pictures are turned."""
        request = self.request
        probed = probing_languages(request.languages, request.tessdata_dir)
        return UprightOptions(request.tessdata_dir, probed, self.deadline)

    @property
    def is_fast(self) -> bool:
        """Whether nothing is read again."""
        return self.request.options.detail_level == "fast"


@dataclass(frozen=True)
class ReadPage:
    """A picture that was read: how it was turned and enhanced, its words, and their languages."""

    turned: Upright
    enhanced: Enhanced
    reading: Reading
    languages: tuple[str, ...]

    @property
    def is_too_small(self) -> bool:
        """Whether its text could not be brought to a size that is read well, since the picture is too large."""
        height_px = self.turned.text_height_px
        return height_px is not None and height_px * self.enhanced.scale < _LEAST_GLYPH_PX


@dataclass(frozen=True)
class _Looked:
    """A picture that was looked over: what was made of it, how it is read, and what the page reads like."""

    turned: Upright
    enhanced: Enhanced
    how: ReadOptions
    over: Overview


def read_page(rgb: Rgb, flat: Upright, run: Run) -> ReadPage:
    """The picture read, of which `flat` is the level one.

    Quarter turns are tried where the page reads badly, and then whether it reads better as a photograph.

    Raises:
        ReadFailed: the reader can't be started or fails on the picture.
    """
    looked = _look_over(flat, run)
    if not is_upright(looked.over.words):
        turned = turn_upright(flat, run)
        looked = _look_over(turned, run) if turned.rotation_deg else looked
    reading = _read(looked, run)
    in_time = time.monotonic() < run.deadline  # else what was read so far stands, before the image is killed for it
    if in_time and not is_upright(looked.over.words) and not is_upright(reading.words):
        other = _look_over(_level_photo(rgb, flat, run), run, _PHOTO_LEVELS)
        told = without_marks(_read(other, run))
        if worth_of(told.words) > _BETTER * worth_of(reading.words):
            looked, reading = other, told
    return ReadPage(looked.turned, looked.enhanced, reading, looked.how.languages)


def turn_upright(flat: Upright, run: Run) -> Upright:
    """The level picture the right way up, proved by reading parts of it."""
    return run.reports.may("upright", lambda: upright(flat, run.turning), lambda: flat)


def prepare(turned: Upright, run: Run, even_levels: int = EnhanceOptions.even_levels) -> tuple[Enhanced, Segments]:
    """Stages 4 and 5, as far as they are needed."""
    aim = EnhanceOptions(glyph_px=run.glyph_px, even_levels=even_levels)
    enhanced = run.reports.may(
        "enhance", lambda: enhance(turned.rgb, turned.text_height_px, aim), lambda: _plain_gray(turned.rgb)
    )
    if "segment" not in run.needed:
        return enhanced, Segments(())
    found = run.reports.may("segment", lambda: segment(enhanced.gray, SegmentOptions()), lambda: _one_region(enhanced))
    return enhanced, found


def _look_over(turned: Upright, run: Run, even_levels: int = EnhanceOptions.even_levels) -> _Looked:
    enhanced, found = prepare(turned, run, even_levels)
    how, over = run.reports.must("read", lambda: _overview(enhanced, found, run))
    return _Looked(turned, enhanced, how, over)


def _overview(enhanced: Enhanced, found: Segments, run: Run) -> tuple[ReadOptions, Overview]:
    """What the page reads like, and in which languages."""
    request = run.request
    chosen = choose_languages(enhanced.gray, found.regions, request.languages, request.tessdata_dir)
    how = ReadOptions(request.tessdata_dir, chosen, run.deadline, run.glyph_px)
    if run.is_fast:
        how = replace(how, max_retries=0, max_missed=0)
    return how, look_over(enhanced.gray, found.regions, how)


def _read(looked: _Looked, run: Run) -> Reading:
    return run.reports.must("read", lambda: read_twice(looked.over, looked.how, run.second, TwiceOptions()))


def _level_photo(rgb: Rgb, flat: Upright, run: Run) -> Upright:
    """The picture level as a photograph, whose surfaces are not as even as those on a screen."""
    turning = replace(run.turning, even_levels=_PHOTO_LEVELS)

    def levelled() -> Upright:
        found = assess(rgb, AssessOptions(even_levels=_PHOTO_LEVELS))
        return level(rgb, found.glyphs, found.text_height_px, turning)

    return run.reports.may("upright", levelled, lambda: flat)


def _plain_gray(rgb: Rgb) -> Enhanced:
    gray = np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), dtype=np.uint8)
    dark = float(np.median(gray)) < 128
    return Enhanced(np.asarray(255 - gray, dtype=np.uint8) if dark else gray, 1.0, np.eye(3), float(dark))


def _one_region(enhanced: Enhanced) -> Segments:
    height, width = enhanced.gray.shape
    return Segments((Region("text", Box(0, 0, width, height), EnhanceOptions().glyph_px, 1),))
