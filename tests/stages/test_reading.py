"""Segmenting, reading and structuring, on text drawn at known places."""

import math
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from arachne.errors import ReadFailed
from arachne.stages import tesseract
from arachne.stages.arrays import Box, Gray, Rgb
from arachne.stages.engine import EngineWord, spelled
from arachne.stages.enhance import EnhanceOptions, enhance
from arachne.stages.markup import clean
from arachne.stages.read import Reading, ReadOptions, ReadWord, look_over, read
from arachne.stages.segment import SegmentOptions, segment
from arachne.stages.structure import Structured, StructureOptions, structure
from arachne.stages.upright import UprightOptions, level, upright


@pytest.fixture
def options(tessdata_dir: Path, either_engine: str) -> ReadOptions:  # read with each engine there is
    return ReadOptions(tessdata_dir, ("eng",), time.monotonic() + 60)


def words_of(rgb: Rgb, options: ReadOptions) -> Reading:
    enhanced = enhance(rgb, 12, EnhanceOptions())
    return looked_at(enhanced.gray, options)


def looked_at(gray: Gray, options: ReadOptions) -> Reading:
    return read(look_over(gray, segment(gray, SegmentOptions()).regions, options), options)


def structured(rgb: Rgb, options: ReadOptions, **kinds: object) -> Structured:
    turning = UprightOptions(options.tessdata_dir, options.languages, options.deadline)
    turned = upright(level(rgb, None, 12, turning), turning)
    enhanced = enhance(turned.rgb, 12, EnhanceOptions())
    reading = looked_at(enhanced.gray, options)
    transform = enhanced.transform @ turned.transform
    return structure(reading.words, enhanced.gray, rgb, transform, StructureOptions(**kinds))


def test_nothing_in_nothing_out(options: ReadOptions) -> None:
    blank = np.full((80, 120), 255, np.uint8)
    assert segment(blank, SegmentOptions()).regions == ()
    assert read(look_over(blank, (), options), options) == Reading((), 0.0, None)


def test_columns_are_read_one_after_the_other(draw) -> None:
    left = [(20, 20 + 32 * row, "many words that fill the left side") for row in range(5)]
    right = [(520, 20 + 32 * row, "other words that fill the right one") for row in range(5)]
    regions = segment(enhance(draw(left + right, (960, 200)), 12, EnhanceOptions()).gray, SegmentOptions()).regions
    assert [region.rows for region in regions] == [5, 5]
    assert regions[0].box.right < regions[1].box.x


def test_a_log_and_a_menu_are_read_row_by_row(draw) -> None:
    """However far apart their columns are, unlike the text beside the menu."""
    log = [(20, 20 + 32 * at, text) for at, text in enumerate(("INFO", "ERROR", "INFO", "WARNING", "INFO"))]
    log += [(160, 20 + 32 * at, "the server told its state" + " again" * (at % 3)) for at in range(5)]
    log += [(620, 20 + 32 * at, "application_server.py:12") for at in range(5)]
    found = segment(enhance(draw(log, (960, 200)), 12, EnhanceOptions()).gray, SegmentOptions()).regions
    assert {(region.box.x < 60, region.box.right > 800) for region in found} == {(True, True)}
    menu = [(480, 26 + 34 * at, name) for at, name in enumerate(("Open", "Save as", "Quit"))]
    menu += [(700, 26 + 34 * at, key) for at, key in enumerate(("Ctrl+O", "Ctrl+S", "Ctrl+Q"))]
    beside = [(20, 20 + 26 * at, "a terminal's text") for at in range(5)]
    found = segment(enhance(draw(menu + beside, (960, 200)), 12, EnhanceOptions()).gray, SegmentOptions()).regions
    assert [(region.box.x < 240, region.box.right > 700) for region in found] == [(True, False)] + [(False, True)] * (
        len(found) - 1
    )


def test_braces_are_no_column_beside_what_is_indented(draw) -> None:
    code = [(20, 20, "{"), (120, 52, "first: one"), (120, 84, "second: two"), (20, 116, "}")]
    regions = segment(enhance(draw(code), 12, EnhanceOptions()).gray, SegmentOptions()).regions
    assert [region.box.y for region in regions] == sorted(region.box.y for region in regions)


def test_words_lines_and_confidence(draw, options: ReadOptions) -> None:
    reading = words_of(draw([(30, 30, "Send the report"), (30, 70, "before Friday noon")]), options)
    assert [word.text for word in reading.words] == ["Send", "the", "report", "before", "Friday", "noon"]
    assert [(word.region, word.line) for word in reading.words] == [(0, 0)] * 3 + [(1, 0)] * 3
    assert reading.confidence > 0.9
    assert reading.degraded is None


