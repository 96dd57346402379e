"""How long one image takes while another account has thousands queued, beside its time on the idle service.

In one run of the whole product: single images on the idle service, then the other account's jobs, then single images
beside them, then the cancelling of all those jobs. Every image is read: none is answered from the cache.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from launch import Service, create_account  # noqa: E402  # a neighbour of this folder's

IMAGE = ROOT / "tests" / "images" / "chat.png"
RATE = "1000000/minute"
BATCH = 500


class Client:
    """An account's calls to the service."""

    def __init__(self, service: Service, name: str, detail_level: str) -> None:
        account = create_account(service.data_dir, name)
        self._credentials = (account["client_id"], account["client_secret"])
        self._options = json.dumps({"detail_level": detail_level, "cache": "bypass"})
        self._api = httpx.Client(base_url=service.url, timeout=600, trust_env=False)
        self._sent = 0

    def send(self, number: int) -> dict[str, object]:
        """A job of so many images, none of which anybody has sent before."""
        files = [("files", ("chat.png", self._distinct(), "image/png")) for _ in range(number)]
        answer = self._call("POST", "/api/extract/images", files=files, data={"options": self._options})
        job: dict[str, object] = answer.json()
        return job

    def read_one(self) -> float:
        """Seconds from sending one image to its result."""
        began = time.perf_counter()
        job = self.send(1)
        while not job["finished"]:
            job = self._call("GET", f"/api/extract/image-jobs/{job['job_id']}?wait=60").json()
        if job["status"] != "completed":
            raise SystemExit(f"a single image ended {job['status']}")
        return time.perf_counter() - began

    def look(self, job: dict[str, object]) -> dict[str, object]:
        """The job as it now stands."""
        found: dict[str, object] = self._call("GET", f"/api/extract/image-jobs/{job['job_id']}").json()
        return found

    def cancel(self, job: dict[str, object]) -> float:
        """Seconds until the job is cancelled."""
        began = time.perf_counter()
        answer = self._call("POST", f"/api/extract/image-jobs/{job['job_id']}/cancel").json()
        if answer["status"] != "cancelled":
            raise SystemExit(f"a cancelled job is {answer['status']}")
        return time.perf_counter() - began

    def sign_in(self) -> None:
        """A token for the next calls."""
        answer = self._api.post("/api/auth/token", data={"grant_type": "client_credentials"}, auth=self._credentials)
        self._api.headers["Authorization"] = f"Bearer {answer.raise_for_status().json()['access_token']}"

    def _call(self, method: str, path: str, **body: object) -> httpx.Response:
        return self._api.request(method, path, **body).raise_for_status()  # type: ignore[arg-type]

    def _distinct(self) -> bytes:
        self._sent += 1
        return IMAGE.read_bytes() + f"{id(self)}.{self._sent}".encode()  # after a PNG's end nothing is looked at


def main() -> None:
    """Print what was measured as a line of JSON."""
    parser = argparse.ArgumentParser(prog="scripts/bench/fairness", description=__doc__)
    parser.add_argument("queued", type=int, nargs="?", default=10_000, help="images of the other account")
    parser.add_argument("--rounds", type=int, default=9, help="single images of each kind")
    parser.add_argument("--detail-level", choices=("fast", "standard"), default="fast")
    given = parser.parse_args()
    limits = {"ARACHNE_VISION_RATE_LIMIT": RATE, "ARACHNE_IMAGE_RATE_LIMIT": RATE, "ARACHNE_READ_RATE_LIMIT": RATE}
    limits |= {"ARACHNE_OTHER_RATE_LIMIT": RATE, "ARACHNE_MAX_QUEUE_DEPTH": str(5 * given.queued + 1000)}
    with tempfile.TemporaryDirectory(prefix="arachne-fairness-") as folder:
        os.environ |= limits
        with Service(Path(folder) / "data", 0, 9) as service:
            service.await_ready()
            print(json.dumps(measure(service, given.queued, given.rounds, given.detail_level)))


def measure(service: Service, queued: int, rounds: int, detail_level: str) -> dict[str, object]:
    """The medians, their ratio, and what cancelling took."""
    bulk, single = Client(service, "bulk", detail_level), Client(service, "single", detail_level)
    for client in (bulk, single):
        client.sign_in()
    for _ in range(3):
        single.read_one()  # subprocesses start with their first images
    idle = [single.read_one() for _ in range(rounds)]
    jobs = [bulk.send(min(BATCH, queued - first)) for first in range(0, queued, BATCH)]
    beside = [single.read_one() for _ in range(rounds)]
    last = bulk.look(jobs[-1])
    began = time.perf_counter()
    cancelled = [bulk.cancel(job) for job in jobs]
    all_s = time.perf_counter() - began
    ratio = statistics.median(beside) / statistics.median(idle)
    return {
        "queued": queued,
        "detail_level": detail_level,
        "idle_ms": summary(idle),
        "beside_ms": summary(beside),
        "ratio": round(ratio, 2),
        "queue_of_the_last_job": last["queue"],
        "cancel_ms": summary(cancelled),
        "cancel_all_s": round(all_s, 2),
    }


def summary(times: list[float]) -> dict[str, float]:
    """Median and maximum in milliseconds."""
    return {"median": round(statistics.median(times) * 1000, 1), "max": round(max(times) * 1000, 1)}


if __name__ == "__main__":
    main()
