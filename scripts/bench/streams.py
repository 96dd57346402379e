"""Many clients that open streams and held polls of a few jobs at the same moment, on a service that reads these jobs.

Prints one line of JSON: how many were answered and refused, how long the slowest of them waited for its first byte, and
how long /healthz took at most meanwhile, beside the same on the idle service before.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import httpx

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from launch import Service, create_account  # noqa: E402  # a neighbour of this folder's

IMAGE = ROOT / "tests" / "images" / "chat.png"
RATE = "1000000/minute"
JOBS, IMAGES = 6, 4
IDLE_S = 3.0
PATIENCE_S = 120.0


def main() -> None:
    """Print what came of it."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench/streams", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--polls", type=int, default=60)
    given = parser.parse_args()
    names = ("VISION", "IMAGE", "READ", "OTHER")
    os.environ |= {f"ARACHNE_{name}_RATE_LIMIT": RATE for name in names}
    with (
        tempfile.TemporaryDirectory(prefix="arachne-streams-") as folder,
        Service(Path(folder) / "data", 0, 9) as service,
    ):
        service.await_ready()
        sys.stdout.write(json.dumps(measure(service, given.streams, given.polls)) + "\n")


def measure(service: Service, streams: int, polls: int) -> dict[str, object]:
    """What came of so many at once."""
    account = create_account(service.data_dir, "streams")
    with httpx.Client(base_url=service.url, timeout=60, trust_env=False) as api:
        credentials = (account["client_id"], account["client_secret"])
        answer = api.post("/api/auth/token", data={"grant_type": "client_credentials"}, auth=credentials)
        token = answer.json()["access_token"]
        files = [("files", (f"{n}.png", IMAGE.read_bytes(), "image/png")) for n in range(IMAGES)]
        terms = {"options": '{"detail_level": "fast", "cache": "bypass"}'}
        with Pings(service.url) as idle:
            time.sleep(IDLE_S)
        headers = {"Authorization": f"Bearer {token}"}
        made = [api.post("/api/extract/images", files=files, data=terms, headers=headers) for _ in range(JOBS)]
    paths = [f"/api/extract/image-jobs/{one.raise_for_status().json()['job_id']}" for one in made]
    wanted = [f"{paths[n % JOBS]}/events" for n in range(streams)]
    wanted += [f"{paths[n % JOBS]}?wait=5" for n in range(polls)]
    with Pings(service.url) as busy:
        found = asyncio.run(open_all(service.url, token, wanted))
    told = Counter(status for status, _ in found)
    return {
        "streams": streams,
        "polls": polls,
        "served": told[200] + told[204],
        "refused": {str(status): count for status, count in told.items() if status not in {200, 204}},
        "slowest_first_byte_s": round(max(taken_s for _, taken_s in found), 2),
        "slowest_healthz_s": {"idle": round(max(idle.taken_s), 3), "busy": round(max(busy.taken_s), 3)},
    }


class Pings:
    """/healthz asked again and again by a thread until the context ends."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.taken_s: list[float] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask(self) -> None:
        with httpx.Client(base_url=self._url, timeout=PATIENCE_S, trust_env=False) as api:
            while not self._over.is_set() or not self.taken_s:
                began_s = time.perf_counter()
                api.get("/healthz").raise_for_status()
                self.taken_s.append(time.perf_counter() - began_s)
                self._over.wait(0.05)


async def open_all(url: str, token: str, paths: list[str]) -> list[tuple[int, float]]:
    """Status and seconds to the first byte of each, all asked for at once."""
    target = urlsplit(url)

    async def ask(path: str) -> tuple[int, float]:
        began_s = time.perf_counter()
        reader, writer = await asyncio.open_connection(target.hostname, target.port)
        head = f"GET {path} HTTP/1.1\r\nHost: {target.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
        writer.write(head.encode())
        line = await asyncio.wait_for(reader.readline(), PATIENCE_S)
        opened.append(writer)
        return int(line.split()[1]), time.perf_counter() - began_s

    opened: list[asyncio.StreamWriter] = []
    try:
        return await asyncio.gather(*map(ask, paths))
    finally:
        for writer in opened:
            writer.close()


if __name__ == "__main__":
    main()