def test_missing_language_data_fails_the_stage(options: ReadOptions, tmp_path: Path) -> None:
    broken = ReadOptions(tmp_path, ("eng",), options.deadline)
    region = segment(np.pad(np.zeros((20, 20), np.uint8), 9, constant_values=255), SegmentOptions()).regions
    with pytest.raises(ReadFailed) as caught:
        look_over(np.zeros((20, 20), np.uint8), region or ((),), broken)
    assert caught.value.stage == "read"


class CountingEngine:
    """An engine that finds nothing and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def read(self, _gray: object, _mode: int, _limit_s: float) -> tuple[EngineWord, ...]:
        """Nothing, once more."""
        self.asked += 1
        return ()


@pytest.mark.parametrize(("left_s", "again", "degraded"), [(60, True, None), (-1, False, "soft_time_limit")])
def test_after_the_deadline_nothing_is_read_again(
    draw, options: ReadOptions, left_s: float, degraded: str | None, *, again: bool
) -> None:
    """Without a deadline the region and each of its words are tried again."""
    engine = CountingEngine()
    late = ReadOptions(options.tessdata_dir, options.languages, time.monotonic() + left_s)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tesseract, "engine", lambda *_: engine)
        assert words_of(draw([(30, 30, "Send the report")]), late).degraded == degraded
    assert (engine.asked > 1) == again


PLACES = [(60, 40, "Alpha"), (330, 40, "Bravo"), (60, 180, "Charlie"), (330, 180, "Delta")]


@pytest.mark.parametrize("degrees", [0, 90, 180, 270, 6, -9])
def test_boxes_are_where_the_words_are_displayed(options: ReadOptions, degrees: float) -> None:
    """Words are drawn and the whole picture turned; each box must cover where its word went, and little else."""
    px, width, height = 30, 560, 260
    canvas = Image.new("RGB", (width, height), "white")
    pen, font = ImageDraw.Draw(canvas), ImageFont.load_default(px)
    filler = [(60, 85, "words between them to tell the lines"), (60, 130, "which way is up and what is level")]
    for x, y, text in PLACES + filler:
        pen.text((x, y), text, fill="black", font=font)
    turned = canvas.rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    found = structured(np.asarray(turned), options)
    words = {word.text: word for block in found.blocks for line in block.lines for word in line.words}
    for x, y, text in PLACES:
        left, top, right, bottom = pen.textbbox((x, y), text, font=font)
        middle = turned_point((left + right) / 2, (top + bottom) / 2, degrees, (width, height), turned.size)
        polygon = np.array(words[text].polygon)
        assert polygon.mean(axis=0) == pytest.approx(middle, abs=3)
        sides = [math.dist(polygon[i], polygon[(i + 1) % 4]) for i in range(4)]
        assert sides == pytest.approx([right - left, bottom - top] * 2, abs=6)
        x0, y0, wide, high = words[text].bbox
        assert (x0 + wide / 2, y0 + high / 2) == pytest.approx(middle, abs=3)


def turned_point(
    x: float, y: float, degrees: float, before: tuple[int, int], after: tuple[int, int]
) -> tuple[float, float]:
    """Where a point goes when a picture is turned counterclockwise about its middle."""
    radians = math.radians(degrees)
    dx, dy = x - before[0] / 2, y - before[1] / 2
    return (
        after[0] / 2 + dx * math.cos(radians) + dy * math.sin(radians),
        after[1] / 2 - dx * math.sin(radians) + dy * math.cos(radians),
    )


def test_headings_lists_and_paragraphs(options: ReadOptions) -> None:
    canvas = Image.new("RGB", (700, 420), "white")
    pen = ImageDraw.Draw(canvas)
    pen.text((30, 20), "Packing list", fill="black", font=ImageFont.load_default(40))
    small = ImageFont.load_default(22)
    for row, text in enumerate(["Everything that goes into the boat today.", "Check it twice before you leave."]):
        pen.text((30, 100 + 30 * row), text, fill="black", font=small)
    for row, text in enumerate(["1. Two oars and a bucket", "2. Drinking water", "3. Life jackets"]):
        pen.text((30, 220 + 30 * row), text, fill="black", font=small)
    found = structured(np.asarray(canvas), options)
    assert [block.kind for block in found.blocks] == ["heading", "paragraph", "list"]
    assert found.markdown.startswith("## Packing list\n\nEverything that")
    assert "2. Drinking water\n3. Life jackets" in found.markdown


def test_a_ruled_table_with_a_merged_cell(options: ReadOptions) -> None:
    """Three rows of three, the last row's first two cells drawn as one."""
    canvas = Image.new("RGB", (640, 240), "white")
    pen, font = ImageDraw.Draw(canvas), ImageFont.load_default(24)
    for y in (20, 80, 140, 200):
        pen.line((20, y, 620, y), fill="black", width=2)
    for x in (20, 220, 420, 620):
        pen.line((x, 20, x, 140 if x == 220 else 200), fill="black", width=2)
    texts = [("Name", "Count", "Price"), ("Apples", "twelve", "3.40"), ("Total", "", "40.80")]
    for row, cells in enumerate(texts):
        for column, text in enumerate(cells):
            pen.text((36 + 200 * column, 34 + 60 * row), text, fill="black", font=font)
    table = structured(np.asarray(canvas), options).tables[0]
    assert (table.rows, table.columns) == (3, 3)
    assert [(cell.row, cell.column, cell.column_span, cell.text) for cell in table.cells] == [
        (0, 0, 1, "Name"),
        (0, 1, 1, "Count"),
        (0, 2, 1, "Price"),
        (1, 0, 1, "Apples"),
        (1, 1, 1, "twelve"),
        (1, 2, 1, "3.40"),
        (2, 0, 2, "Total"),
        (2, 2, 1, "40.80"),
    ]
    assert table.cells[4].bbox == pytest.approx([220, 80, 200, 60], abs=5)


