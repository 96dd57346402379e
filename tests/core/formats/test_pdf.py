"""The PDF shows the picture as displayed, and an independent reader finds each word at its place."""

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pypdfium2
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms, ImageOps

from arachne.formats import RenderRequest, render
from arachne.schemas.result import Result
from tests.core.formats.results import block, corners, encoded, line, quarters, result, word

BLANK = encoded(Image.new("RGB", (400, 200), "white"), "PNG")
TILT = math.radians(7)


def to_pdf(found: Result, original: bytes, page: int | None = None) -> bytes:
    request = RenderRequest("pdf", page, "a picture.png", 50_000_000, 100)
    return render(found.model_dump_json().encode(), original, request)


@contextmanager
def opened(data: bytes) -> Iterator[pypdfium2.PdfDocument]:
    document = pypdfium2.PdfDocument(data)
    try:
        yield document
    finally:
        document.close()


def text_of(data: bytes, page: int = 0) -> str:
    with opened(data) as document:
        return str(document[page].get_textpage().get_text_range())


def shown(data: bytes, page: int = 0) -> NDArray[np.uint8]:
    """The page as a viewer paints it, a pixel a point."""
    with opened(data) as document:
        return np.asarray(document[page].render(scale=1).to_pil().convert("RGB"))


def boxes(data: bytes) -> list[tuple[str, list[float]]]:
    """Each character with its box as x0, y0, x1, y1 from the top left, as a viewer would select it."""
    with opened(data) as document:
        page = document[0]
        text, height = page.get_textpage(), page.get_height()
        found = []
        for at in range(text.count_chars()):
            x0, y0, x1, y1 = text.get_charbox(at)
            found.append((text.get_text_range(at, 1), [x0, height - y1, x1, height - y0]))
        return found


def box_of(data: bytes, wanted: str) -> list[float]:
    """The box around a word's characters."""
    found = boxes(data)
    at = "".join(character for character, _ in found).index(wanted)
    several = np.array([box for _, box in found[at : at + len(wanted)]])
    return [*several[:, :2].min(axis=0), *several[:, 2:].max(axis=0)]


def turned(x: float, y: float, width: float, height: float, angle: float) -> list[list[float]]:
    """A box turned clockwise about its top left corner, as displayed."""
    cos, sin = math.cos(angle), math.sin(angle)
    return [[x + a * cos - b * sin, y + a * sin + b * cos] for a, b in corners(0, 0, width, height)]


def test_words_are_found_in_order_and_at_their_places() -> None:
    """A pixel is a point: each word's box is the result's, as high as its line."""
    first = line(word("Grand", corners(20, 30, 50, 12)), word("total", corners(80, 28, 33.5, 14)))
    second = line(word("9.50", corners(300, 90, 44, 12)))
    data = to_pdf(result(block(first), block(second, key="b2")), BLANK)
    assert text_of(data).split() == ["Grand", "total", "9.50"]
    assert text_of(data).startswith("Grand total")
    for wanted, expected in {
        "Grand": [20, 28, 70, 42],
        "total": [80, 28, 113.5, 42],
        "9.50": [300, 90, 344, 102],
    }.items():
        assert box_of(data, wanted) == pytest.approx(expected, abs=0.6), wanted


@pytest.mark.parametrize("angle", [0, TILT, -TILT, math.pi / 2, -math.pi / 2, math.pi])
def test_turned_lines_lie_over_their_words(angle: float) -> None:
    """Skewed, sideways and upside-down lines: every character's centre is inside its word's polygon."""
    start, other = turned(200, 100, 60, 16, angle), turned(200, 100, 140, 16, angle)
    cos, sin = math.cos(angle), math.sin(angle)
    second = turned(200 + 80 * cos, 100 + 80 * sin, 60, 16, angle)
    words = [word("first", start), word("other", second)]
    data = to_pdf(result(block(line(*words, polygon=other))), BLANK)
    found = text_of(data).split()
    assert (sorted(found) if angle == math.pi else found) == ["first", "other"]  # this reader goes from left to right
    for one in words:
        left, top, right, bottom = box_of(data, one.text)
        x, y, width, height = one.bbox
        assert [left, top, right, bottom] == pytest.approx([x, y, x + width, y + height], abs=1.5)


@pytest.mark.parametrize(
    "words",
    [
        ["โอนเงินสำเร็จ", "จำนวน", "ที่นี่"],
        ["Início", "ação", "não"],
        ["naïve", "e\u0301te\u0301", "Ångström"],
        ["日本語", "한국어", "😀🧾"],
        ["<b>&amp;", "(x)\\", "a;b"],
    ],
)
def test_every_script_comes_back_as_it_was_written(words: Sequence[str]) -> None:
    """Thai with stacked marks, accents composed or not, ideographs, characters beyond the first plane, markup."""
    placed = [word(text, corners(20 + 110 * at, 40, 90, 18)) for at, text in enumerate(words)]
    data = to_pdf(result(block(line(*placed))), BLANK)
    assert text_of(data).split() == list(words)


