"""Memory of every process of a service, and its connections, over many jobs: after the first tenth and at the end.

Every image is read: none is answered from the cache. Subprocesses are replaced now and then and grow in between, so
each figure is the median over the images around its mark.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from threading import Lock

import httpx
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts" / "bench")]
from launch import Service, create_account  # noqa: E402  # a neighbour of this folder's
from receiver import Receiver  # noqa: E402
from watching import Watch, watch  # noqa: E402

IMAGES = sorted((ROOT / "tests" / "images").glob("*.png"))
RATE = "1000000/minute"
RATES = {f"ARACHNE_{name}_RATE_LIMIT": RATE for name in ("VISION", "IMAGE", "READ", "OTHER")}
CLIENTS = 6
PATIENCE_S = 60.0  # for the last webhooks
WARM_UP, WINDOW = 0.1, 0.1  # of all images
LITTLE = {"detail_level": "fast", "stages": ["assess"]}


@dataclass(frozen=True)
class Load:
    """So many jobs of so many images, read with these options."""

    jobs: int
    batch: int
    options: dict[str, object]
    draw: Callable[[int], bytes]

    @property
    def images(self) -> int:
        """Number of all images."""
        return self.jobs * self.batch


def main() -> None:
    """Print what was measured as a line of JSON."""
    parser = argparse.ArgumentParser(prog="scripts/bench/soak", description=__doc__)
    parser.add_argument("jobs", type=int, nargs="?", default=5000, help="jobs to send")
    parser.add_argument("--batch", type=int, default=1, help="images a job")
    parser.add_argument(
        "--detail-level",
        choices=("fast", "standard"),
        help="read screenshots with all stages of this level, instead of small pictures with the first two",
    )
    given = parser.parse_args()
    options, draw = (
        (LITTLE, small) if given.detail_level is None else ({"detail_level": given.detail_level}, screenshot)
    )
    load = Load(given.jobs, given.batch, {**options, "cache": "bypass"}, draw)
    os.environ |= RATES | {"ARACHNE_TOKEN_TTL_S": "86400"}
    with tempfile.TemporaryDirectory(prefix="arachne-soak-") as folder, Receiver() as receiver:
        with Service(Path(folder) / "data", 0, receiver.port) as service:
            service.await_ready()
            told = measure(service, load, receiver)
        sys.stdout.write(json.dumps(told) + "\n")


def measure(service: Service, load: Load, receiver: Receiver) -> dict[str, object]:
    """Read all images, and tell what the service held after the first tenth and at the end."""
    account = create_account(service.data_dir, "soak")
    with watch(service.data_dir, service.process.pid) as found, found.looking():
        failed = run(service, account, load, receiver, found)
    start, late_start = load.images * WARM_UP, load.images * (1 - WINDOW)
    early, late = found.around(start, start + load.images * WINDOW), found.around(late_start, load.images)
    return {
        "jobs": load.jobs,
        "images": load.images,
        "failed": failed,
        "deliveries": receiver.deliveries.qsize(),
        "options": load.options,
        "mib_after_warm_up": early,
        "mib_at_end": late,
        "ratio": {name: round(late[name] / early[name], 3) for name in early},
        "peak_mib": found.peak_mib(),
        "subprocesses_seen": len(found.seen),
        "most_connections": found.most_connections(),
        "most_connections_after_warm_up": found.most_connections(start),
    }


def run(service: Service, account: dict[str, str], load: Load, receiver: Receiver, found: Watch) -> int:
    """Number of images that failed; all are done, and each job's end was told by a webhook, or is overdue."""
    lock, left, failed = Lock(), iter(range(load.jobs)), 0

    def work(api: httpx.Client) -> None:
        nonlocal failed
        while (number := _next(left, lock)) is not None:
            fault = read(api, range(number * load.batch, (number + 1) * load.batch), load)
            with lock:
                failed += fault
                found.done += load.batch
                if found.done % (100 * load.batch) == 0:
                    sys.stderr.write(f"\r{found.done} of {load.images} images")

    with client(service, account) as api:
        api.post("/api/webhooks", json={"url": receiver.url}).raise_for_status()
        with ThreadPoolExecutor(CLIENTS) as threads:
            for worker in [threads.submit(work, api) for _ in range(CLIENTS)]:
                worker.result()
    sys.stderr.write("\n")
    ends_s = time.monotonic() + PATIENCE_S
    while receiver.deliveries.qsize() < load.jobs and time.monotonic() < ends_s:
        time.sleep(0.1)
    return failed


def _next(left: Iterator[int], lock: Lock) -> int | None:
    with lock:
        return next(left, None)


@contextmanager
def client(service: Service, account: dict[str, str]) -> Iterator[httpx.Client]:
    """A client of the service, signed in."""
    with httpx.Client(base_url=service.url, timeout=90, trust_env=False) as api:
        credentials = (account["client_id"], account["client_secret"])
        answer = api.post("/api/auth/token", data={"grant_type": "client_credentials"}, auth=credentials)
        api.headers["Authorization"] = f"Bearer {answer.raise_for_status().json()['access_token']}"
        yield api


def read(api: httpx.Client, numbers: range, load: Load) -> int:
    """Number of these images that failed; the others are read."""
    files = [("files", (f"{number}.png", load.draw(number), "image/png")) for number in numbers]
    headers = {"Prefer": "wait=60"}
    answer = api.post(
        "/api/extract/images", files=files, data={"options": json.dumps(load.options)}, headers=headers
    ).raise_for_status()
    job = answer.json()
    while not job["finished"]:
        job = api.get(f"/api/extract/image-jobs/{job['job_id']}", params={"wait": "60"}).raise_for_status().json()
    return int(job["progress"]["failed"])


def screenshot(number: int) -> bytes:
    """A picture whose bytes no other has: what comes after a PNG's end is not looked at."""
    return IMAGES[number % len(IMAGES)].read_bytes() + number.to_bytes(4, "big")


def small(number: int) -> bytes:
    """A small picture of its own."""
    buffer = BytesIO()
    Image.new("RGB", (64, 48), (number >> 16 & 255, number >> 8 & 255, number & 255)).save(buffer, "PNG")
    return buffer.getvalue()


if __name__ == "__main__":
    main()
