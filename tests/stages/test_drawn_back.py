"""Boxes drawn back through the whole pipeline: where words are displayed, there their polygons are."""

import io
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from arachne.pipeline import ReadRequest, read_image
from arachne.schemas.options import Options
from arachne.schemas.result import Result
from arachne.stages.arrays import Points, Rgb, Transform, apply, scaling

pytestmark = pytest.mark.processes

WIDTH, HEIGHT = 620, 420
WORDS = [(60, 50, "Alpha"), (380, 50, "Bravo"), (60, 330, "Charlie"), (380, 330, "Delta")]
PROSE = ["words between them to tell the lines", "which way is up and what is level", "and a last one at the end"]


def page(px: int = 30, factor: float = 1.0) -> tuple[Rgb, dict[str, Points]]:
    """A page of words at known places, and the corners of what is drawn of four of them."""
    size = round(WIDTH * factor), round(HEIGHT * factor)
    canvas, font = Image.new("RGB", size, "white"), ImageFont.load_default(px * factor)
    pen, corners = ImageDraw.Draw(canvas), {}
    for x, y, text in WORDS:
        pen.text((x * factor, y * factor), text, fill="black", font=font)
        left, top, right, bottom = pen.textbbox((x * factor, y * factor), text, font=font)
        corners[text] = np.array([[left, top], [right, top], [right, bottom], [left, bottom]], dtype=np.float64)
    for row, text in enumerate(PROSE):
        pen.text((60 * factor, (130 + 60 * row) * factor), text, fill="black", font=font)
    return np.asarray(canvas), corners


def turning(degrees: float) -> tuple[Transform, tuple[int, int]]:
    """Page -> a picture that holds it turned clockwise, and that picture's size. Its corners stay corners."""
    radians = np.deg2rad(degrees)
    turn = np.array([[np.cos(radians), -np.sin(radians), 0], [np.sin(radians), np.cos(radians), 0], [0, 0, 1.0]])
    ends = apply(turn, np.array([[0, 0], [WIDTH, 0], [WIDTH, HEIGHT], [0, HEIGHT]], dtype=np.float64))
    moved = np.eye(3)
    moved[:2, 2] = -ends.min(axis=0)
    wide, high = np.round(np.ptp(ends, axis=0))
    return moved @ turn, (int(wide), int(high))


def warped(rgb: Rgb, transform: Transform, size: tuple[int, int], ground: int = 255) -> Rgb:
    centred = np.eye(3)
    centred[:2, 2] = 0.5
    how = np.linalg.inv(centred) @ transform @ centred  # OpenCV counts from pixels' middles
    return np.asarray(cv2.warpPerspective(rgb, how, size, flags=cv2.INTER_CUBIC, borderValue=(ground,) * 3))


def read(rgb: Rgb, tessdata_dir: Path, image_format: str = "PNG", **how: object) -> Result:
    out = io.BytesIO()
    Image.fromarray(rgb).save(out, image_format, **how)
    options = Options(detail_level="fast")
    return read_image(out.getvalue(), ReadRequest(options, ("eng",), tessdata_dir, 8_000_000, 1, 60))


def check(result: Result, truth: dict[str, Points], least: float = 0.6) -> None:
    """Each word's polygon and the place it is drawn at share most of their areas, and the box is around both."""
    words = {word.text: word for block in result.blocks or () for line in block.lines for word in line.words}
    shape = result.image.height, result.image.width
    for text, corners in truth.items():
        drawn, meant = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
        cv2.fillPoly(drawn, [np.round(words[text].polygon).astype(np.int32)], 1)
        cv2.fillPoly(meant, [np.round(corners).astype(np.int32)], 1)
        assert (drawn & meant).sum() / (drawn | meant).sum() > least, text
        assert np.mean(words[text].polygon, axis=0) == pytest.approx(corners.mean(axis=0), abs=0.012 * max(shape)), text
        x, y, width, height = words[text].bbox
        polygon = np.array(words[text].polygon)
        assert [x, y] == pytest.approx(np.clip(polygon.min(axis=0), 0, None), abs=1.5)
        assert [x + width, y + height] == pytest.approx(np.minimum(polygon.max(axis=0), shape[::-1]), abs=1.5)


@pytest.mark.parametrize("degrees", [0, 90, 180, 270, 14.5, -14.5, 3, 95, 175, 260])
def test_turned(tessdata_dir: Path, degrees: float) -> None:
    """By quarters, by up to 15 degrees, and by both."""
    rgb, corners = page()
    transform, size = turning(degrees)
    result = read(warped(rgb, transform, size), tessdata_dir)
    check(result, {text: apply(transform, points) for text, points in corners.items()})


@pytest.mark.parametrize("factor", [0.5, 0.8, 2.5])
@pytest.mark.parametrize("degrees", [0, 90, -7])
def test_small_and_large(tessdata_dir: Path, factor: float, degrees: float) -> None:
    """Letters of half and of more than twice the usual size, level and turned."""
    rgb, corners = page(factor=factor)
    transform, size = turning(degrees)
    scale = scaling(factor, factor)
    transform = scale @ transform @ np.linalg.inv(scale)
    result = read(warped(rgb, transform, (round(size[0] * factor), round(size[1] * factor))), tessdata_dir)
    check(result, {text: apply(transform, points) for text, points in corners.items()}, least=0.5)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_stored_turned_and_mirrored(tessdata_dir: Path, orientation: int) -> None:
    """Boxes speak of the picture as displayed, however EXIF says it is stored. What undoes each is the standard's."""
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # Pillow's transpositions by number
    rgb, corners = page()
    stored = Image.fromarray(rgb)
    if orientation > 1:
        stored = stored.transpose(Image.Transpose(undo[orientation]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    result = read(np.asarray(stored), tessdata_dir, "JPEG", exif=exif, quality=95)
    assert (result.image.width, result.image.height) == (WIDTH, HEIGHT)
    check(result, corners)


@pytest.mark.parametrize("quarter", [0, 180])
@pytest.mark.parametrize(
    "ends", [[[150, 90], [740, 130], [700, 540], [110, 490]], [[120, 60], [660, 60], [720, 560], [60, 560]]]
)
def test_photographed_at_an_angle(tessdata_dir: Path, ends: list[list[int]], quarter: int) -> None:
    """A page on a dark table, also upside down."""
    rgb, corners = page()
    flat = np.array([[0, 0], [WIDTH, 0], [WIDTH, HEIGHT], [0, HEIGHT]], np.float32)
    leads = np.asarray(cv2.getPerspectiveTransform(flat, np.array(ends, np.float32)), dtype=np.float64)
    if quarter:
        leads = np.array([[-1.0, 0, 800], [0, -1.0, 640], [0, 0, 1]]) @ leads
    result = read(warped(rgb, leads, (800, 640), ground=60), tessdata_dir)
    check(result, {text: apply(leads, points) for text, points in corners.items()}, least=0.5)