def test_more_characters_than_one_byte_counts() -> None:
    """Five hundred different characters, and none is mistaken for another."""
    characters = [chr(0x4E00 + at) for at in range(500)]
    rows = [
        line(word("".join(characters[at : at + 50]), corners(10, 10 + at / 3, 380, 12))) for at in range(0, 500, 50)
    ]
    assert list("".join(text_of(to_pdf(result(block(*rows)), BLANK)).split())) == characters


def test_the_text_leaves_no_trace_on_the_picture() -> None:
    """PNG pixels are shown as they are, without loss and without a mark of the words."""
    noise = np.random.default_rng(7).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    found = result(block(line(word("words", corners(5, 5, 70, 30)))), size=(90, 60))
    data = to_pdf(found, encoded(Image.fromarray(noise), "PNG"))
    assert (shown(data) == noise).all()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_jpeg_keeps_its_bytes_and_is_shown_upright(orientation: int) -> None:
    """For all eight EXIF orientations; what is expected comes from Pillow."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    original = encoded(quarters(), "JPEG", quality=95, exif=exif)
    with Image.open(io.BytesIO(original)) as image:
        expected = ImageOps.exif_transpose(image).convert("RGB")
    found = result(size=expected.size, kind="jpeg", orientation=orientation)
    data = to_pdf(found, original)
    assert original in data
    assert np.abs(shown(data).astype(int) - np.asarray(expected)).mean() < 2


@pytest.mark.parametrize("kind", ["cmyk", "profile", "truncated"])
def test_a_jpeg_viewers_might_show_otherwise_is_encoded_anew(kind: str) -> None:
    """CMYK, colour profiles and cut files: the page shows the pixels that were read."""
    picture, warnings = quarters(320, 160), []
    if kind == "cmyk":
        original = encoded(picture.convert("CMYK"), "JPEG", quality=95)
    elif kind == "profile":
        profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
        original = encoded(picture, "JPEG", quality=95, icc_profile=profile.tobytes())
    else:
        whole = encoded(picture, "JPEG", quality=95)
        original, warnings = whole[: len(whole) * 2 // 3], ["truncated"]
    data = to_pdf(result(size=(320, 160), kind="jpeg", warnings=warnings), original)
    assert original not in data
    assert np.abs(shown(data)[:40].astype(int) - np.asarray(picture)[:40]).mean() < 12


def test_pages_of_a_tiff_are_pages_of_the_pdf() -> None:
    """All of them, or the one that is asked for, each with its own picture, size and words."""
    sizes, colours = [(120, 60), (80, 100)], [(200, 0, 0), (0, 0, 200)]
    pictures = [Image.new("RGB", size, colour) for size, colour in zip(sizes, colours, strict=True)]
    original = encoded(pictures[0], "TIFF", save_all=True, append_images=pictures[1:])
    pages = [
        result(block(line(word(f"page{at}", corners(5, 5, 50, 20)))), size=size, kind="tiff")
        for at, size in enumerate(sizes)
    ]
    found = pages[0].model_copy(update={"pages": pages})
    data = to_pdf(found, original)
    with opened(data) as document:
        assert [page.get_size() for page in document] == sizes
    assert [text_of(data, page) for page in (0, 1)] == ["page0", "page1"]
    assert [tuple(shown(data, page)[0, 0]) for page in (0, 1)] == colours
    second = to_pdf(found, original, page=1)
    assert (text_of(second), tuple(shown(second)[0, 0])) == ("page1", colours[1])


def test_a_picture_larger_than_pdf_allows_is_scaled() -> None:
    """Twenty thousand pixels across: the page is 14,400 points, and the words are still over their pixels."""
    original = encoded(Image.new("L", (20_000, 50), 255), "PNG")
    found = result(block(line(word("far", corners(18_000, 10, 1_000, 30)))), size=(20_000, 50))
    data = to_pdf(found, original)
    with opened(data) as document:
        assert document[0].get_size() == pytest.approx((14_400, 36))
    assert box_of(data, "far") == pytest.approx([12_960, 7.2, 13_680, 28.8], abs=1)


@pytest.mark.parametrize("size", [(1, 1), (2, 40), (1, 20_000), (20_000, 1)])
def test_slivers_have_a_page_too(size: tuple[int, int]) -> None:
    """Pages have at least three points a side; the picture is at the top left of it."""
    data = to_pdf(result(size=size), encoded(Image.new("RGB", size, (200, 0, 0)), "PNG"))
    with opened(data) as document:
        assert min(document[0].get_size()) >= 3
    page = shown(data)
    assert page[0, 0, 1] < 255
    if size == (1, 1):
        assert tuple(page[0, 0]) == (200, 0, 0)
        assert (page[1:, 1:] == 255).all()


def test_the_same_result_gives_the_same_bytes() -> None:
    """So that a repeated download can be compared."""
    found = result(block(line(word("same", corners(5, 5, 50, 20)))))
    assert to_pdf(found, BLANK) == to_pdf(found, BLANK)
