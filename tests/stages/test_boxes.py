"""Boxes drawn back: whatever was turned, laid flat and scaled, they lie where the marks are displayed."""

import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arachne.stages.arrays import Box, Points, Rgb, Transform, apply, resized, scaling
from arachne.stages.perspective import flatten
from arachne.stages.read import ReadWord
from arachne.stages.structure import StructureOptions, structure
from arachne.stages.upright import UprightOptions, _turned, level, quarter_transform, upright

WIDTH, HEIGHT = 420, 300


def red_box(rgb: Rgb) -> Box:
    rows, columns = np.nonzero((rgb[..., 0] > 150) & (rgb[..., 1] < 110) & (rgb[..., 2] < 110))
    return Box(columns.min(), rows.min(), columns.max() + 1 - columns.min(), rows.max() + 1 - rows.min())


def turned(displayed: Rgb, angle: float, quarter: int, scale: float) -> tuple[Rgb, Transform]:
    """A displayed picture as the stages hand it to the reader."""
    level, transform = _turned(displayed, angle) if angle else (displayed, np.eye(3))
    upright_rgb = np.ascontiguousarray(np.rot90(level, k=-quarter // 90))
    transform = quarter_transform(quarter, level.shape[1], level.shape[0]) @ transform
    scaled = resized(upright_rgb, scale)
    factors = scaled.shape[1] / upright_rgb.shape[1], scaled.shape[0] / upright_rgb.shape[0]
    return scaled, scaling(*factors) @ transform


@settings(max_examples=40)
@given(
    angle=st.floats(-15, 15),
    quarter=st.sampled_from([0, 90, 180, 270]),
    scale=st.floats(0.5, 4),
    x=st.integers(60, 300),
    y=st.integers(60, 220),
)
def test_a_word_is_where_it_is_displayed(angle: float, quarter: int, scale: float, x: int, y: int) -> None:
    """The picture that is read has a red mark turned level; its word's polygon must cover the mark as displayed."""
    seen = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    polygon = np.array([[x - 20, y - 8], [x + 20, y - 8], [x + 20, y + 8], [x - 20, y + 8]], dtype=np.float64)
    middle = polygon.mean(axis=0)
    radians = np.deg2rad(-angle)
    spin = np.array([[np.cos(radians), -np.sin(radians)], [np.sin(radians), np.cos(radians)]])
    mark = (polygon - middle) @ spin.T + middle  # level once the picture is turned by the angle
    cv2.fillPoly(seen, [np.round(mark * 16).astype(np.int32)], (255, 0, 0), cv2.LINE_AA, 4)
    reader_sees, transform = turned(seen, angle, quarter, scale)
    word = ReadWord("mark", red_box(reader_sees), 0.9, "tesseract", 0, 0)
    gray = np.full(reader_sees.shape[:2], 255, np.uint8)
    found = structure([word], gray, seen, transform, StructureOptions()).blocks[0].lines[0].words[0]
    assert np.array(found.polygon).mean(axis=0) == pytest.approx(middle, abs=1.6)
    drawn, truth = np.zeros((HEIGHT, WIDTH), np.uint8), np.zeros((HEIGHT, WIDTH), np.uint8)
    cv2.fillPoly(drawn, [np.round(found.polygon).astype(np.int32)], 1)
    cv2.fillPoly(truth, [np.round(mark).astype(np.int32)], 1)
    assert (drawn & truth).sum() / (drawn | truth).sum() > 0.7
    left, top, width, height = found.bbox
    assert left <= mark[:, 0].min() + 2
    assert left + width >= mark[:, 0].max() - 2
    assert top <= mark[:, 1].min() + 2
    assert top + height >= mark[:, 1].max() - 2


def photographed(page: Rgb, corners: Points, size: tuple[int, int]) -> tuple[Rgb, Transform]:
    """The page on a dark table seen at an angle: its corners in the photograph, and page -> photograph."""
    height, width = page.shape[:2]
    flat = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    leads = cv2.getPerspectiveTransform(flat, corners.astype(np.float32))
    photo = cv2.warpPerspective(page, leads, size, borderValue=(70, 60, 55), flags=cv2.INTER_AREA)
    return np.asarray(photo, dtype=np.uint8), np.asarray(leads, dtype=np.float64)


TEXT = [(40, 40 + 40 * row, "Two boats lay at the old stone pier") for row in range(9)]


@pytest.mark.parametrize(
    "corners",
    [
        [[150, 90], [700, 130], [660, 560], [110, 500]],
        [[100, 60], [650, 60], [700, 600], [60, 600]],
        [[160, 40], [720, 120], [700, 560], [90, 470]],
    ],
)
def test_pages_seen_at_an_angle_are_laid_flat(draw, corners: list[list[int]]) -> None:
    """The page's own places come back, to within four pixels."""
    photo, leads = photographed(draw(TEXT, (560, 420)), np.array(corners), (800, 640))
    spots = np.array([[60.0, 60.0], [500.0, 60.0], [500.0, 360.0], [60.0, 360.0]])
    glyphs = np.array([[x - 4, y - 4, 8, 8, 30] for x, y in apply(leads, spots)], np.int32)
    flat = flatten(photo, glyphs)
    assert flat is not None
    stretch = np.array([flat.rgb.shape[1] / 560, flat.rgb.shape[0] / 420])
    assert apply(flat.transform @ leads, spots) == pytest.approx(spots * stretch, abs=4)
    assert flatten(photo, np.array([[5, 5, 8, 8, 30]] * 9, np.int32)) is None  # text on the table would be lost


@pytest.mark.usefixtures("either_engine")
@pytest.mark.parametrize("quarter", [0, 180])
def test_a_photographed_page_is_upright_and_flat(draw, tessdata_dir: Path, quarter: int) -> None:
    page = draw(TEXT, (560, 420))
    corners = np.array([[150, 90], [700, 130], [660, 560], [110, 500]])
    photo, leads = photographed(page, corners, (800, 640))
    photo = np.ascontiguousarray(np.rot90(photo, k=quarter // 90))
    options = UprightOptions(tessdata_dir, ("eng",), time.monotonic() + 60)
    found = upright(level(photo, None, 12, options), options)
    assert found.rotation_deg == (360 - quarter) % 360
    placed = np.array([[60.0, 60.0], [500.0, 360.0]])
    seen = apply(leads, placed)
    seen = np.array([800, 640]) - seen if quarter == 180 else seen
    stretch = np.array([found.rgb.shape[1] / 560, found.rgb.shape[0] / 420])
    assert apply(found.transform, seen) == pytest.approx(placed * stretch, abs=6)


def test_flat_pictures_stay_as_they_are(draw, tessdata_dir: Path) -> None:
    """A dialog on a dark desktop, and a page that is only skewed, are not cut out."""
    dialog = np.full((640, 800, 3), 50, np.uint8)
    dialog[100:520, 120:680] = draw(TEXT, (560, 420))
    options = UprightOptions(tessdata_dir, ("eng",), time.monotonic() + 60)
    found = upright(level(dialog, None, 12, options), options)
    assert found.rgb is dialog
