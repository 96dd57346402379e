"""Images with truth, what a reading scores, and the readers to compare with."""

import os
import re
import shutil
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytesseract
from PIL import Image
from rapidfuzz.distance import Levenshtein

Reader = Callable[[Path, tuple[str, ...]], str]
_FOLDED = str.maketrans(
    dict.fromkeys("\u201c\u201d\u201e", '"')
    | dict.fromkeys("\u2018\u2019`", "'")
    | dict.fromkeys("\u2014\u2013\u2212\u2010", "-")
    | dict.fromkeys("\u203a\u276f", ">")
    | dict.fromkeys("\u2022\u00b7", " ")
)
SCREENSHOTS = ("ui", "code", "terminal", "table")
_SUFFIXES = {".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".bmp", ".gif"}


@dataclass(frozen=True)
class Sample:
    """An image, its kind and its text."""

    path: Path
    kind: str
    truth: str

    @property
    def thai(self) -> bool:
        """Whether words are written without spaces."""
        return bool(re.search("[\u0e00-\u0e7f]", self.truth))


def samples(folder: Path) -> list[Sample]:
    """All images of the folder that have a truth beside them, as `<name>.txt` or `<name>.<suffix>.txt`."""
    kinds = dict(_kinds(folder)) | dict(_kinds(folder.parent))
    found = []
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in _SUFFIXES:
            for truth in (path.with_name(f"{path.name}.txt"), path.with_suffix(".txt")):
                if truth.is_file():
                    found.append(Sample(path, kinds.get(path.name, "all"), truth.read_text(encoding="utf-8")))
                    break
    return found


def screenshots(folders: Iterable[Path]) -> list[Path]:
    """Those images of the folders that are no scans and no photos, as far as an index tells."""
    found = [sample for folder in folders for sample in samples(folder)]
    return [one.path for one in found if one.kind == "all" or one.kind.startswith(SCREENSHOTS)]


def _kinds(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and kind of each image an INDEX.tsv lists; its first line names the columns `file` and `kind`."""
    index = folder / "INDEX.tsv"
    if index.is_file():
        first, *lines = index.read_text(encoding="utf-8").splitlines()
        columns = first.split("\t")
        for line in lines:
            cells = line.split("\t")
            yield Path(cells[columns.index("file")]).name, cells[columns.index("kind")]


def score(sample: Sample, reading: str) -> tuple[float, float]:
    """Word-F1, which ignores order, and the character error rate, at most 1."""
    truth, text = normalised(sample.truth, thai=sample.thai), normalised(reading, thai=sample.thai)
    words, read = Counter(truth.split()), Counter(text.split())
    f1 = 2 * (words & read).total() / max(1, words.total() + read.total())
    return f1, min(1.0, Levenshtein.distance(truth, text) / max(1, len(truth)))


def normalised(text: str, *, thai: bool) -> str:
    """The text in one form of each letter, quote and dash, with single spaces."""
    text = unicodedata.normalize("NFKC", text).replace("\u2026", "...").translate(_FOLDED).replace("\f", " ")
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"(?<=[\u0e00-\u0e7f]) (?=[\u0e00-\u0e7f])", "", text) if thai else text


def bare_pytesseract(tessdata_dir: Path) -> Reader | None:
    """Pytesseract as most call it; None where the program is not on the PATH."""
    if shutil.which("tesseract") is None:
        return None
    config = f'--tessdata-dir "{tessdata_dir}"'

    def read(path: Path, languages: tuple[str, ...]) -> str:
        with Image.open(path) as image:
            return str(pytesseract.image_to_string(image.convert("RGB"), lang="+".join(languages), config=config))

    return read


def bare_tesserocr(tessdata_dir: Path) -> Reader:
    """Tesserocr with one interface for all images."""
    import tesserocr  # noqa: PLC0415 - some platforms have no wheel

    interfaces: dict[tuple[str, ...], tesserocr.PyTessBaseAPI] = {}

    def read(path: Path, languages: tuple[str, ...]) -> str:
        if languages not in interfaces:
            interfaces[languages] = tesserocr.PyTessBaseAPI(path=f"{tessdata_dir}{os.sep}", lang="+".join(languages))
        with Image.open(path) as image:
            interfaces[languages].SetImage(image.convert("L"))
        return str(interfaces[languages].GetUTF8Text())

    return read


def rapidocr_alone() -> Reader:
    """RapidOCR on RGB arrays, one thread, long side at most 1280 px."""
    from rapidocr import RapidOCR  # noqa: PLC0415 - large

    threads = dict.fromkeys(("intra_op_num_threads", "inter_op_num_threads"), 1)
    engine = RapidOCR(
        params={"Global.max_side_len": 1280, "Global.log_level": "error"}
        | {f"EngineConfig.onnxruntime.{name}": count for name, count in threads.items()}
    )

    def read(path: Path, _languages: tuple[str, ...]) -> str:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))[..., ::-1]
        return "\n".join(engine(np.ascontiguousarray(pixels)).txts or ())

    return read
