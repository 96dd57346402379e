"""Pictures with too many specks are read in bands, and noise not at all."""

import numpy as np
import pytest

from arachne.stages import bands as banding
from arachne.stages import tesseract
from arachne.stages.arrays import Box, Gray
from arachne.stages.bands import AT_ONCE, MOST, bands, read_in_bands
from arachne.stages.engine import EngineWord


def specks(columns: int, rows: int, side_px: int = 3, pitch_px: int = 6) -> Gray:
    """A grid of dark squares on white."""
    gray = np.full((rows * pitch_px, columns * pitch_px), 255, np.uint8)
    for y in range(side_px):
        for x in range(side_px):
            gray[y::pitch_px, x::pitch_px] = 0
    return gray


def count_specks(gray: Gray, side_px: int = 3) -> int:
    return int((gray < 128).sum()) // side_px**2


def test_few_specks_are_one_band() -> None:
    gray = specks(100, AT_ONCE // 100 - 1)
    assert [(top, band is gray) for top, band in bands(gray)] == [(0, True)]


def test_bands_have_few_specks_each_and_end_between_rows() -> None:
    """Together they are the whole picture, and none cuts a speck in two."""
    gray = specks(200, 100)
    found = bands(gray)
    assert len(found) == 4
    assert np.array_equal(np.concatenate([band for _, band in found]), gray)
    assert [top for top, _ in found] == np.cumsum([0, *(len(band) for _, band in found)])[:-1].tolist()
    assert all(top % 6 in {0, 3, 4, 5} for top, _ in found)
    assert max(count_specks(band) for _, band in found) < 1.2 * AT_ONCE


def test_dust_goes_and_letters_stay() -> None:
    """Single pixels all over, and squares as large as a small letter's strokes in the upper part."""
    gray = specks(250, 200, side_px=1)
    large = specks(100, 40, side_px=5, pitch_px=12)
    gray[: large.shape[0], : large.shape[1]] = large
    left = np.concatenate([band for _, band in bands(gray)])
    assert count_specks(left, 5) == 4000
    assert np.array_equal(left[: large.shape[0], : large.shape[1]], large)


def test_nothing_but_noise_is_not_read() -> None:
    assert bands(specks(300, MOST // 300 + 1)) == []
    assert read_in_bands(specks(300, MOST // 300 + 1), 60, lambda *_: pytest.fail("read noise")) == ()


def test_words_are_placed_in_the_whole_picture_in_lines_of_their_own() -> None:
    gray = specks(200, 100)
    word = EngineWord("word", Box(5, 7, 30, 9), 0.9, 1)
    words = read_in_bands(gray, 60, lambda _band, _left_s: (word, word))
    tops = [top for top, _ in bands(gray)]
    assert [found.box for found in words] == [Box(5, 7 + top, 30, 9) for top in tops for _ in range(2)]
    assert [found.line for found in words] == [1, 1, 3, 3, 5, 5, 7, 7]


def test_no_band_is_begun_after_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is moved on by each reading: of four bands, two are within the limit."""
    clock = [100.0]
    monkeypatch.setattr(banding.time, "monotonic", lambda: clock[0])
    told = []

    def read(_band: Gray, left_s: float) -> tuple[EngineWord, ...]:
        told.append(left_s)
        clock[0] += 6
        return ()

    read_in_bands(specks(200, 100), 10, read)
    assert told == [10, 4]


@pytest.mark.usefixtures("either_engine")
def test_text_among_specks_is_read_where_it_is(draw, tessdata_dir) -> None:
    """A line above and one below thousands of specks, which are read in bands of their own."""
    gray = np.full((1400, 640), 255, np.uint8)
    gray[:100] = draw([(40, 40, "Alpha above all of it")], (640, 100))[..., 0]
    gray[200:1200] = specks(107, 167)[:1000, :640]
    gray[1300:] = draw([(40, 40, "Omega below all of it")], (640, 100))[..., 0]
    assert len(bands(gray)) > 1
    words = {word.text: word.box for word in tesseract.engine(tessdata_dir, ("eng",)).read(gray, 6, 60)}
    assert words["Alpha"].y == pytest.approx(47, abs=8)
    assert words["Omega"].y == pytest.approx(1347, abs=8)
