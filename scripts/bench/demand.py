"""What an image costs: CPU seconds of each part and bytes in each store, by kind of work, as a line of JSON.

What the parts use while nothing comes is measured first and taken off. Descriptions come from a stand-in, which is not
counted: seconds of a GPU are those of your own model server. CPU seconds hardly depend on what else the machine does.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts"), str(ROOT / "scripts" / "bench")]
from accounting import Accounts, spent  # noqa: E402  # neighbours of this folder's
from launch import Service, create_account  # noqa: E402
from readings import screenshots  # noqa: E402
from receiver import Receiver  # noqa: E402
from soak import LITTLE, client, small  # noqa: E402

from tests.standins.process import OllamaProcess  # noqa: E402

RATE = "1000000/minute"
RATES = {f"ARACHNE_{name}_RATE_LIMIT": RATE for name in ("VISION", "IMAGE", "READ", "OTHER")}
BATCH, IDLE_S, PATIENCE_S = 20, 20.0, 60.0
EVENTS = ["image.*", "job.*"]
Draw = Callable[[int], bytes]


@dataclass
class Bench:
    """A running product and what is asked of it."""

    api: httpx.Client
    accounts: Accounts
    receiver: Receiver
    idle: dict[str, float] = field(default_factory=dict)

    def costs(self, work: Callable[[], object], per: int) -> dict[str, float]:
        """CPU seconds of each part for one of `per`, without what it uses anyway."""
        before, began = self.accounts.cpu_s(), time.monotonic()
        work()
        used, taken_s = spent(before, self.accounts.cpu_s()), time.monotonic() - began
        return {name: round((s - self.idle.get(name, 0.0) * taken_s) / per, 5) for name, s in used.items()}

    def read(self, numbers: range, options: Mapping[str, object], draw: Draw, batch: int = BATCH) -> None:
        """All these images are read, in jobs of `batch`."""
        jobs = [self._submit(range(n, min(n + batch, numbers.stop)), options, draw) for n in numbers[::batch]]
        for job in jobs:
            while not (told := self._look(job))["finished"]:
                pass
            if told["progress"]["completed"] != told["progress"]["total"]:
                raise SystemExit(f"not all images were read: {told['progress']}")

    def _submit(self, numbers: range, options: Mapping[str, object], draw: Draw) -> str:
        files = [("files", (f"{n}.png", draw(n), "image/png")) for n in numbers]
        answer = self.api.post("/api/extract/images", files=files, data={"options": json.dumps(options)})
        return str(answer.raise_for_status().json()["job_id"])

    def _look(self, job: str) -> dict[str, object] | dict[str, dict[str, int]]:
        answer = self.api.get(f"/api/extract/image-jobs/{job}", params={"wait": "60"})
        told: dict[str, object] = answer.raise_for_status().json()
        return told

    def look_often(self, times: int) -> None:
        """One job is asked for so often, as somebody who polls does."""
        job = self._submit(range(8_000_000, 8_000_001), LITTLE, small)
        for _ in range(times):
            self.api.get(f"/api/extract/image-jobs/{job}").raise_for_status()


def main() -> None:
    """Print what was measured as a line of JSON."""
    parser = argparse.ArgumentParser(prog="scripts/bench/demand", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="*", default=[ROOT / "tests" / "images"], help="folders of images")
    parser.add_argument("--images", type=int, default=100, help="screenshots of each detail level")
    parser.add_argument("--little", type=int, default=400, help="small pictures, for what submitting and telling costs")
    given = parser.parse_args()
    pictures = [path.read_bytes() for path in screenshots(given.folders)]

    def draw(number: int) -> bytes:
        return pictures[number % len(pictures)] + number.to_bytes(4, "big")  # what comes after the end isn't looked at

    with bench() as running:
        running.read(range(9_000_000, 9_000_000 + BATCH), {"detail_level": "standard"}, draw)  # all is loaded
        before = running.accounts.cpu_s()
        time.sleep(IDLE_S)
        running.idle = {name: s / IDLE_S for name, s in spent(before, running.accounts.cpu_s()).items()}
        told = {
            "idle": {name: round(s, 5) for name, s in running.idle.items()},
            "images": measure_levels(running, draw, given.images),
            "submissions": measure_submissions(running, given.little),
            "webhooks": measure_webhooks(running, given.little),
        }
    sys.stdout.write(json.dumps(told) + "\n")


@contextmanager
def bench() -> Iterator[Bench]:
    """The product with a stand-in model server, until the context ends."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="arachne-demand-")))
        receiver = stack.enter_context(Receiver())
        server = stack.enter_context(OllamaProcess(parallel=8))
        os.environ |= RATES | {"ARACHNE_VLM_URL": server.url, "ARACHNE_VLM_PARALLEL": "4"}
        service = stack.enter_context(Service(folder / "data", 0, receiver.port))
        service.await_ready()
        accounts = Accounts(service.data_dir, service.process.pid)
        stack.callback(accounts.database.close)
        api = stack.enter_context(client(service, create_account(service.data_dir, "demand")))
        yield Bench(api, accounts, receiver)


