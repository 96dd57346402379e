"""Pictures with known text, drawn with Pillow's own font, and the language data the package ships."""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from arachne import languages
from arachne.stages import tesseract
from arachne.stages.arrays import Rgb

Draw = Callable[..., Rgb]


@pytest.fixture(scope="session")
def tessdata_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return languages.merge(None, tmp_path_factory.mktemp("tessdata"))


@pytest.fixture(scope="session")
def draw() -> Draw:
    """Draws (x, y, text) items on a canvas and gives uint8 (H, W, 3)."""

    def draw_texts(
        items: list[tuple[int, int, str]],
        size: tuple[int, int] = (640, 240),
        px: int = 22,
        ink: str = "black",
        ground: str = "white",
    ) -> Rgb:
        canvas = Image.new("RGB", size, ground)
        pen = ImageDraw.Draw(canvas)
        for x, y, text in items:
            pen.text((x, y), text, fill=ink, font=ImageFont.load_default(px))
        return np.asarray(canvas)

    return draw_texts


@pytest.fixture(params=["tesserocr", pytest.param("pytesseract", marks=pytest.mark.processes)])
def either_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Tesseract as a library, then as a program, wherever each is there."""
    if request.param == "tesserocr":
        pytest.importorskip("tesserocr")
        yield request.param
        return
    if shutil.which("tesseract") is None:
        pytest.skip("no tesseract program on the PATH")
    monkeypatch.setitem(sys.modules, "tesserocr", None)
    for cached in (tesseract.engine, tesseract.script_finder):
        cached.cache_clear()
    yield request.param
    for cached in (tesseract.engine, tesseract.script_finder):
        cached.cache_clear()
