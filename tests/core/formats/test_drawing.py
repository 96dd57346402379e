"""The PNG is the displayed picture, with strokes around what was found and nowhere else."""

import io

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from arachne.errors import DecodeFailed, ImageTooLarge, NotFound, UnsupportedImage
from arachne.formats import RenderRequest, render
from arachne.schemas.result import Result
from tests.core.formats.results import block, corners, encoded, line, quarters, result, table, word


def drawn(found: Result, original: bytes, page: int | None = None) -> NDArray[np.uint8]:
    request = RenderRequest("png", page, "a.png", 1_000_000, 10)
    data = render(found.model_dump_json().encode(), original, request)
    with Image.open(io.BytesIO(data)) as image:
        assert (image.format, image.mode) == ("PNG", "RGB")
        return np.asarray(image)


def test_strokes_run_around_words_blocks_and_cells() -> None:
    """Inside a word's box no pixel is changed; just outside, all four sides are."""
    white = Image.new("RGB", (200, 100), "white")
    one = word("word", corners(40, 30, 60, 20))
    picture = drawn(result(block(line(one)), size=(200, 100), tables=[table(120, 60, 50, 30)]), encoded(white, "PNG"))
    assert (picture[31:50, 41:100] == 255).all()
    for y, x in [(29, 70), (51, 70), (40, 39), (40, 101)]:
        assert (picture[y, x] != 255).any(), (y, x)
    assert (picture[60, 120:170] != 255).any(axis=1).all()
    assert (picture[:20] == 255).all()


def test_a_turned_word_is_drawn_by_its_polygon() -> None:
    """Not by the level box around it."""
    white = Image.new("RGB", (200, 200), "white")
    diamond = [[100, 40], [160, 100], [100, 160], [40, 100]]
    picture = drawn(result(block(line(word("w", diamond), polygon=diamond)), size=(200, 200)), encoded(white, "PNG"))
    assert (picture[66:74, 126:136] != 255).any()
    assert (picture[50:60, 50:60] == 255).all()


def test_the_picture_is_drawn_as_displayed() -> None:
    """EXIF is applied, so that the boxes fit."""
    exif = Image.Exif()
    exif[0x0112] = 6
    original = encoded(quarters(), "JPEG", quality=95, exif=exif)
    picture = drawn(result(size=(80, 160), kind="jpeg", orientation=6), original)
    assert picture.shape == (160, 80, 3)
    assert np.abs(picture[20, 60].astype(int) - (200, 20, 20)).max() < 12


def test_without_a_page_the_first_is_drawn_and_missing_ones_are_told() -> None:
    """A PNG has one page."""
    frames = [Image.new("RGB", (30, 20), colour) for colour in ((255, 0, 0), (0, 0, 255))]
    original = encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    pages = [result(size=(30, 20), kind="tiff") for _ in frames]
    found = pages[0].model_copy(update={"pages": pages})
    assert tuple(drawn(found, original)[5, 5]) == (255, 0, 0)
    assert tuple(drawn(found, original, page=1)[5, 5]) == (0, 0, 255)
    with pytest.raises(NotFound):
        drawn(found, original, page=2)


def test_hostile_originals_are_refused_as_when_reading() -> None:
    """Other bytes than were read, over the limit, or damaged: the decoder's own errors."""
    with pytest.raises(ImageTooLarge):
        drawn(result(), encoded(Image.new("1", (2000, 2000)), "PNG"))
    with pytest.raises(UnsupportedImage):
        drawn(result(), b"no image at all")
    with pytest.raises(DecodeFailed):
        drawn(result(), encoded(Image.new("RGB", (50, 50)), "PNG")[:45])
