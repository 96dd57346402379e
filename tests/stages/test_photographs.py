"""Photographs: surfaces that are not of one colour, and marks that are no text."""

import io
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from arachne.pipeline import ReadRequest, looking, read_image
from arachne.schemas.options import Options
from arachne.stages.arrays import Box, Rgb
from arachne.stages.ink import ground
from arachne.stages.marks import without_marks
from arachne.stages.read import Reading, ReadWord


def sign(grain_levels: float) -> Rgb:
    """Bold white words on a dark board under a bright sky; the board has light falling on it, and grain."""
    board = Image.new("RGB", (700, 360), "#186040")
    for y, text in ((40, "SHORTCUT"), (200, "Old Harbour")):
        font = ImageFont.load_default(92)
        ImageDraw.Draw(board).text((50, y), text, fill="white", font=font, stroke_width=5, stroke_fill="white")
    grain = cv2.GaussianBlur(np.random.default_rng(7).normal(0, grain_levels, (360, 700)), (0, 0), 1.5)
    light = np.linspace(-12, 12, 700)
    seen = np.asarray(board) + np.where(np.asarray(board.convert("L")) < 128, grain + light, 0)[..., np.newaxis]
    picture = np.full((560, 860, 3), (205, 220, 235), np.uint8)
    picture[120:480, 70:770] = np.clip(seen, 0, 255).astype(np.uint8)
    return picture


def read_png(rgb: Rgb, tessdata_dir: Path, soft_time_limit_s: float = 100) -> str:
    data = io.BytesIO()
    Image.fromarray(rgb).save(data, "PNG")
    request = ReadRequest(Options(detail_level="fast"), ("eng",), tessdata_dir, 50_000_000, 1, soft_time_limit_s)
    return read_image(data.getvalue(), request).text or ""


def test_a_grainy_board_is_ground_for_its_letters(tessdata_dir: Path) -> None:
    assert read_png(sign(14), tessdata_dir).split() == ["SHORTCUT", "Old", "Harbour"]


def test_a_surface_of_a_photograph_is_one_ground() -> None:
    """With the grain it has counted as one colour, the board is the ground of its letters nearly everywhere."""
    behind = ground(sign(14), 22, 28)[130:470, 80:760]
    assert (np.abs(behind.astype(int) - (0x18, 0x60, 0x40)).max(axis=2) < 40).mean() > 0.9


@pytest.mark.parametrize(("confidence", "expected"), [(0.9, "Harbour"), (0.71, "Harvest")])
def test_what_reads_badly_is_taken_for_a_photograph_where_that_reads_better(
    draw, tessdata_dir: Path, monkeypatch: pytest.MonkeyPatch, confidence: float, expected: str
) -> None:
    told = (("Harvest", 0.7), ("Harbour", confidence))
    readings = iter([Reading((word(text, sure, 0),), sure, None) for text, sure in told])
    monkeypatch.setattr(looking, "is_upright", lambda _words: False)
    monkeypatch.setattr(looking, "read_twice", lambda *_: next(readings))
    picture = draw([(40, 40, "some words to find"), (40, 90, "and a few more")])
    assert read_png(picture, tessdata_dir).strip() == expected


def test_after_the_soft_limit_a_bad_reading_stands(draw, tessdata_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking again could take until the image is killed; only one reading is there to be had."""
    readings = iter([Reading((word("Harvest", 0.7, 0),), 0.7, "soft_time_limit")])
    monkeypatch.setattr(looking, "is_upright", lambda _words: False)
    monkeypatch.setattr(looking, "read_twice", lambda *_: next(readings))
    picture = draw([(40, 40, "some words to find"), (40, 90, "and a few more")])
    assert read_png(picture, tessdata_dir, soft_time_limit_s=0).strip() == "Harvest"


def word(text: str, confidence: float, line: int) -> ReadWord:
    return ReadWord(text, Box(10, 20 * line, 30, 12), confidence, "tesseract", 0, line)


def test_lines_of_marks_are_left_out() -> None:
    """A line stays with two letters read well enough; of it only what has letters or digits."""
    words = (
        word("|", 0.95, 0),
        word("Harbour", 0.93, 0),
        word("-", 0.9, 1),
        word("x", 0.99, 2),
        word("an", 0.4, 3),
        word("24", 0.9, 4),
    )
    assert [one.text for one in without_marks(Reading(words, 0.9, None)).words] == ["Harbour", "24"]
