"""Scanned pages are cleaned for profile `document`, and for that alone."""

import io
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from arachne.pipeline import ReadRequest, read_image
from arachne.pipeline import run as running
from arachne.schemas.options import Options
from arachne.schemas.result import Result
from arachne.stages.arrays import Rgb
from arachne.stages.scan import clean_scan

LINES = [
    "The harbour master opened the gate",
    "before the first boats came in and",
    "counted every crate on the old pier",
    "while gulls circled over the water",
    "and nobody spoke about the storm",
]


@pytest.fixture
def page(draw) -> Rgb:
    return draw([(40, 40 + 44 * row, text) for row, text in enumerate(LINES)], (620, 300), 26)


def speckled(page: Rgb, share: float) -> Rgb:
    """Single pixels black or white all over."""
    dice = np.random.default_rng(4).random(page.shape[:2])[..., None]
    return np.where(dice < share / 2, np.uint8(0), np.where(dice > 1 - share / 2, np.uint8(255), page))


def read(page: Rgb, tessdata_dir: Path, profile: str) -> Result:
    out = io.BytesIO()
    Image.fromarray(page).save(out, "PNG")
    options = Options(profile=profile, detail_level="fast")
    return read_image(out.getvalue(), ReadRequest(options, ("eng",), tessdata_dir, 1_000_000, 1, 60))


def word_f1(result: Result) -> float:
    truth, found = Counter(" ".join(LINES).split()), Counter(result.text.split())
    return 2 * (truth & found).total() / (truth.total() + found.total())


def test_specks_go_and_strokes_stay(page: Rgb) -> None:
    cleaned = clean_scan(speckled(page, 0.02), 16)
    ground, ink = page.min(axis=2) == 255, page.max(axis=2) == 0
    open_ground = ~np.pad(~ground, 3)[3:-3, 3:-3]
    for y in range(-3, 4):
        for x in range(-3, 4):
            open_ground &= np.roll(ground, (y, x), axis=(0, 1))
    assert (cleaned[open_ground].min(axis=1) > 230).mean() > 0.998
    assert np.median(cleaned[ink]) < 100


def test_small_letters_and_pictures_of_none_stay_as_they_are(page: Rgb) -> None:
    for height_px in (5.0, None):
        assert clean_scan(page, height_px) is page
    assert clean_scan(page, 16) is not page


def test_specks_are_taken_from_small_letters_too(page: Rgb) -> None:
    noisy = speckled(page, 0.02)
    assert clean_scan(noisy, None) is not noisy


@pytest.mark.parametrize("share", [0.02, 0.05])
def test_a_speckled_page_is_read_as_a_document(page: Rgb, tessdata_dir: Path, share: float) -> None:
    result = read(speckled(page, share), tessdata_dir, "document")
    assert word_f1(result) > 0.93
    assert word_f1(result) > word_f1(read(speckled(page, share), tessdata_dir, "screenshot"))


def test_a_clean_page_is_read_alike_and_measured_as_it_is(page: Rgb, tessdata_dir: Path) -> None:
    """Quality, codes and boxes are those of the picture as it was sent."""
    plain, document = (read(page, tessdata_dir, profile) for profile in ("screenshot", "document"))
    assert word_f1(document) == word_f1(plain) == 1
    assert (document.quality, document.visual) == (plain.quality, plain.visual)
    for one, other in zip(plain.blocks[0].lines, document.blocks[0].lines, strict=False):
        assert one.bbox == pytest.approx(other.bbox, abs=3)


def test_screenshots_are_never_cleaned(page: Rgb, tessdata_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "clean_scan", lambda *_: pytest.fail("cleaned"))
    assert read(page, tessdata_dir, "screenshot").text
    assert read(page, tessdata_dir, "slip").text
