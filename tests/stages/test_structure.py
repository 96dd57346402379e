"""Structuring words at known places: no reader is asked, so the answers depend on geometry alone."""

import numpy as np
import pytest
import zxingcpp
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from arachne.stages.arrays import Box, Rgb
from arachne.stages.codes import find_codes, told
from arachne.stages.markup import clean
from arachne.stages.read import ReadWord
from arachne.stages.structure import Structured, StructureOptions, structure
from arachne.stages.surfaces import Surfaces

WIDTH, HEIGHT = 700, 500


def line(y: int, *words: tuple[int, str], region: int = 0, px: int = 16, wide: int = 10) -> list[ReadWord]:
    """Words at their x, each character `wide`."""
    return [ReadWord(text, Box(x, y, wide * len(text), px), 0.9, "tesseract", region, y) for x, text in words]


def prose(y: int, text: str, mark_px: int | None = None) -> list[ReadWord]:
    """Words of a sentence in proportional type; with `mark_px` the first is a mark of that size."""
    words, x = list[ReadWord](), 20
    for word in text.split():
        width = sum(4 if c in "ilt[]" else 13 if c in "mwTW" else 9 for c in word)
        words.append(ReadWord(word, Box(x, y, width, 16), 0.9, "tesseract", 0, y))
        x += width + 6
    if mark_px:
        words[0] = ReadWord(words[0].text, Box(12, y + 5, mark_px, mark_px), 0.5, "tesseract", 0, y)
    return words


def structured(words: list[ReadWord], picture: Rgb | None = None, **options: str) -> Structured:
    gray = np.full((HEIGHT, WIDTH), 255, np.uint8)
    for word in words:
        x, y, width, height = map(int, word.box)
        gray[y : y + height : 3, x : x + width : 3] = 0
    displayed = np.full((HEIGHT, WIDTH, 3), 255, np.uint8) if picture is None else picture
    return structure(words, gray, displayed, np.eye(3), StructureOptions(**options))


def test_code_keeps_its_columns_and_blank_lines() -> None:
    source = ["def total(items):", "    return sum(items)", "", "", "class Basket:", "    colour = 'red'  # or blue"]
    words = [
        word
        for index, text in enumerate(source)
        for word in line(20 + 24 * index, *((20 + 10 * at, part) for at, part in starts(text)))
    ]
    found = structured(words)
    assert [block.kind for block in found.blocks] == ["code"]
    assert found.text == "\n".join(source)
    assert found.markdown == "\n".join(["```", *source, "```"])


def starts(text: str) -> list[tuple[int, str]]:
    """Each word's column."""
    at, found = 0, []
    for word in text.split():
        at = text.index(word, at)
        found.append((at, word))
        at += len(word)
    return found


def test_items_of_lists() -> None:
    """Bullets that were read as another letter, each time the same, are bullets again."""
    lines = ("e bring the oars with you", "e fill both water bottles", "e lock the door behind us")
    words = [word for index, text in enumerate(lines) for word in prose(20 + 26 * index, text, mark_px=7)]
    assert structured(words).markdown.splitlines()[1] == "- fill both water bottles"
    boxes = structured([*prose(20, "[ ] buy some rope today"), *prose(46, "[x] mend the old sail")])
    assert boxes.blocks[0].kind == "list"
    assert boxes.markdown.splitlines() == ["- [ ] buy some rope today", "- [x] mend the old sail"]


def test_documents_have_their_paragraphs_joined() -> None:
    words = [
        *prose(20, "The boats left harbour in winter al-"),
        *prose(42, "though there was ice"),
        *prose(64, "on it."),
    ]
    assert structured(words).text.count("\n") == 2
    joined = structured(words, profile="document").text
    assert joined == "The boats left harbour in winter al-\nthough there was ice on it."


def test_one_short_line_in_a_box_is_a_control() -> None:
    canvas = Image.new("RGB", (WIDTH, HEIGHT), "white")
    pen = ImageDraw.Draw(canvas)
    pen.rectangle((200, 100, 330, 140), fill="#2060c0")
    pen.rectangle((200, 200, 420, 240), outline="black")
    words = [
        *line(112, (235, "Submit")),
        *line(212, (215, "Your"), (265, "name"), region=1),
        *line(300, (215, "Plain"), region=2),
    ]
    found = structured(words, np.asarray(canvas))
    assert [(block.kind, block.lines[0].text) for block in found.blocks] == [
        ("control", "Submit"),
        ("control", "Your name"),
        ("paragraph", "Plain"),
    ]
    assert found.markdown == "[Submit]\n\n[Your name]\n\nPlain"


