"""The second reader, and the one reading made of what two readers saw."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from arachne.pipeline import ReadRequest, read_image
from arachne.schemas.options import Options
from arachne.stages import rapid
from arachne.stages.align import align
from arachne.stages.arrays import Box, Gray
from arachne.stages.enhance import EnhanceOptions, enhance
from arachne.stages.merge import MergeOptions, merge
from arachne.stages.rapid import SecondReaderLost, SeenCharacter, SeenLine
from arachne.stages.read import Reading, ReadOptions, ReadWord, look_over
from arachne.stages.segment import Region, SegmentOptions, segment
from arachne.stages.twice import TwiceOptions, read_twice

INKED = np.tile(np.array([0] * 11 + [255] * 3, np.uint8), (60, 30))  # a letter of 11 px every 14 px
PAGE = (Region("text", Box(0, 0, 400, 60), 20, 1),)


def word(text: str, x: float, confidence: float) -> ReadWord:
    return ReadWord(text, Box(x, 10, 14 * len(text), 20), confidence, "tesseract", 0, 0)


def seen(text: str, confidence: float = 0.98, x: float = 0) -> SeenLine:
    """A line of 14 px wide characters; spaces become marks."""
    characters = [
        SeenCharacter(letter, x + 14 * at + 7, confidence, text[at - 1 : at] == " ")
        for at, letter in enumerate(text)
        if letter != " "
    ]
    return SeenLine(Box(x, 8, 14 * len(text), 24), tuple(characters))


def texts(reading: Reading) -> list[tuple[str, str]]:
    return [(one.text, one.reader) for one in reading.words]


def merged(words: Sequence[ReadWord], *lines: SeenLine, missed: bool = True) -> list[tuple[str, str]]:
    reading = Reading(tuple(words), 0.5, None)
    return texts(merge(reading, lines, INKED, PAGE, MergeOptions(missed=missed)))


def test_drawn_text_is_seen(draw) -> None:
    """Both lines with all letters in order; what is known is left out."""
    gray = draw([(30, 30, "Send the report"), (30, 90, "before Friday")])[..., 0]
    lines = rapid.look(gray, ())
    assert ["".join(one.text for one in line.characters) for line in lines] == ["Sendthereport", "beforeFriday"]
    assert all(line.confidence > 0.9 for line in lines)
    assert lines[0].box.centre == pytest.approx((105, 45), abs=20)
    assert len(rapid.look(gray, [lines[0].box])) == 1


def test_same_text_keeps_the_words() -> None:
    assert merged([word("Send", 0, 0.6), word("it", 70, 0.6)], seen("Send it")) == [
        ("Send", "tesseract"),
        ("it", "tesseract"),
    ]


def test_the_surer_reader_wins() -> None:
    """Its letters stand, parted where the first reader's words part."""
    doubtful = [word("Sond", 0, 0.6), word("it", 70, 0.6)]
    assert merged(doubtful, seen("Send it")) == [("Send", "rapidocr"), ("it", "rapidocr")]
    assert merged(doubtful, seen("Send it", confidence=0.5)) == [("Sond", "tesseract"), ("it", "tesseract")]


def test_missed_text_is_added_and_unseen_marks_go() -> None:
    assert merged([word("©)", 300, 0.6)], seen("Save")) == [("Save", "rapidocr")]
    assert merged([word("Sure", 300, 0.95)]) == [("Sure", "tesseract")]


def test_letters_it_has_not_learned_stay() -> None:
    """Thai reads as Latin to the second reader; with Thai on the page it adds nothing of its own."""
    assert merged([word("ไทย", 0, 0.6)], seen("1ne"), missed=False) == [("ไทย", "tesseract")]
    assert merged([word("ไทย", 200, 0.6)], seen("lmu"), missed=False) == [("ไทย", "tesseract")]


@pytest.mark.parametrize(
    ("told", "sight", "expected"),
    [
        ("TRUECOLOR", "TRUECOL0R", "TRUECOLOR"),
        ('"""Iterate', '""Iterate', '"""Iterate'),
        ("Microsoit", "Microsoft", "Microsoft"),
    ],
)
def test_letters_that_look_alike_are_the_first_readers(told: str, sight: str, expected: str) -> None:
    aligned = align([word(told, 0, 0.8)], seen(sight).characters)
    assert "".join(one.character.text for one in aligned) == expected


def lost(_gray: Gray, _known: Sequence[Box]) -> tuple[SeenLine, ...]:
    raise SecondReaderLost("it is gone")


@pytest.mark.usefixtures("either_engine")
def test_a_lost_second_reader_degrades_only(draw, tessdata_dir: Path) -> None:
    gray = enhance(draw([(30, 30, "Send the report")]), 12, EnhanceOptions()).gray
    regions = segment(gray, SegmentOptions()).regions
    options = ReadOptions(tessdata_dir, ("eng",), time.monotonic() + 60)
    over = look_over(gray, regions, options)
    reading = read_twice(over, options, lost, TwiceOptions(known=1.1))
    assert [text for text, _ in texts(reading)] == ["Send", "the", "report"]
    assert reading.degraded == "second_reader: it is gone"
    assert read_twice(over, options, lost, TwiceOptions()).degraded is None  # it is not asked


def test_fast_never_asks_it(tessdata_dir: Path) -> None:
    """On a picture that makes `standard` ask."""
    picture = Path(__file__).parent.parent / "images" / "editor_dark.png"
    request = ReadRequest(Options(detail_level="standard"), ("eng",), tessdata_dir, 10**7, 1, 60)
    assert read_image(picture.read_bytes(), request, second=lost).degraded
    fast = replace(request, options=Options(detail_level="fast"))
    assert not read_image(picture.read_bytes(), fast, second=lost).degraded
