"""Glyphs that stand alone: found, put side by side, and read as one line by either reader."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from arachne.stages import rapid
from arachne.stages.arrays import Box, Rgb
from arachne.stages.engine import EngineWord
from arachne.stages.enhance import EnhanceOptions, enhance
from arachne.stages.lone import LoneOptions, Strip, Told, find_lone, told_by_words, with_lone
from arachne.stages.rapid import SecondReader
from arachne.stages.read import Overview, Reading, ReadOptions, ReadWord, look_over
from arachne.stages.segment import Region, SegmentOptions, segment
from arachne.stages.twice import TwiceOptions, read_twice

NAMES = ("John Smith", "Jane Doe", "Bob Johnson", "Alice Brown")


@pytest.fixture
def options(tessdata_dir: Path) -> ReadOptions:
    return ReadOptions(tessdata_dir, ("eng",), time.monotonic() + 60)


def read(rgb: Rgb, options: ReadOptions, second: SecondReader | None) -> list[str]:
    gray = enhance(rgb, 16, EnhanceOptions()).gray
    over = look_over(gray, segment(gray, SegmentOptions()).regions, options)
    return [word.text for word in read_twice(over, options, second, TwiceOptions()).words]


def people(draw) -> Rgb:
    """Four rows with a lone digit in the last column."""
    names = [(40, 30 + 50 * row, name) for row, name in enumerate(NAMES)]
    return np.ascontiguousarray(draw([*names, *((400, 30 + 50 * at, digit) for at, digit in enumerate("5374"))]))


def test_digits_of_a_column_are_read(draw, options: ReadOptions) -> None:
    """By the second reader, and by the first alone without another look at anything else."""
    expected = [part for name, digit in zip(NAMES, "5374", strict=True) for part in (*name.split(), digit)]
    assert read(people(draw), options, rapid.look) == expected
    assert read(people(draw), replace(options, max_retries=0, max_missed=0), None) == expected


def test_braces_on_lines_of_their_own_are_read(draw, options: ReadOptions) -> None:
    picture = draw([(30, 20, "{"), (60, 60, "name and value"), (30, 100, "}")])
    assert read(picture, options, rapid.look) == ["{", "name", "and", "value", "}"]


def test_unsure_marks_that_nobody_confirms_go(draw) -> None:
    """Where the second reader sees nothing; the first reader's silence is no proof."""
    region = Region("text", Box(0, 0, 300, 40), 20, 1, (Box(10, 10, 12, 20), Box(100, 10, 80, 20)))
    words = (
        ReadWord("V", Box(10, 10, 12, 20), 0.6, "tesseract", 0, 0),
        ReadWord("word", Box(100, 10, 80, 20), 0.95, "tesseract", 0, 0),
    )
    reading, gray = Reading(words, 0.9, None), np.full((40, 300), 255, np.uint8)
    over = Overview(gray, gray, [region], ())

    def silent(strip: Strip) -> list[Told | None]:
        return [None for _ in strip[1]]

    def sure(strip: Strip) -> list[Told | None]:
        return [Told("7", 0.99) for _ in strip[1]]

    def left(tell, reader: str) -> list[str]:
        found = with_lone(reading, over, tell, reader=reader, options=LoneOptions())
        return [word.text for word in found.words]

    assert left(silent, "rapidocr") == ["word"]
    assert left(silent, "tesseract") == ["V", "word"]
    assert left(sure, "rapidocr") == ["7", "word"]


def test_known_words_and_wide_or_high_ink_are_not_lone() -> None:
    chunks = (Box(0, 0, 12, 20), Box(50, 0, 90, 20), Box(200, 0, 14, 60), Box(300, 0, 12, 20))
    region = Region("text", Box(0, 0, 400, 60), 20, 1, chunks)
    known = ReadWord("4", Box(0, 0, 12, 20), 0.95, "tesseract", 0, 0)
    assert [lone.box for lone in find_lone([known], [region], LoneOptions())] == [chunks[3]]


def test_tesseract_tells_only_as_many_as_there_are() -> None:
    """Digits and capitals; small letters are what it makes of icons."""
    stripes = ((0.0, 10.0), (24.0, 34.0), (48.0, 58.0))
    word = EngineWord("5e#", Box(0, 0, 58, 20), 0.95, 0)
    assert told_by_words([word], stripes) == [Told("5", 0.95), None, Told("#", 0.95)]
    assert told_by_words([replace(word, text="53")], stripes) == [None, None, None]
