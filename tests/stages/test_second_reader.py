"""The second reader, and the one reading made of what two readers saw."""

import os
import subprocess
import sys
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


def merged(words: Sequence[ReadWord], *lines: SeenLine) -> list[tuple[str, str]]:
    reading = Reading(tuple(words), 0.5, None)
    return texts(merge(reading, lines, INKED, PAGE, MergeOptions()))


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
    """Thai reads as Latin to the second reader."""
    assert merged([word("ไทย", 0, 0.6)], seen("1ne")) == [("ไทย", "tesseract")]


def test_lines_of_a_table_are_no_ink_between_words() -> None:
    """With a rule through the line's box, white is still seen where only the ink tells it."""
    gray = np.full((40, 200), 255, np.uint8)
    for x in (0, 14, 28, 63, 77):
        gray[10:26, x + 2 : x + 11] = 0
    ruled = gray.copy()
    ruled[30:32] = 0
    line = SeenLine(
        Box(0, 8, 90, 26), tuple(SeenCharacter("x", x + 7, 0.98, spaced=False) for x in (0, 14, 28, 63, 77))
    )
    for picture in (gray, ruled):
        reading = merge(Reading((), 0.5, None), [line], picture, PAGE, MergeOptions())
        assert [one.text for one in reading.words] == ["xxx", "xx"]


def test_words_that_both_read_part_where_the_second_saw_white() -> None:
    """But nothing parts from its brackets."""
    for first, second, parted in (("Row", "1", ["Row", "1"]), ("main(", ")", ["main()"])):
        line, gray = spaced(first, second)
        reading = merge(Reading((word(first + second, 0, 0.95),), 0.95, None), [line], gray, PAGE, MergeOptions())
        assert [one.text for one in reading.words] == parted


def test_faint_letters_are_ink_too() -> None:
    """Their stripes of the picture are not white, though others' ink is much darker."""
    faint = np.where(INKED == 0, 160, INKED).astype(np.uint8)
    line = replace(seen("echo"), box=Box(0, 8, 56, 24))
    reading = merge(Reading((), 0.5, None), [line], faint, PAGE, MergeOptions())
    assert [one.text for one in reading.words] == ["echo"]


def test_a_letter_told_early_parts_no_word() -> None:
    """The second reader saw white before the letter; in the ink it stands behind the place it told."""
    gray = np.full((60, 420), 255, np.uint8)
    for x in (0, 40, 54, 68):
        gray[10:40, x + 2 : x + 11] = 0
    places = zip((7, 9, 61, 75), "aecb", strict=True)
    characters = [SeenCharacter(text, x, 0.98, spaced=text == "e") for x, text in places]
    reading = merge(
        Reading((), 0.5, None), [SeenLine(Box(0, 8, 82, 34), tuple(characters))], gray, PAGE, MergeOptions()
    )
    assert [one.text for one in reading.words] == ["a", "ecb"]
    assert reading.words[1].box.x == pytest.approx(42, abs=3)


def spaced(first: str, second: str) -> tuple[SeenLine, Gray]:
    """Two texts between which the second reader saw white, and there are 8 px of it in the ink."""
    line = seen(first + second)
    marked = [replace(one, spaced=at == len(first)) for at, one in enumerate(line.characters)]
    gray = INKED.copy()
    gray[:, 14 * len(first) - 5 : 14 * len(first) + 3] = 255
    return replace(line, characters=tuple(marked)), gray


def test_a_picture_no_higher_than_a_line_is_one(draw) -> None:
    """Glyphs far apart are read together, where looking for lines would find four or none."""
    gray = np.ascontiguousarray(draw([(10, 8, "5"), (60, 8, "3"), (110, 8, "7"), (160, 8, "4")], (200, 40))[..., 0])
    (line,) = rapid.look(gray, ())
    assert "".join(one.text for one in line.characters) == "5374"
    assert [one.x for one in line.characters] == pytest.approx([16, 66, 116, 166], abs=8)


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


@pytest.mark.processes
def test_its_models_tell_their_maker_nothing(tmp_path: Path) -> None:
    """Who telemetry is on for has an id of its own written at home, to be told with every start."""
    looks = "import numpy; from arachne.stages import rapid; rapid.look(numpy.zeros((30, 90), numpy.uint8), ())"
    home = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", looks], env=home, cwd=tmp_path, check=True, timeout=120)
    assert list(tmp_path.iterdir()) == []
