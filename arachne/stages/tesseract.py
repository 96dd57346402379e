"""Tesseract in this process: one engine a set of languages, given pixels only, with a time limit.

tesserocr's wheel bundles old image libraries, so Tesseract never opens a file that isn't its own data.
"""

import os

os.environ.setdefault("OMP_THREAD_LIMIT", "1")  # before the library starts its threads; more make it slower

import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from arachne.languages import ORIENTATION
from arachne.stages.arrays import Box, Gray
from arachne.stages.bands import read_in_bands
from arachne.stages.engine import MARGIN_PX, RESOLUTION_DPI, Engine, EngineWord, Script, ScriptFinder, spelled

if TYPE_CHECKING:
    from tesserocr import PyTessBaseAPI

_VARIABLES = {"tessedit_do_invert": "0", "debug_file": os.devnull}  # ink is dark already; layout notes are no errors


class TesserocrEngine:
    """Tesseract through its C++ interface."""

    def __init__(self, api: "PyTessBaseAPI") -> None:
        self._api = api
        for name, value in _VARIABLES.items():
            api.SetVariable(name, value)

    def read(self, gray: Gray, mode: int, limit_s: float) -> tuple[EngineWord, ...]:
        """The words of uint8 (H, W), fewer where `limit_s` is up.

        Raises:
            RuntimeError: Tesseract gave up before that.
        """
        self._api.SetPageSegMode(mode)
        return read_in_bands(gray, limit_s, self._read)

    def _read(self, gray: Gray, limit_s: float) -> tuple[EngineWord, ...]:
        framed = np.pad(gray, MARGIN_PX, constant_values=255)
        height, width = framed.shape
        self._api.SetImageBytes(framed.tobytes(), width, height, 1, width)
        self._api.SetSourceResolution(RESOLUTION_DPI)
        try:
            started = time.monotonic()
            done = self._api.Recognize(max(1, int(limit_s * 1000)))
            if not done and time.monotonic() - started < limit_s:
                raise RuntimeError("recognition stopped, most likely for want of memory")
            return tuple(self._words())
        finally:
            self._api.Clear()  # forgets the picture, keeps the language data

    def _words(self) -> Iterator[EngineWord]:
        from tesserocr import RIL, iterate_level  # noqa: PLC0415 - some platforms have no wheel

        found = self._api.GetIterator()
        if found is None:
            return
        line = -1
        for at in iterate_level(found, RIL.WORD):
            if at.Empty(RIL.WORD):
                continue
            line += at.IsAtBeginningOf(RIL.TEXTLINE)
            text, box = at.GetUTF8Text(RIL.WORD), at.BoundingBox(RIL.WORD)
            if text and text.strip() and box is not None:
                x0, y0, x1, y1 = box
                place = Box(x0 - MARGIN_PX, y0 - MARGIN_PX, x1 - x0, y1 - y0)
                confidence = min(1.0, max(0.0, at.Confidence(RIL.WORD) / 100))
                yield EngineWord(text.strip(), place, confidence, max(line, 0))


class TesserocrScriptFinder:
    """Tesseract's detection of scripts through its C++ interface; it looks at few characters and is soon done."""

    def __init__(self, api: "PyTessBaseAPI") -> None:
        self._api = api
        api.SetVariable("debug_file", os.devnull)

    def find(self, gray: Gray, characters: int) -> Script | None:
        """The script of dark text on light ground, uint8 (H, W); None where there are fewer characters than that."""
        framed = np.pad(gray, MARGIN_PX, constant_values=255)
        height, width = framed.shape
        self._api.SetVariable("min_characters_to_try", str(characters))
        self._api.SetImageBytes(framed.tobytes(), width, height, 1, width)
        self._api.SetSourceResolution(RESOLUTION_DPI)
        try:
            found = self._api.DetectOrientationScript()
        finally:
            self._api.Clear()
        return Script(found["script_name"], float(found["script_conf"])) if found else None


@lru_cache(maxsize=1)
def script_finder(tessdata_dir: Path) -> ScriptFinder | None:
    """This process's way to tell scripts apart; None without the data for it.

    Raises:
        RuntimeError: the data can't be loaded.
    """
    if not (tessdata_dir / f"{ORIENTATION}.traineddata").exists():
        return None
    try:
        import tesserocr  # noqa: PLC0415 - some platforms have no wheel
    except ImportError:
        from arachne.stages.pytesseract_engine import PytesseractScriptFinder  # noqa: PLC0415

        return PytesseractScriptFinder(tessdata_dir)
    mode = tesserocr.PSM.OSD_ONLY
    return TesserocrScriptFinder(tesserocr.PyTessBaseAPI(path=f"{tessdata_dir}{os.sep}", lang=ORIENTATION, psm=mode))


@lru_cache(maxsize=4)
def engine(tessdata_dir: Path, languages: tuple[str, ...]) -> Engine:
    """This process's engine for these languages; reused, since loading takes longer than reading.

    Raises:
        RuntimeError: the language data can't be loaded.
    """
    try:
        import tesserocr  # noqa: PLC0415 - some platforms have no wheel
    except ImportError:
        from arachne.stages.pytesseract_engine import PytesseractEngine  # noqa: PLC0415

        return PytesseractEngine(tessdata_dir, languages)
    return TesserocrEngine(tesserocr.PyTessBaseAPI(path=f"{tessdata_dir}{os.sep}", lang=spelled(languages)))


def version() -> str:
    """Tesseract's version, such as 5.5.4."""
    try:
        import tesserocr  # noqa: PLC0415
    except ImportError:
        import pytesseract  # noqa: PLC0415

        return str(pytesseract.get_tesseract_version())
    return str(tesserocr.tesseract_version()).split()[1]