def test_pictures_are_figures_and_text_is_none() -> None:
    noise = np.random.default_rng(5).integers(0, 255, (160, 240, 3), dtype=np.uint8)
    picture = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    picture[200:360, 300:540] = noise
    found = structured(prose(60, "Words above the picture here"), picture)
    assert [block.kind for block in found.blocks] == ["paragraph", "figure"]
    assert found.blocks[1].bbox == pytest.approx([300, 200, 240, 160], abs=10)
    assert [block.id for block in found.blocks] == ["b0", "b1"]
    for shape in ((50, 50), (1, 1), (3, 900), (900, 3)):
        assert Surfaces(np.full((*shape, 3), 9, np.uint8)).pictures([], 10) == []


def test_what_is_read_in_a_code_is_no_text() -> None:
    code = np.asarray(zxingcpp.create_barcode("hello there", zxingcpp.BarcodeFormat.QRCode).to_image(scale=5))
    picture = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    picture[200 : 200 + len(code), 100 : 100 + len(code)] = code[..., None]
    found = structured([*prose(60, "Scan the code below"), *line(240, (140, "aBf"), region=1)], picture)
    assert found.text == "Scan the code below"
    assert [code.data for code in found.codes] == ["hello there"]


@pytest.mark.parametrize(
    ("kind", "form", "content"),
    [
        ("ean_13", zxingcpp.BarcodeFormat.EAN13, "5901234123457"),
        ("upc_a", zxingcpp.BarcodeFormat.UPCA, "036000291452"),
        ("upc_e", zxingcpp.BarcodeFormat.UPCE, "04252614"),
        ("upc_e", zxingcpp.BarcodeFormat.UPCE, "01234531"),
        ("upc_e", zxingcpp.BarcodeFormat.UPCE, "01234543"),
        ("upc_e", zxingcpp.BarcodeFormat.UPCE, "01234565"),
        ("ean_8", zxingcpp.BarcodeFormat.EAN8, "96385074"),
        ("code_128", zxingcpp.BarcodeFormat.Code128, "ABC-123"),
        ("code_39", zxingcpp.BarcodeFormat.Code39, "HELLO-39"),
        ("data_matrix", zxingcpp.BarcodeFormat.DataMatrix, "parts"),
        ("pdf_417", zxingcpp.BarcodeFormat.PDF417, "a boarding pass"),
        ("aztec", zxingcpp.BarcodeFormat.Aztec, "a ticket"),
        ("qr", zxingcpp.BarcodeFormat.QRCode, "ตัวอย่าง ção"),
    ],
)
@pytest.mark.parametrize("turns", [0, 1])
def test_kinds_of_codes(kind: str, form: zxingcpp.BarcodeFormat, content: str, turns: int) -> None:
    code = np.asarray(zxingcpp.create_barcode(content, form).to_image(scale=4, add_quiet_zones=True))
    gray = np.rot90(np.pad(code, 30, constant_values=255), turns)
    faint = (180 + gray // 8).astype(np.uint8)
    for shade in (gray, faint):
        found = find_codes(np.ascontiguousarray(np.repeat(shade[..., None], 3, axis=2)))
        assert [(one.kind, one.data) for one in found] == [(kind, content)]


@pytest.mark.parametrize(
    ("content", "text", "expected"),
    [
        (b"plain", "plain", "plain"),
        (b"nul\0 and \x1d", "", "nul\\x00 and \\x1d"),
        (b"\xff\xfe\x00", "", "fffe00"),
        ("é".encode("latin-1"), "é", "é"),
    ],
)
def test_contents_that_are_no_text(content: bytes, text: str, expected: str) -> None:
    assert told(content, text) == expected


@given(st.text(max_size=200))
def test_clean_text_can_be_stored_and_sent(text: str) -> None:
    """No NUL, no control but tab and newline, no lone surrogate; and what is clean stays so."""
    kept = clean(text)
    kept.encode()
    assert not any((ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 for c in kept)
    assert clean(kept) == kept


def test_merged_cells_are_told_in_each_of_their_places() -> None:
    canvas = np.full((HEIGHT, WIDTH), 255, np.uint8)
    for y in (20, 80, 140, 200):
        canvas[y : y + 2, 20 if y != 140 else 220 : 622] = 0
    for x in (20, 220, 420, 620):
        canvas[20 if x in {20, 620} else 80 : 202, x : x + 2] = 0
    words = [
        *line(42, (280, "Title")),
        *line(100, (240, "b1"), (440, "c1")),
        *line(130, (40, "tall")),
        *line(162, (240, "b2"), (440, "c2")),
    ]
    found = structure(words, canvas, np.repeat(canvas[..., None], 3, 2), np.eye(3), StructureOptions())
    assert [(cell.text, cell.row_span, cell.column_span) for cell in found.tables[0].cells] == [
        ("Title", 1, 3),
        ("tall", 2, 1),
        ("b1", 1, 1),
        ("c1", 1, 1),
        ("b2", 1, 1),
        ("c2", 1, 1),
    ]
    assert found.markdown.splitlines() == [
        "| Title |  |  |",
        "| --- | --- | --- |",
        "| tall | b1 | c1 |",
        "| tall | b2 | c2 |",
    ]
    assert found.text.splitlines() == ["Title", "tall\tb1\tc1", "b2\tc2"]
