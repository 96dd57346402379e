"""Images a second of `fast` and `standard` through the worker's pool, beside bare Tesseract, and each one's memory."""

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import psutil
from readings import Reader, bare_pytesseract, bare_tesserocr, screenshots

from arachne import languages
from arachne.actors.pool import StagePool
from arachne.actors.second_reader import second_reader
from arachne.actors.stage_process import THREAD_LIMITS, Done
from arachne.pipeline import ReadRequest, read_image
from arachne.schemas.options import DetailLevel, Options
from arachne.settings import Settings

ROOT = Path(__file__).resolve().parent.parent.parent
WORKERS = 2
_rates = dict[str, float]()


def main() -> None:
    """Print a line for each reader."""
    parser = argparse.ArgumentParser(prog="scripts/bench/throughput", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="*", default=[ROOT / "tests" / "images"], help="folders of images")
    parser.add_argument("--rounds", type=int, default=1, help="how often each image is read")
    parser.add_argument("--tessdata-dir", type=Path, help="more language data")
    asked = parser.parse_args()
    paths = screenshots(asked.folders) * asked.rounds
    sys.stdout.write(f"{len(paths)} images, {WORKERS} workers\n")
    with tempfile.TemporaryDirectory(prefix="arachne-throughput-") as folder:
        tessdata_dir = languages.merge(asked.tessdata_dir, Path(folder))
        if bare_pytesseract(tessdata_dir) is None:
            sys.stdout.write("pytesseract: left out, since no tesseract program is on the PATH\n")
        else:
            for name in THREAD_LIMITS:  # as a program that is just called has it; Arachne's import sets some
                os.environ.pop(name, None)
            tell("pytesseract", len(paths), lambda: through_threads(bare_pytesseract(tessdata_dir), paths))
        os.environ |= THREAD_LIMITS
        with ProcessPoolExecutor(WORKERS, get_context("spawn"), start_tesserocr, (tessdata_dir,)) as processes:
            list(processes.map(read_barely, paths[:WORKERS] * 2))  # starts them
            tell("tesserocr", len(paths), lambda: list(processes.map(read_barely, paths)))
        levels: tuple[DetailLevel, ...] = ("fast", "standard")
        for level in levels:
            with pool() as stages:
                request = ReadRequest(Options(detail_level=level), ("eng",), tessdata_dir, 50_000_000, 1, 100)
                through_pool(stages, paths[:WORKERS] * 2, request)  # starts them
                tell(level, len(paths), partial(through_pool, stages, paths, request))


def tell(name: str, count: int, work: Callable[[], object]) -> None:
    """Print images a second, how many times the first reader's that is, and the most memory each process had."""
    with watched() as peaks:
        started = time.perf_counter()
        work()
        taken_s = time.perf_counter() - started
    first_rate = _rates.setdefault("first", count / taken_s)
    told = ", ".join(f"{peak >> 20}" for peak in sorted(peaks.values(), reverse=True) if peak > 32 << 20)
    rate = f"{count / taken_s:6.2f} images/s {count / taken_s / first_rate:5.2f}x"
    sys.stdout.write(f"{name:12s} {rate}   peak MiB of each process: {told}\n")
    sys.stdout.flush()


@contextmanager
def watched() -> Iterator[dict[int, int]]:
    """Most resident bytes by process of this one and all below it."""
    peaks, done = dict[int, int](), threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
                try:
                    peaks[process.pid] = max(peaks.get(process.pid, 0), process.memory_info().rss)
                except psutil.Error:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peaks
    finally:
        done.set()
        watcher.join()


@contextmanager
def pool() -> Iterator[StagePool]:
    """The worker's pool of stage subprocesses, with its second reader."""
    settings = Settings.load().model_copy(update={"cpu_workers": WORKERS})
    with second_reader() as second:
        stages = StagePool(partial(read_image, second=second), settings)
        try:
            yield stages
        finally:
            stages.stop()


def through_pool(stages: StagePool, paths: Sequence[Path], request: ReadRequest) -> None:
    """All images read, as a worker has them read."""
    left = threading.Semaphore(0)

    def ended(future: "Future[Done]", _: bytes) -> None:
        if future.exception():
            sys.stderr.write(f"{future.exception()}\n")
        left.release()

    for path in paths:
        stages.schedule(path.read_bytes(), request, ended)
    for _ in paths:
        left.acquire()


def through_threads(reader: Reader | None, paths: Sequence[Path]) -> None:
    """All images read by a program that is started for each."""
    assert reader is not None
    with ThreadPoolExecutor(WORKERS) as threads:
        list(threads.map(lambda path: reader(path, ("eng",)), paths))


def start_tesserocr(tessdata_dir: Path) -> None:
    """This process's interface."""
    globals()["_bare"] = bare_tesserocr(tessdata_dir)


def read_barely(path: Path) -> int:
    """How many letters there are."""
    return len(globals()["_bare"](path, ("eng",)))


if __name__ == "__main__":
    main()
