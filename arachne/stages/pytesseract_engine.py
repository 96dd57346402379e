"""Tesseract through its program, for platforms without a tesserocr wheel."""

import shutil
from pathlib import Path

import pytesseract
from PIL import Image

from arachne.errors import SetupError
from arachne.stages.arrays import Box, Gray
from arachne.stages.engine import EngineWord


class PytesseractEngine:
    """The `tesseract` program, started once a reading."""

    def __init__(self, tessdata_dir: Path, languages: tuple[str, ...]) -> None:
        if shutil.which("tesseract") is None:
            raise SetupError("Neither tesserocr nor the tesseract program is there. Install the package tesseract-ocr.")
        self._tessdata_dir = tessdata_dir
        self._languages = "+".join(languages)

    def read(self, gray: Gray, mode: int, limit_s: float) -> tuple[EngineWord, ...]:
        """The words of uint8 (H, W), none where `limit_s` is up."""
        config = f'--psm {mode} --tessdata-dir "{self._tessdata_dir}" -c tessedit_do_invert=0'
        try:
            table = pytesseract.image_to_data(
                Image.fromarray(gray),
                lang=self._languages,
                config=config,
                timeout=max(1, int(limit_s)),
                output_type=pytesseract.Output.DICT,
            )
        except RuntimeError as error:
            if "timeout" in str(error).lower():
                return ()
            raise
        return tuple(_words(table))


def _words(table: dict[str, list[int | float | str]]) -> list[EngineWord]:
    words, lines = list[EngineWord](), dict[tuple[object, ...], int]()
    for index, text in enumerate(table["text"]):
        if not str(text).strip():
            continue
        key = table["block_num"][index], table["par_num"][index], table["line_num"][index]
        box = Box(*(float(table[side][index]) for side in ("left", "top", "width", "height")))
        confidence = min(1.0, max(0.0, float(table["conf"][index]) / 100))
        words.append(EngineWord(str(text).strip(), box, confidence, lines.setdefault(key, len(lines))))
    return words
