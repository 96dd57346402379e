"""The gate to the GPU on the whole product, with a stand-in for Ollama in the GPU's place.

busy    images a second as a share of P/L, which is set to a part of what the CPU stages feed; that is measured again
        afterwards, since with less than P/L of it the GPU has to wait
swaps   how often the model changes over a random mix of two, and the longest wait against its bound
faults  what becomes of images where 30 % of all requests fail
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

import httpx
import psycopg
from sqlalchemy.engine import make_url

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
from launch import Service, create_account  # noqa: E402  # a neighbour of this folder's

from arachne.embedded.instance import attach  # noqa: E402
from arachne.settings import Settings  # noqa: E402
from tests.standins.process import OllamaProcess  # noqa: E402

PICTURES = [(ROOT / "tests" / "images" / f"{name}.png").read_bytes() for name in ("dialog_light", "error_dialog")]
RATE = "1000000/minute"
LEVELS = ("standard", "detailed")
UNTIL_STRUCTURE = {"stages": ["structure"]}


@dataclass
class Bench:
    """A running product, its model server, and the database below."""

    server: OllamaProcess
    api: httpx.Client
    database: psycopg.Connection

    def send(self, numbers: Sequence[int], options: dict[str, object], *, single: bool = False) -> list[str]:
        """Ids of the jobs: one of all images, or one for each."""
        parts = [[number] for number in numbers] if single else [list(numbers)]
        return [self._submit(part, options) for part in parts]

    def _submit(self, numbers: Sequence[int], options: dict[str, object]) -> str:
        # What comes after a PNG's end is not looked at, but makes it another file.
        pictures = [PICTURES[n % len(PICTURES)] + n.to_bytes(4, "big") for n in numbers]
        files = [("files", (f"{n}.png", picture)) for n, picture in zip(numbers, pictures, strict=True)]
        answer = self.api.post("/api/extract/images", files=files, data={"options": json.dumps(options)})
        return str(answer.raise_for_status().json()["job_id"])

    def finished_s(self, jobs: Sequence[str]) -> list[tuple[float, float]]:
        """When each image of these jobs was claimed and finished, in the order of finishing, once all are."""
        query = """
            SELECT extract(epoch FROM started_at)::float8, extract(epoch FROM finished_at)::float8
            FROM image WHERE job_id = ANY(%s) ORDER BY finished_at NULLS FIRST"""
        while True:
            rows = self.database.execute(query, [list(jobs)]).fetchall()
            sys.stderr.write(f"\r{sum(row[1] is not None for row in rows)} of {len(rows)} images ")
            if rows and rows[0][1] is not None:
                sys.stderr.write("\n")
                return [(row[0], row[1]) for row in rows]
            time.sleep(0.5)

    def count(self, query: str, *values: object) -> int:
        """A number from the record."""
        found = self.database.execute(query.encode(), values).fetchone()
        return int(found[0]) if found else 0


def main() -> None:
    """Print a line of JSON for each measurement."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench/gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("busy", "swaps", "faults"), help="one of them; all without")
    parser.add_argument("--images", type=int, default=200, help="images of each measurement")
    parser.add_argument("--parallel", type=int, default=4, help="P, requests in flight")
    parser.add_argument("--part", type=float, default=0.5, help="P/L as a part of what the CPU stages feed")
    parser.add_argument("--swap-s", type=float, default=2.0, help="S, seconds it takes to load a model")
    parser.add_argument("--switch-after-s", type=float, default=60.0, help="setting VLM_SWITCH_AFTER_S")
    parser.add_argument("--switch-after-requests", type=int, default=50, help="setting VLM_SWITCH_AFTER_REQUESTS")
    given = parser.parse_args()
    with bench(given) as running:
        feed = measure_feed(running, 910_000)
        for name in [given.what] if given.what else ["busy", "swaps", "faults"]:
            measure = {"busy": measure_busy, "swaps": measure_swaps, "faults": measure_faults}[name]
            sys.stdout.write(json.dumps({"bench": name} | measure(running, given, feed)) + "\n")
            sys.stdout.flush()


