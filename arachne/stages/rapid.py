"""The second reader: RapidOCR's bundled models on pixels only, for what Tesseract reads weakly or misses."""

import logging
import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Protocol, cast

import cv2
import numpy as np

from arachne.stages.arrays import Box, Gray, Samples, resized

if TYPE_CHECKING:
    from rapidocr import RapidOCR
    from rapidocr.ch_ppocr_det import TextDetector
    from rapidocr.ch_ppocr_rec import TextRecognizer
    from rapidocr.ch_ppocr_rec.typings import WordInfo

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before onnxruntime is loaded: it would tell its maker of every start
READER = "rapidocr"
LINE_PX = 40  # a picture no higher is one line
_MAX_SIDE_PX = 1024  # lines are found as well as at 1280, for two thirds of the time
_BORDER_PX = 24  # text at the very edge is missed else
_KNOWN_SHARE = 0.75  # of a line's width
_BATCH = 6
_MAX_LINES = 300
_PAD = 0.06  # of a line's height


class SecondReaderLost(Exception):  # noqa: N818 - it tells what happened; the image is read all the same
    """The second reader gave no answer; says why."""


@dataclass(frozen=True)
class SeenCharacter:
    """A character, where along its line it stands in px of the picture, and whether white was seen before it."""

    text: str
    x: float
    confidence: float
    spaced: bool


@dataclass(frozen=True)
class SeenLine:
    """A line as the second reader sees it, with its box in pixels of the picture it was given."""

    box: Box
    characters: tuple[SeenCharacter, ...]

    @property
    def confidence(self) -> float:
        """The mean over its characters, 0..1."""
        return sum(one.confidence for one in self.characters) / max(1, len(self.characters))


class SecondReader(Protocol):
    """Something that takes a second look at a picture."""

    def __call__(self, gray: Gray, known: Sequence[Box]) -> tuple[SeenLine, ...]:
        """The lines of uint8 (H, W), but for those that are all but covered by the boxes already `known` well.

        A picture no higher than `LINE_PX` is taken for one line.

        Raises:
            SecondReaderLost: it gave no answer.
        """


def look(gray: Gray, known: Sequence[Box]) -> tuple[SeenLine, ...]:
    """The lines of uint8 (H, W) that are not `known`, read in this process.

    Raises:
        SecondReaderLost: RapidOCR is not installed, or failed.
    """
    try:
        return _look(_engine(), gray, known)
    except ImportError as error:
        raise SecondReaderLost("RapidOCR is not installed; `pip install rapidocr onnxruntime` brings it.") from error
    except (RuntimeError, ValueError, cv2.error) as error:
        raise SecondReaderLost(f"RapidOCR failed: {error}") from error


def _look(engine: "RapidOCR", gray: Gray, known: Sequence[Box]) -> tuple[SeenLine, ...]:
    whole = [Box(0.0, 0.0, float(gray.shape[1]), float(gray.shape[0]))]
    found = whole if gray.shape[0] <= LINE_PX else _detect(engine, gray)
    boxes = [box for box in found if not _is_known(box, known)][:_MAX_LINES]
    boxes.sort(key=lambda box: box.width / box.height)  # those read at once are padded to the longest
    lines = list[SeenLine]()
    for start in range(0, len(boxes), _BATCH):
        batch = boxes[start : start + _BATCH]
        lines += _recognise(engine, [_cut_out(gray, box) for box in batch], batch)
    return tuple(sorted((line for line in lines if line.characters), key=lambda line: (line.box.y, line.box.x)))


def installed_version() -> str | None:
    """RapidOCR's version, such as 3.10.0; None where it is not installed."""
    try:
        return version("rapidocr")
    except PackageNotFoundError:
        return None


@lru_cache(maxsize=1)
def _engine() -> "RapidOCR":
    from rapidocr import RapidOCR  # noqa: PLC0415 - large, and never wanted in a stage subprocess

    logging.getLogger("RapidOCR").setLevel(logging.ERROR)
    threads = dict.fromkeys(("intra_op_num_threads", "inter_op_num_threads"), 1)
    settings: dict[str, object] = {f"EngineConfig.onnxruntime.{name}": count for name, count in threads.items()}
    settings |= {"Global.log_level": "error", "Det.limit_type": "max", "Det.limit_side_len": _MAX_SIDE_PX}
    return RapidOCR(params=settings)


def _detector(engine: "RapidOCR") -> "TextDetector":
    # Its own call reads every line it finds; only the two models apart allow to leave out what is known.
    return cast("TextDetector", engine._load_det_model())  # type: ignore[no-untyped-call]  # noqa: SLF001


def _recogniser(engine: "RapidOCR") -> "TextRecognizer":
    return cast("TextRecognizer", engine._load_rec_model())  # type: ignore[no-untyped-call]  # noqa: SLF001


def _detect(engine: "RapidOCR", gray: Gray) -> list[Box]:
    """Boxes around lines in the picture's pixels, from the top."""
    factor = min(1.0, _MAX_SIDE_PX / max(gray.shape))
    edge = _BORDER_PX
    small = cv2.copyMakeBorder(resized(gray, factor), edge, edge, edge, edge, cv2.BORDER_REPLICATE)
    found = _detector(engine)(cv2.cvtColor(small, cv2.COLOR_GRAY2BGR)).boxes
    if found is None:
        return []
    quads = (np.asarray(found, dtype=np.float64) - edge) / factor
    low, high = quads.min(axis=1), quads.max(axis=1)
    return [Box(*map(float, (*corner, *size))) for corner, size in zip(low, high - low, strict=True)]


def _is_known(box: Box, known: Sequence[Box]) -> bool:
    covered = 0.0
    for word in known:
        if min(word.bottom, box.bottom) - max(word.y, box.y) > 0.5 * min(word.height, box.height):
            covered += max(0.0, min(word.right, box.right) - max(word.x, box.x))
    return covered > _KNOWN_SHARE * box.width


def _cut_out(gray: Gray, box: Box) -> Samples:
    """The line with a little around it, uint8 (H, W, 3)."""
    pad = _PAD * box.height
    top, left = max(0, int(box.y - pad)), max(0, int(box.x - pad))
    part = gray[top : int(box.bottom + pad) + 1, left : int(box.right + pad) + 1]
    return np.asarray(cv2.cvtColor(np.ascontiguousarray(part), cv2.COLOR_GRAY2BGR), dtype=np.uint8)


def _recognise(engine: "RapidOCR", crops: list[Samples], boxes: list[Box]) -> list[SeenLine]:
    from rapidocr.ch_ppocr_rec import TextRecInput  # noqa: PLC0415

    found = _recogniser(engine)(TextRecInput(img=crops, return_word_box=True))
    infos = cast("tuple[WordInfo, ...]", found.word_results)
    return [
        SeenLine(box, _characters(box, text, info))
        for box, text, info in zip(boxes, found.txts or (), infos, strict=True)
    ]


def _characters(box: Box, text: str, found: "WordInfo") -> tuple[SeenCharacter, ...]:
    """The line's characters but white space, each with the place the model told it at."""
    columns = [column for word in found.word_cols for column in word]
    characters, spaced = list[SeenCharacter](), False
    for letter, confidence in zip(text, found.confs, strict=False):
        if letter.isspace():
            spaced = True
        elif len(characters) < len(columns):
            x = box.x + box.width * columns[len(characters)] / max(1.0, found.line_txt_len)
            characters.append(SeenCharacter(unicodedata.normalize("NFKC", letter), x, float(confidence), spaced))
            spaced = False
    return tuple(characters)