def measure_levels(running: Bench, draw: Draw, images: int) -> dict[str, object]:
    """By detail level, and for repeats from the cache: CPU seconds and bytes an image."""
    told: dict[str, object] = {}
    levels: dict[str, dict[str, object]] = {
        "fast": {"detail_level": "fast"},
        "undescribed": {"detail_level": "standard", "stages": ["structure"]},
        "standard": {"detail_level": "standard"},
        "detailed": {"detail_level": "detailed"},
    }
    for number, (level, options) in enumerate(levels.items()):
        numbers = range(number * 1_000_000, number * 1_000_000 + images)
        told[level] = measure_images(running, draw, numbers, options)
        sys.stderr.write(f"{level}: {json.dumps(told[level])}\n")
    told["cached"] = measure_images(running, draw, range(images), levels["fast"])
    return told


def measure_images(running: Bench, draw: Draw, numbers: range, options: Mapping[str, object]) -> dict[str, object]:
    """CPU seconds and bytes an image, in jobs of twenty."""
    accounts, count = running.accounts, len(numbers)
    accounts.pack()
    database, store, log = accounts.database_bytes(), accounts.store_bytes(), accounts.log_bytes()
    cpu_s = running.costs(lambda: running.read(numbers, options, draw), count)
    loose, written = accounts.database_bytes(), accounts.log_bytes()
    accounts.pack()
    return {
        "cpu_s": cpu_s,
        "database_bytes": (accounts.database_bytes() - database) // count,
        "database_bytes_before_vacuum": (loose - database) // count,
        "log_bytes": (written - log) // count,
        "store_bytes": (accounts.store_bytes() - store) // count,
    }


def measure_submissions(running: Bench, images: int) -> dict[str, object]:
    """CPU seconds of small pictures of which two stages run: alone, in twenties, and of a look at a job."""
    alone, together = range(4_000_000, 4_000_000 + images), range(5_000_000, 5_000_000 + images)
    return {
        "alone": running.costs(lambda: running.read(alone, LITTLE, small, 1), images),
        "in_twenties": running.costs(lambda: running.read(together, LITTLE, small), images),
        "repeat_alone": running.costs(lambda: running.read(alone, LITTLE, small, 1), images),
        "look": running.costs(lambda: running.look_often(images), images),
    }


def measure_webhooks(running: Bench, images: int) -> dict[str, object]:
    """CPU seconds an event that an endpoint gets, beside those of the same images without one."""
    quiet = running.costs(lambda: running.read(range(6_000_000, 6_000_000 + images), LITTLE, small), 1)
    endpoint = {"url": running.receiver.url, "events": EVENTS}
    running.api.post("/api/webhooks", json=endpoint).raise_for_status()
    events = images + 2 * -(-images // BATCH)  # each image's, and each job's start and end
    database, received = running.accounts.database_bytes(), running.receiver.deliveries

    def work() -> None:
        running.read(range(7_000_000, 7_000_000 + images), LITTLE, small)
        ends_s = time.monotonic() + PATIENCE_S
        while received.qsize() < events and time.monotonic() < ends_s:
            time.sleep(0.1)

    loud = running.costs(work, 1)
    return {
        "events": received.qsize(),
        "cpu_s": {name: round((loud[name] - quiet[name]) / received.qsize(), 5) for name in loud},
        "database_bytes_with_its_image": (running.accounts.database_bytes() - database) // images,
    }


if __name__ == "__main__":
    main()