@contextmanager
def bench(given: argparse.Namespace) -> Iterator[Bench]:
    """The product with a stand-in model server, until the context ends."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="arachne-gpu-")))
        server = stack.enter_context(OllamaProcess(parallel=2 * given.parallel))
        os.environ |= {
            "ARACHNE_VISION_RATE_LIMIT": RATE,
            "ARACHNE_IMAGE_RATE_LIMIT": RATE,
            "ARACHNE_VLM_URL": server.url,
            "ARACHNE_VLM_PARALLEL": str(given.parallel),
            "ARACHNE_VLM_SWITCH_AFTER_S": str(given.switch_after_s),
            "ARACHNE_VLM_SWITCH_AFTER_REQUESTS": str(given.switch_after_requests),
        }
        service = stack.enter_context(Service(folder / "data", 0, 9))
        service.await_ready()
        url = attach(Settings.load(data_dir=service.data_dir)).database_url
        address = make_url(str(url)).set(drivername="postgresql").render_as_string(hide_password=False)
        database = stack.enter_context(psycopg.connect(address, autocommit=True))
        yield Bench(server, stack.enter_context(client(service)), database)


@contextmanager
def client(service: Service) -> Iterator[httpx.Client]:
    """A client with a token."""
    account = create_account(service.data_dir, "gpu")
    credentials = (account["client_id"], account["client_secret"])
    with httpx.Client(base_url=service.url, timeout=90, trust_env=False) as api:
        token = api.post("/api/auth/token", data={"grant_type": "client_credentials"}, auth=credentials).json()
        api.headers["Authorization"] = f"Bearer {token['access_token']}"
        yield api


def measure_feed(running: Bench, first: int, number: int = 60) -> float:
    """Images a second of the stages before the description, alone."""
    running.finished_s(running.send(range(first, first + 8), UNTIL_STRUCTURE))  # subprocesses have to start
    ends = [end for _, end in running.finished_s(running.send(range(first + 8, first + 8 + number), UNTIL_STRUCTURE))]
    return (number - 1) / (ends[-1] - ends[0])


def measure_busy(running: Bench, given: argparse.Namespace, feed: float) -> dict[str, object]:
    """Images a second over P/L, from the first request to the last answer; a full GPU has 1."""
    answer_s = given.parallel / feed / given.part
    running.server.change(answer_s=answer_s, swap_s=0.0)
    ends = [end for _, end in running.finished_s(running.send(range(given.images), {}))]
    span_s = ends[-1] - ends[0] + answer_s
    most = running.server.counts()["gpu"]["max_in_flight"]
    return {
        "images": given.images,
        "feed_per_s": round(feed, 2),
        "feed_afterwards_per_s": round(measure_feed(running, 920_000), 2),
        "p_over_l": round(given.parallel / answer_s, 2),
        "images_per_s": round(given.images / span_s, 2),
        "share": round(given.images / span_s / (given.parallel / answer_s), 3),
        "max_in_flight": most,
        "parallel": given.parallel,
    }


def measure_swaps(running: Bench, given: argparse.Namespace, feed: float) -> dict[str, object]:
    """Swaps of a random mix of two models, with the longest turn and the longest wait against their bounds."""
    answer_s = 2 * given.parallel / feed
    running.server.change(answer_s=answer_s, swap_s=given.swap_s)
    before = running.server.counts()["gpu"]
    levels = random.Random(1).choices(LEVELS, k=given.images)
    jobs = [running.send([10_000 + n], {"detail_level": level})[0] for n, level in enumerate(levels)]
    times = running.finished_s(jobs)
    after = running.server.counts()["gpu"]
    order = after["order"][len(before["order"]) :]
    turn_s = given.swap_s + min(
        given.switch_after_s + answer_s, given.switch_after_requests * answer_s / given.parallel
    )
    bound_s = turn_s + 2 * answer_s + given.swap_s + 3 * answer_s + given.parallel * 2 / feed
    return {
        "images": given.images,
        "in_order_of_arrival": sum(one != other for one, other in pairwise(levels)),
        "swaps": after["swaps"] - before["swaps"],
        "longest_turn": max(len(list(turn)) for _, turn in groupby(order)),
        "longest_s_from_claim_to_end": round(max(end - start for start, end in times), 1),
        "bound_s": round(bound_s, 1),
        "swap_s": given.swap_s,
        "answer_s": round(answer_s, 2),
    }


def measure_faults(running: Bench, given: argparse.Namespace, feed: float) -> dict[str, object]:
    """What becomes of images where 30 % of the requests fail at random."""
    running.server.change(answer_s=given.parallel / feed, swap_s=0.0, failing_share=0.3)
    jobs = running.send(range(20_000, 20_000 + given.images), {})
    running.finished_s(jobs)
    running.server.change(failing_share=0.0)
    told = "SELECT count(*) FROM image JOIN image_result USING (result_id) WHERE job_id = ANY(%s) AND "
    return {
        "images": given.images,
        "described": running.count(told + "NOT degraded", jobs),
        "labelled_degraded": running.count(told + "degraded", jobs),
        "failed": running.count("SELECT count(*) FROM image WHERE job_id = ANY(%s) AND state <> 'completed'", jobs),
        "degraded_but_cached": running.count(told + "degraded AND image_result.cache_key IS NOT NULL", jobs),
    }


if __name__ == "__main__":
    main()
