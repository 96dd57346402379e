"""When a reading wants a second look, and the reading after it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from arachne.stages.arrays import Box
from arachne.stages.lone import LoneOptions, Strip, Teller, Told, told_by_line, told_by_words, with_lone
from arachne.stages.merge import MergeOptions, merge
from arachne.stages.rapid import READER as SECOND_READER
from arachne.stages.rapid import SecondReader, SecondReaderLost
from arachne.stages.read import READER, Overview, Reading, ReadOptions, ReadWord, is_covered, read, read_line
from arachne.stages.runs import RunOptions, with_runs
from arachne.stages.segment import Region

# Languages whose letters the second reader has not learned.
_UNLEARNED = frozenset(
    {"ara", "ben", "fas", "heb", "hin", "kan", "kat", "khm", "lao", "mal", "mya", "tam", "tel", "tha"}
)


@dataclass(frozen=True)
class TwiceOptions:
    """`known` is the confidence from which a word needs no second look; shares are of characters and of chunks."""

    known: float = 0.9
    weak_share: float = 0.02
    missed_share: float = 0.02
    lone: LoneOptions = field(default_factory=LoneOptions)
    runs: RunOptions = field(default_factory=RunOptions)


def read_twice(over: Overview, options: ReadOptions, second: SecondReader | None, how: TwiceOptions) -> Reading:
    """The words of a picture that was looked over, where weak or missed ones are looked at by the second reader.

    Without an answer from it the first reading stands, degraded.

    Raises:
        ReadFailed: the first reader can't be started or fails on the picture.
    """
    if second is None:
        return with_lone(read(over, options), over, _tesseract_tells(options), reader=READER, options=how.lone)
    unlearned = not _UNLEARNED.isdisjoint(options.languages)
    # What the second reader looks at anyway, the first need not try again.
    first = read(over, options if unlearned else replace(options, max_retries=0, max_missed=0))
    if time.monotonic() > options.deadline:
        return first
    try:
        return _looked_at(first, over, second, how, unlearned=unlearned)
    except SecondReaderLost as error:
        return replace(read(over, options), degraded=f"second_reader: {error}")


def _looked_at(first: Reading, over: Overview, second: SecondReader, how: TwiceOptions, *, unlearned: bool) -> Reading:
    if unlearned and _has_foreign_letters(first.words):
        return with_runs(first, over, second, how.runs)
    reading = first
    if wants_second_look(first, over.regions, how):
        known = [word.box for word in first.words if word.confidence >= how.known]
        reading = merge(first, second(over.gray, known), over.gray, over.regions, MergeOptions())

    def tell(strip: Strip) -> list[Told | None]:
        return told_by_line(next(iter(second(strip[0], ())), None), strip[1])

    return with_lone(reading, over, tell, reader=SECOND_READER, options=how.lone)


def _tesseract_tells(options: ReadOptions) -> Teller:
    def tell(strip: Strip) -> list[Told | None]:
        return told_by_words(read_line(strip[0], options), strip[1])

    return tell


def wants_second_look(reading: Reading, regions: Sequence[Region], how: TwiceOptions) -> bool:
    """Whether too many characters are unsure, or too much of what looks like words was not read."""
    chunks = [(region, chunk) for region in regions for chunk in region.chunks]
    if not chunks:
        return False
    boxes = [word.box for word in reading.words]
    missed = sum(not is_covered(chunk, boxes) for region, chunk in chunks if _may_be_text(region, chunk))
    if missed > how.missed_share * len(chunks):
        return True
    characters = sum(len(word.text) for word in reading.words)
    weak = sum(len(word.text) for word in reading.words if word.confidence < how.known)
    return weak > how.weak_share * characters


def _may_be_text(region: Region, chunk: Box) -> bool:
    return chunk.width > 1.5 * chunk.height and chunk.height <= 2.5 * region.text_height_px


def _has_foreign_letters(words: Sequence[ReadWord]) -> bool:
    return any(letter.isalpha() and 0x0590 <= ord(letter) < 0x1100 for word in words for letter in word.text)
