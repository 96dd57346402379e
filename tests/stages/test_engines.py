"""Tesseract as a library and as a program: what both answer, and what the program does when it fails."""

import shutil
from pathlib import Path

import numpy as np
import pytesseract
import pytest

from arachne.errors import SetupError
from arachne.stages import tesseract
from arachne.stages.pytesseract_engine import PytesseractEngine, PytesseractScriptFinder

WHITE = np.full((60, 200), 255, np.uint8)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a language's data, as if a program was there to read with."""
    (tmp_path / "eng.traineddata").touch()
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    return tmp_path


def failing(error: Exception):
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_both_answer_alike(draw, tessdata_dir: Path) -> None:
    """Versions of Tesseract may differ by a pixel, never by a word or a line."""
    pytest.importorskip("tesserocr")
    if shutil.which("tesseract") is None:
        pytest.skip("no tesseract program on the PATH")
    gray = draw([(0, 0, "Send the report"), (30, 70, "before Friday noon"), (460, 200, "42.50")])[..., 0]
    program = PytesseractEngine(tessdata_dir, ("eng",)).read(gray, 6, 30)
    library = tesseract.engine(tessdata_dir, ("eng",)).read(gray, 6, 30)
    assert [(word.text, word.line) for word in program] == [(word.text, word.line) for word in library]
    assert len(program) == 7
    for one, other in zip(program, library, strict=True):
        assert one.box == pytest.approx(other.box, abs=3)
        assert one.confidence == pytest.approx(other.confidence, abs=0.1)


def test_a_program_that_takes_too_long_gives_nothing(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("image_to_data", "image_to_osd"):
        monkeypatch.setattr(pytesseract, name, failing(RuntimeError("Tesseract process timeout")))
    assert PytesseractEngine(program, ("eng",)).read(WHITE, 6, 1) == ()
    assert PytesseractScriptFinder(program).find(WHITE, 10) is None


def test_a_program_that_fails_says_so(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("image_to_data", "image_to_osd"):
        monkeypatch.setattr(pytesseract, name, failing(pytesseract.TesseractError(1, "out of luck")))
    with pytest.raises(RuntimeError, match="out of luck"):
        PytesseractEngine(program, ("eng",)).read(WHITE, 6, 1)
    with pytest.raises(RuntimeError, match="out of luck"):
        PytesseractScriptFinder(program).find(WHITE, 10)


def test_what_is_missing_is_named(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="no data for tha"):
        PytesseractEngine(program, ("eng", "tha"))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    for start in (lambda: PytesseractEngine(program, ("eng",)), lambda: PytesseractScriptFinder(program)):
        with pytest.raises(SetupError, match="tesseract-ocr"):
            start()
