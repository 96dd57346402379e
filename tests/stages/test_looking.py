"""Assessing, turning and enhancing, on pictures whose properties are known because they were drawn."""

import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from arachne.stages.arrays import Rgb, apply
from arachne.stages.assess import AssessOptions, assess
from arachne.stages.enhance import EnhanceOptions, enhance
from arachne.stages.upright import UprightOptions, level, quarter_transform, upright

TEXT = [(24, 18 + 36 * row, "The quick brown fox jumps over the lazy dog") for row in range(6)]


@pytest.fixture
def options(tessdata_dir: Path, either_engine: str) -> UprightOptions:  # probed with each engine
    return UprightOptions(tessdata_dir, ("eng",), time.monotonic() + 60)


@pytest.mark.parametrize("level", [0, 128, 255])
def test_blank_pictures(level: int) -> None:
    found = assess(np.full((50, 70, 3), level, np.uint8), AssessOptions())
    assert found.text_height_px is None
    assert found.contrast == found.edge_density == found.noise == 0
    assert found.palette == ((f"#{level:02x}{level:02x}{level:02x}", 1.0),)


@pytest.mark.parametrize("shape", [(1, 1), (1, 20_000), (20_000, 1), (2, 2), (5, 300)])
def test_odd_shapes_are_measured(shape: tuple[int, int]) -> None:
    assert assess(np.zeros((*shape, 3), np.uint8), AssessOptions()).polarity == "dark"


def test_polarity(draw) -> None:
    light, dark = draw(TEXT), draw(TEXT, ink="white", ground="#101418")
    assert assess(light, AssessOptions()).polarity == "light"
    assert assess(dark, AssessOptions()).polarity == "dark"
    assert assess(np.concatenate([light, dark]), AssessOptions()).polarity == "mixed"


@pytest.mark.parametrize("px", [14, 22, 40])
def test_text_height_is_that_of_the_font(draw, px: int) -> None:
    """The x-height of the drawn font is about half its size."""
    height = assess(draw(TEXT, (1400, 300), px), AssessOptions()).text_height_px
    assert height == pytest.approx(0.55 * px, rel=0.25)


def test_noise_is_measured_in_gray_levels() -> None:
    random = np.random.default_rng(3)
    noisy = 128 + random.normal(0, 5, (300, 300, 1)).repeat(3, axis=2)
    assert assess(noisy.astype(np.uint8), AssessOptions()).noise == pytest.approx(5, rel=0.15)


def test_hash_survives_scaling_and_tells_pictures_apart(draw) -> None:
    def bits(rgb: Rgb) -> int:
        return int(assess(rgb, AssessOptions()).phash, 16)

    one, other = draw(TEXT), draw(TEXT[:2], ink="white", ground="#204060")
    half = np.asarray(Image.fromarray(one).resize((320, 120), Image.Resampling.BOX))
    assert (bits(one) ^ bits(half)).bit_count() <= 6
    assert (bits(one) ^ bits(other)).bit_count() > 12


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_quarter_turns_are_undone(draw, options: UprightOptions, degrees: int) -> None:
    """A picture turned clockwise by some degrees is turned clockwise by the rest of the circle."""
    right = draw(TEXT)
    turned = np.ascontiguousarray(np.rot90(right, k=-degrees // 90))
    found = upright(level(turned, None, 12, options), options)
    assert found.rotation_deg == (360 - degrees) % 360
    assert np.array_equal(found.rgb, right)


@pytest.mark.parametrize("degrees", [-14, -7, -2, 3, 9, 14])
def test_skew_is_measured_and_levelled(draw, options: UprightOptions, degrees: int) -> None:
    """Pillow turns counterclockwise; the clockwise turn that undoes it has the same sign."""
    skewed = Image.fromarray(draw(TEXT)).rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    found = upright(level(np.asarray(skewed), None, 12, options), options)
    assert found.rotation_deg == 0
    assert found.skew_deg == pytest.approx(degrees, abs=0.3)


def test_level_text_is_left_alone(draw, options: UprightOptions) -> None:
    rgb = draw(TEXT)
    found = upright(level(rgb, None, 12, options), options)
    assert (found.rotation_deg, found.skew_deg) == (0, 0)
    assert found.rgb is rgb


def test_transform_leads_to_the_same_mark(draw, options: UprightOptions) -> None:
    """A red mark's middle is found where the transform says it went."""
    marked = draw(TEXT).copy()
    marked[200:220, 560:580] = (255, 0, 0)
    skewed = Image.fromarray(marked).rotate(5, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    displayed = np.asarray(skewed.rotate(90, expand=True))
    found = upright(level(displayed, None, 12, options), options)
    assert found.rotation_deg == 90

    def mark(rgb: Rgb) -> tuple[float, float]:
        rows, columns = np.nonzero((rgb[..., 0] > 150) & (rgb[..., 1] < 100))
        return columns.mean() + 0.5, rows.mean() + 0.5

    assert apply(found.transform, np.array([mark(displayed)]))[0] == pytest.approx(mark(found.rgb), abs=1)


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_quarter_transforms_agree_with_turning(degrees: int) -> None:
    picture = np.arange(6 * 4).reshape(4, 6)
    turned = np.rot90(picture, k=-degrees // 90)
    x, y = apply(quarter_transform(degrees, 6, 4), np.array([[4.5, 1.5]]))[0]
    assert turned[int(y), int(x)] == picture[1, 4]


@pytest.mark.parametrize(
    ("ink", "ground"),
    [("black", "white"), ("white", "black"), ("#b8b8b8", "white"), ("#4a4a4a", "#121212"), ("#3050ff", "#ff5030")],
)
def test_enhanced_text_is_dark_on_light(draw, ink: str, ground: str) -> None:
    found = enhance(draw(TEXT, ink=ink, ground=ground), 12, EnhanceOptions())
    assert np.median(found.gray) > 245
    assert np.percentile(found.gray, 1) < 60


def test_panels_of_both_kinds_come_out_alike(draw) -> None:
    panels = np.concatenate([draw(TEXT), draw(TEXT, ink="white", ground="#202020")])
    gray = enhance(panels, 12, EnhanceOptions()).gray
    upper, lower = np.array_split(gray, 2)
    assert abs(float(upper.mean()) - float(lower.mean())) < 6


@pytest.mark.parametrize(("height", "scale"), [(10, 2), (20, 1), (40, 0.5), (2, 4), (500, 0.3)])
def test_scale_brings_glyphs_to_the_aimed_height(height: float, scale: float) -> None:
    found = enhance(np.full((100, 120, 3), 255, np.uint8), height, EnhanceOptions(glyph_px=20))
    assert found.scale == pytest.approx(scale)
    assert found.gray.shape == (100 * scale, 120 * scale)
    assert apply(found.transform, np.array([[120.0, 100.0]]))[0].tolist() == [120 * scale, 100 * scale]


def test_scale_stays_under_the_pixel_limit() -> None:
    found = enhance(np.full((1000, 1000, 3), 255, np.uint8), 5, EnhanceOptions(max_pixels=1_000_000))
    assert found.gray.size <= 1_000_000
