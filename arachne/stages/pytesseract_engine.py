"""Tesseract through its program, for platforms without a tesserocr wheel."""

import os
import shutil
from pathlib import Path
from typing import Final

import numpy as np
import pytesseract
from PIL import Image

from arachne.errors import SetupError
from arachne.languages import ORIENTATION
from arachne.stages.arrays import Box, Gray
from arachne.stages.bands import read_in_bands
from arachne.stages.engine import MARGIN_PX, RESOLUTION_DPI, EngineWord, Script, spelled

_TOO_FEW: Final = "Too few characters"
_SCRIPT_LIMIT_S = 10


class PytesseractEngine:
    """The `tesseract` program, started once a reading."""

    def __init__(self, tessdata_dir: Path, languages: tuple[str, ...]) -> None:
        _require_program()
        self._tessdata_dir = tessdata_dir
        self._languages = spelled(languages)
        missing = [code for code in languages if not (tessdata_dir / f"{code}.traineddata").exists()]
        if missing:
            raise RuntimeError(f"no data for {', '.join(missing)}")

    def read(self, gray: Gray, mode: int, limit_s: float) -> tuple[EngineWord, ...]:
        """The words of uint8 (H, W), fewer where `limit_s` is up.

        Raises:
            RuntimeError: the program fails.
        """
        return read_in_bands(gray, limit_s, lambda band, left_s: self._read(band, mode, left_s))

    def _read(self, gray: Gray, mode: int, limit_s: float) -> tuple[EngineWord, ...]:
        config = (
            f'--psm {mode} --dpi {RESOLUTION_DPI} --tessdata-dir "{self._tessdata_dir}" '
            f"-c tessedit_do_invert=0 -c debug_file={os.devnull}"
        )
        try:
            table = pytesseract.image_to_data(
                _framed(gray),
                lang=self._languages,
                config=config,
                timeout=max(1, int(limit_s)),
                output_type=pytesseract.Output.DICT,
            )
        except RuntimeError as error:
            if _is_timeout(error):
                return ()
            raise
        return tuple(_words(table))


class PytesseractScriptFinder:
    """The program's detection of scripts."""

    def __init__(self, tessdata_dir: Path) -> None:
        _require_program()
        self._tessdata_dir = tessdata_dir

    def find(self, gray: Gray, characters: int) -> Script | None:
        """The script of dark text on light ground, uint8 (H, W); None where there are fewer characters than that.

        Raises:
            RuntimeError: the program fails.
        """
        config = f'--dpi {RESOLUTION_DPI} --tessdata-dir "{self._tessdata_dir}" -c min_characters_to_try={characters}'
        try:
            found = pytesseract.image_to_osd(
                _framed(gray),
                lang=ORIENTATION,
                config=config,
                timeout=_SCRIPT_LIMIT_S,
                output_type=pytesseract.Output.DICT,
            )
        except RuntimeError as error:
            if _TOO_FEW in str(error) or _is_timeout(error):
                return None
            raise
        return Script(str(found["script"]), float(found["script_conf"]))


def _require_program() -> None:
    if shutil.which("tesseract") is None:
        raise SetupError("Neither tesserocr nor the tesseract program is there. Install the package tesseract-ocr.")


def _framed(gray: Gray) -> Image.Image:
    return Image.fromarray(np.pad(gray, MARGIN_PX, constant_values=255))


def _is_timeout(error: RuntimeError) -> bool:
    return "timeout" in str(error).lower()


def _words(table: dict[str, list[int | float | str]]) -> list[EngineWord]:
    words, lines = list[EngineWord](), dict[tuple[object, ...], int]()
    for index, text in enumerate(table["text"]):
        if not str(text).strip():
            continue
        key = table["block_num"][index], table["par_num"][index], table["line_num"][index]
        x, y, width, height = (float(table[side][index]) for side in ("left", "top", "width", "height"))
        box = Box(x - MARGIN_PX, y - MARGIN_PX, width, height)
        confidence = min(1.0, max(0.0, float(table["conf"][index]) / 100))
        words.append(EngineWord(str(text).strip(), box, confidence, lines.setdefault(key, len(lines))))
    return words