def test_aligned_columns_are_a_table(draw, options: ReadOptions) -> None:
    rows = [("City", "Country", "People"), ("Bergen", "Norway", "291000"), ("Porto", "Portugal", "231000")]
    items = [
        (30 + 210 * column, 30 + 44 * row, text) for row, cells in enumerate(rows) for column, text in enumerate(cells)
    ]
    found = structured(draw(items), options)
    assert found.markdown.splitlines() == [
        "| City | Country | People |",
        "| --- | --- | --- |",
        "| Bergen | Norway | 291000 |",
        "| Porto | Portugal | 231000 |",
    ]
    assert found.text.splitlines()[1] == "Bergen\tNorway\t291000"


def test_codes_are_decoded_where_they_are(options: ReadOptions) -> None:
    code = cv2.resize(cv2.QRCodeEncoder.create().encode("https://example.org/pay?id=42"), (200, 200), interpolation=0)
    picture = np.full((300, 400, 3), 255, np.uint8)
    picture[40:240, 120:320] = code[..., None]
    found = structured(picture, options, profile="slip")
    assert [(one.kind, one.data) for one in found.codes] == [("qr", "https://example.org/pay?id=42")]
    assert found.codes[0].bbox == pytest.approx([127, 47, 186, 186], abs=14)
    assert found.fields is not None
    assert found.fields.qr == "https://example.org/pay?id=42"


def plain_word(text: str) -> ReadWord:
    return ReadWord(text, Box(5, 5, 40, 10), 0.9, "tesseract", 0, 0)


def structure_words(words: list[ReadWord]) -> Structured:
    white = np.full((60, 90, 3), 255, np.uint8)
    return structure(words, white[..., 0], white, np.eye(3), StructureOptions())


def test_text_that_databases_refuse_is_cleaned() -> None:
    found = structure_words([plain_word("a\x00b\ud800c\x1bd")])
    assert found.text == "abcd"
    assert clean("tab\tand\nline \U0001f600") == "tab\tand\nline \U0001f600"


def test_words_on_top_of_each_other_are_text() -> None:
    """As a misreading may place them; no width of a letter is to be had from their distances."""
    stacked = [plain_word(text) for text in ("first", "second", "third", "fourth", "fifth")]
    assert sorted(structure_words(stacked).text.split()) == ["fifth", "first", "fourth", "second", "third"]


def test_numbers_that_are_none_are_zero() -> None:
    nan = ReadWord("word", Box(math.nan, 5, 40, 10), math.nan, "tesseract", 0, 0)
    block = structure_words([nan]).blocks[0]
    assert block.bbox[0] == 0
    assert block.confidence == 0


def test_words_without_text_fail_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arachne.stages.structure.to_text", lambda _parts, **_how: " ")
    with pytest.raises(ReadFailed, match="1 words were read"):
        structure_words([plain_word("lost")])


def test_english_comes_after_other_languages() -> None:
    """Tesseract takes the first language's word for it where two are as sure."""
    assert spelled(("eng", "por", "tha")) == "por+tha+eng"
    assert spelled(("eng",)) == "eng"
