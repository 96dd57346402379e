"""Word-F1, character error rate and time of Arachne and of bare readers, side by side over images with truth."""

import os

os.environ |= dict.fromkeys(("OMP_THREAD_LIMIT", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import argparse
import resource
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import cv2
from readings import Reader, Sample, bare_pytesseract, bare_tesserocr, rapidocr_alone, samples, score

from arachne import languages
from arachne.pipeline import ReadRequest, read_image
from arachne.schemas.options import DetailLevel, Options

Score = tuple[float, float, float]  # word-F1, CER, CPU seconds


def main() -> None:
    """Print a line for each kind and one for all, with a column for each reader."""
    parser = argparse.ArgumentParser(prog="scripts/bench/accuracy", description=__doc__)
    parser.add_argument("folder", type=Path, help="images, each with its text beside it as NAME.txt")
    parser.add_argument("--tessdata-dir", type=Path, help="more language data, such as tha and por")
    parser.add_argument("--images", action="store_true", help="a line for each image as well")
    asked = parser.parse_args()
    cv2.setNumThreads(1)
    found = samples(asked.folder)
    if not found:
        raise SystemExit(f"No image in {asked.folder} has its text beside it.")
    with tempfile.TemporaryDirectory(prefix="arachne-accuracy-") as folder:
        tessdata_dir = languages.merge(asked.tessdata_dir, Path(folder))
        available = languages.installed(asked.tessdata_dir)
        table = {name: measured(reader, found, available) for name, reader in readers(tessdata_dir).items()}
    show(found, table, each=asked.images)


def readers(tessdata_dir: Path) -> dict[str, Reader]:
    """All readers there are here."""
    found: dict[str, Reader] = {level: pipeline(level, tessdata_dir) for level in ("standard", "fast")}
    pytesseract = bare_pytesseract(tessdata_dir)
    if pytesseract is not None:
        found["pytesseract"] = pytesseract
    return found | {"tesserocr": bare_tesserocr(tessdata_dir), "rapidocr": rapidocr_alone()}


def pipeline(level: DetailLevel, tessdata_dir: Path) -> Reader:
    """Arachne's stages in this process."""

    def read(path: Path, chosen: tuple[str, ...]) -> str:
        request = ReadRequest(Options(detail_level=level), chosen, tessdata_dir, 50_000_000, 1, 100)
        return read_image(path.read_bytes(), request).text or ""

    return read


def measured(reader: Reader, found: list[Sample], available: tuple[str, ...]) -> list[Score]:
    """The reader's scores, image by image; one that fails reads nothing. The first image is read twice to warm up."""
    reader(found[0].path, ("eng",))
    scores = []
    for sample in found:
        started = cpu_s()
        try:
            text = reader(sample.path, chosen_for(sample, available))
        except Exception as error:  # a comparison that fails on an image has read nothing of it
            sys.stderr.write(f"{sample.path.name}: {type(error).__name__}: {error}\n")
            text = ""
        scores.append((*score(sample, text), cpu_s() - started))
    return scores


def chosen_for(sample: Sample, available: tuple[str, ...]) -> tuple[str, ...]:
    """English, and what the sample is written in besides, where it is installed; the same for all readers."""
    more = [code for code, wanted in (("tha", sample.thai), ("por", " por" in sample.kind)) if wanted]
    return ("eng", *(code for code in more if code in available))


def cpu_s() -> float:
    """Processor seconds of this process and its children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def show(found: list[Sample], table: dict[str, list[Score]], *, each: bool) -> None:
    """Word-F1 and CER by kind, and CPU seconds an image."""
    groups = defaultdict[str, list[int]](list)
    for number, sample in enumerate(found):
        groups[sample.kind].append(number)
        if each:
            groups[sample.path.name].append(number)
    groups["ALL"] = list(range(len(found)))
    print(f"{'word-F1 / CER / CPU s an image':32s}" + "".join(f"{name:>20s}" for name in table))
    for kind, numbers in groups.items():
        cells = [
            [sum(part) / len(numbers) for part in zip(*(column[n] for n in numbers), strict=True)]
            for column in table.values()
        ]
        print(f"{kind[:26]:26s}{len(numbers):5d} " + "".join(f"{f1:8.3f} {cer:5.3f} {s:5.2f}" for f1, cer, s in cells))


if __name__ == "__main__":
    started = time.monotonic()
    main()
    sys.stderr.write(f"{time.monotonic() - started:.0f} s in all\n")
