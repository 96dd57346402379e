"""Latin runs on a Thai page: cut out for the second reader, whose reading stands where it is surer."""

from collections.abc import Sequence

import numpy as np

from arachne.stages.arrays import Box, Gray
from arachne.stages.rapid import LINE_PX, SeenCharacter, SeenLine
from arachne.stages.read import Overview, Reading, ReadWord
from arachne.stages.rows import into_rows
from arachne.stages.runs import RunOptions, with_runs
from arachne.stages.segment import Region

PAGE = (Region("text", Box(0, 0, 600, 60), 20, 1),)


def word(text: str, x: float, width: float, confidence: float = 0.95) -> ReadWord:
    return ReadWord(text, Box(x, 20, width, 20), confidence, "tesseract", 0, 0)


def looked_at(words: Sequence[ReadWord], text: str, confidence: float = 0.99) -> tuple[list[str], list[Gray]]:
    """The words after a second reader sees `text` in whatever it is shown, and what it was shown."""
    shown = list[Gray]()

    def second(gray: Gray, known: Sequence[Box]) -> tuple[SeenLine, ...]:
        assert not known
        shown.append(gray)
        step = gray.shape[1] / len(text)
        characters = [SeenCharacter(one, step * (at + 0.5), confidence, spaced=False) for at, one in enumerate(text)]
        return (SeenLine(Box(0, 0, gray.shape[1], gray.shape[0]), tuple(characters)),)

    gray = np.full((60, 600), 255, np.uint8)
    gray[20:40, ::2] = 0
    found = with_runs(Reading(tuple(words), 0.9, None), Overview(gray, gray, PAGE, ()), second, RunOptions())
    return [one.text for one in found.words], shown


def test_an_unsure_run_is_cut_out_and_read_anew() -> None:
    words = [word("ธนาคาร", 20, 80), word("XXX-X-X1234-x", 120, 200, 0.78)]
    texts, (shown,) = looked_at(words, "xxx-x-x1234-x")
    assert texts == ["ธนาคาร", "xxx-x-x1234-x"]
    assert shown.shape[0] <= LINE_PX
    assert abs(shown.shape[1] - 208) <= 2


def test_foreign_digits_beside_latin_are_part_of_the_run() -> None:
    words = [word("สมมติ", 20, 80), word("๐๐", 120, 40, 0.6), word("->9876-%", 165, 160, 0.7)]
    assert looked_at(words, "xxx-x-x9876-x")[0] == ["สมมติ", "xxx-x-x9876-x"]


def test_what_is_sure_or_better_stays() -> None:
    """Sure runs are not shown at all, nor is Thai; a second reader that is not sure changes nothing."""
    sure = [word("จำนวน", 20, 80), word("1,250.00", 120, 120, 0.96), word("บาท", 260, 40, 0.5)]
    assert looked_at(sure, "x") == (["จำนวน", "1,250.00", "บาท"], [])
    unsure = [word("จำนวน", 20, 80), word("1,250.00", 120, 120, 0.7)]
    assert looked_at(unsure, "1.250.0O", confidence=0.6)[0] == ["จำนวน", "1,250.00"]


def test_abbreviations_and_colons_keep_to_their_thai() -> None:
    """A full stop has white around it that is no space; between words there is more."""
    pieces = [("มี", 20, 18), (".", 42, 3), ("ค", 56, 12), (".", 72, 3), ("อ้างอิง", 95, 80), (":", 186, 3)]
    (row,) = into_rows([word(text, x, width) for text, x, width in pieces])
    assert row.text == "มี.ค. อ้างอิง:"
