"""Peak resident memory of the API process while many large images are uploaded at once, on loopback.

All uploads are begun, and half of each is sent, before any goes on, so that they are under way together. The jobs are
cancelled then: reading is not measured.
"""

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from launch import Service, create_account  # noqa: E402  # a neighbour of this folder's

IMAGE = (ROOT / "tests" / "images" / "chat.png").read_bytes()
RATE = "1000000/minute"
MIB = 1024 * 1024
CHUNK = bytes(64 * 1024)
BOUNDARY = "8f1b2c"


@dataclass
class Crowd:
    """Uploads that wait for each other in the middle."""

    expected: int
    arrived: int = 0

    def __post_init__(self) -> None:
        self._all_there = asyncio.Event()

    async def meet(self) -> None:
        """Return when all have come so far."""
        self.arrived += 1
        if self.arrived == self.expected:
            self._all_there.set()
        await self._all_there.wait()


def main() -> None:
    """Print what was measured as a line of JSON."""
    parser = argparse.ArgumentParser(prog="scripts/bench/uploads", description=__doc__)
    parser.add_argument("uploads", type=int, nargs="?", default=100, help="uploads at once")
    parser.add_argument("--mib", type=int, default=20, help="MiB of each image")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="arachne-uploads-") as folder:
        os.environ |= {"ARACHNE_VISION_RATE_LIMIT": RATE, "ARACHNE_IMAGE_RATE_LIMIT": RATE, "TMPDIR": folder}
        os.environ |= {"ARACHNE_OTHER_RATE_LIMIT": RATE}
        with Service(Path(folder) / "data", 0, 9) as service:
            service.await_ready()
            print(json.dumps(asyncio.run(measure(service, given.uploads, given.mib * MIB))))


async def measure(service: Service, uploads: int, size_bytes: int) -> dict[str, object]:
    """The peak, and how the uploads were answered."""
    account = create_account(service.data_dir, "uploads")
    api_pid = find_api(service).pid
    limits = httpx.Limits(max_connections=uploads)
    async with httpx.AsyncClient(base_url=service.url, timeout=600, trust_env=False, limits=limits) as client:
        credentials = (account["client_id"], account["client_secret"])
        answer = await client.post("/api/auth/token", data={"grant_type": "client_credentials"}, auth=credentials)
        client.headers["Authorization"] = f"Bearer {answer.raise_for_status().json()['access_token']}"
        await upload(client, Crowd(1), 0, len(IMAGE) + 8)  # what the first request loads is no upload's memory
        before_mib = peak_mib(api_pid)
        crowd, began = Crowd(uploads), time.perf_counter()
        answers = await asyncio.gather(*(upload(client, crowd, 1 + n, size_bytes) for n in range(uploads)))
        taken_s = time.perf_counter() - began
        peak = peak_mib(api_pid)
        for one in answers:
            if one.status_code < 300:
                (await client.post(f"{one.headers['Location']}/cancel")).raise_for_status()
    statuses = Counter(str(one.status_code) for one in answers)
    return {
        "uploads": uploads,
        "image_mib": round(size_bytes / MIB, 1),
        "answers": dict(statuses),
        "before_mib": before_mib,
        "peak_mib": peak,
        "peak_mb": round(peak * MIB / 1e6, 1),
        "taken_s": round(taken_s, 1),
    }


async def upload(client: httpx.AsyncClient, crowd: Crowd, number: int, size_bytes: int) -> httpx.Response:
    """The answer to an image of so many bytes, which no other has."""
    tail = number.to_bytes(8, "big")
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{number}.png"\r\n\r\n'.encode()
    end = f"\r\n--{BOUNDARY}--\r\n".encode()
    padding = size_bytes - len(IMAGE) - len(tail)  # after a PNG's end nothing is looked at

    async def body() -> AsyncIterator[bytes]:
        yield head + IMAGE
        sent, met = 0, False
        while sent < padding:
            if sent >= padding // 2 and not met:
                met = True
                await crowd.meet()
            piece = CHUNK[: padding - sent]
            sent += len(piece)
            yield piece
        yield tail + end

    length = len(head) + size_bytes + len(end)
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}", "Content-Length": str(length)}
    return await client.post("/api/extract/image", content=body(), headers=headers)


def find_api(service: Service) -> psutil.Process:
    """The API process of a running service."""
    for child in psutil.Process(service.process.pid).children(recursive=True):
        if child.cmdline()[-1:] == ["api"]:
            return child
    raise SystemExit("the service has no API process")


def peak_mib(pid: int) -> float:
    """The most memory the process ever had resident, as the kernel kept it."""
    status = Path(f"/proc/{pid}/status").read_text()
    return round(int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024, 1)  # type: ignore[index]


if __name__ == "__main__":
    main()
