"""Resident memory of a GPU worker and of its subprocesses over many images, early and at the end.

Every image is read: none is answered from the cache. Subprocesses are replaced now and then and grow in between, so
each figure is the median over the images around its mark.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from launch import Service, create_account  # noqa: E402  # a neighbour of this folder's

IMAGES = sorted((ROOT / "tests" / "images").glob("*.png"))
RATE = "1000000/minute"
MIB = 1024 * 1024
SAMPLE_S = 0.25
WARM_UP, WINDOW = 0.1, 0.1  # of all images


@dataclass(frozen=True)
class Sample:
    """Resident bytes when so many images were done."""

    done: int
    worker: int
    subprocesses: int


@dataclass
class Watch:
    """Samples of a worker, taken beside the work."""

    process: psutil.Process
    done: int = 0
    samples: list[Sample] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def look(self) -> None:
        """Take a sample."""
        children = 0
        for child in self.process.children(recursive=True):
            try:
                children += child.memory_info().rss
                self.seen.add(child.pid)
            except psutil.NoSuchProcess:
                continue
        self.samples.append(Sample(self.done, self.process.memory_info().rss, children))

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Samples are taken meanwhile."""
        stopping = threading.Event()

        def run() -> None:
            while not stopping.wait(SAMPLE_S):
                self.look()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()

    def around(self, start: float, end: float) -> dict[str, float]:
        """Medians in MiB over the samples while that many images were done."""
        chosen = [sample for sample in self.samples if start <= sample.done <= end] or self.samples[-1:]
        worker = statistics.median(sample.worker for sample in chosen)
        subprocesses = statistics.median(sample.subprocesses for sample in chosen)
        return {"worker_mib": round(worker / MIB, 1), "subprocesses_mib": round(subprocesses / MIB, 1)}


def main() -> None:
    """Print what was measured as a line of JSON."""
    parser = argparse.ArgumentParser(prog="scripts/bench/soak", description=__doc__)
    parser.add_argument("images", type=int, nargs="?", default=2000, help="images to read")
    parser.add_argument("--detail-level", choices=("fast", "standard"), default="standard")
    parser.add_argument("--batch", type=int, default=20, help="images a job")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="arachne-soak-") as folder:
        os.environ |= {"ARACHNE_VISION_RATE_LIMIT": RATE, "ARACHNE_IMAGE_RATE_LIMIT": RATE}
        with Service(Path(folder) / "data", 0, 9) as service:
            service.await_ready()
            sys.stdout.write(json.dumps(measure(service, given.images, given.batch, given.detail_level)) + "\n")


def measure(service: Service, number: int, batch: int, detail_level: str) -> dict[str, object]:
    """Read so many images and tell the memory after the first tenth and at the end."""
    account = create_account(service.data_dir, "soak")
    watch = Watch(worker_of(service))
    with httpx.Client(base_url=service.url, timeout=90, trust_env=False) as api, watch.looking():
        failed = 0
        for first in range(0, number, batch):
            failed += read(api, account, range(first, min(number, first + batch)), detail_level, watch)
            sys.stderr.write(f"\r{watch.done} of {number} images")
        sys.stderr.write("\n")
    early = watch.around(number * WARM_UP, number * (WARM_UP + WINDOW))
    late = watch.around(number * (1 - WINDOW), number)
    return {
        "images": number,
        "failed": failed,
        "detail_level": detail_level,
        "after_warm_up": early,
        "end": late,
        "ratio": {name.removesuffix("_mib"): round(late[name] / early[name], 3) for name in early},
        "ratio_of_sums": round(sum(late.values()) / sum(early.values()), 3),
        "peak_mib": round(max(one.worker + one.subprocesses for one in watch.samples) / MIB, 1),
        "subprocesses_seen": len(watch.seen),
    }


def worker_of(service: Service) -> psutil.Process:
    """The GPU worker of a running service."""
    for child in psutil.Process(service.process.pid).children(recursive=True):
        if child.cmdline()[-2:] == ["worker", "gpu"]:
            return child
    raise SystemExit("the service has no GPU worker")


def read(api: httpx.Client, account: dict[str, str], numbers: range, detail_level: str, watch: Watch) -> int:
    """Number of these images that failed; the others are read."""
    credentials = (account["client_id"], account["client_secret"])
    token = api.post("/api/auth/token", data={"grant_type": "client_credentials"}, auth=credentials).json()
    headers = {"Authorization": f"Bearer {token['access_token']}"}
    files = [("files", (f"{number}.png", distinct(number), "image/png")) for number in numbers]
    options = {"detail_level": detail_level, "cache": "bypass"}
    answer = api.post("/api/extract/images", files=files, data={"options": json.dumps(options)}, headers=headers)
    answer.raise_for_status()
    job = answer.json()
    while not job["finished"]:
        time.sleep(SAMPLE_S)
        job = api.get(f"/api/extract/image-jobs/{job['job_id']}", headers=headers).raise_for_status().json()
        watch.done = numbers.start + job["progress"]["completed"] + job["progress"]["failed"]
    return int(job["progress"]["failed"])


def distinct(number: int) -> bytes:
    """A picture whose bytes no other has: what comes after a PNG's end is not looked at."""
    return IMAGES[number % len(IMAGES)].read_bytes() + number.to_bytes(4, "big")


if __name__ == "__main__":
    main()
