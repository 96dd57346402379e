"""Median latency of a cached repeat beside that of /healthz, measured in turns on one keep-alive connection."""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from launch import Service, create_account  # noqa: E402  # a neighbour of this folder's

IMAGE = ROOT / "tests" / "images" / "chat.png"
WARM_UP = 20
RATE = "1000000/minute"


def main() -> None:
    """Print the medians as a line of JSON."""
    parser = argparse.ArgumentParser(prog="scripts/bench/latency", description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=300, help="measured requests of each kind")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="arachne-latency-") as folder:
        os.environ |= {"ARACHNE_VISION_RATE_LIMIT": RATE, "ARACHNE_IMAGE_RATE_LIMIT": RATE}
        with Service(Path(folder) / "data", 0, 9) as service:
            service.await_ready()
            measure(service, rounds)


def measure(service: Service, rounds: int) -> None:
    """Print the medians, 90th percentiles and the ratio."""
    account = create_account(service.data_dir, "latency")
    with httpx.Client(base_url=service.url, timeout=60, trust_env=False) as api:
        credentials = (account["client_id"], account["client_secret"])
        answer = api.post("/api/auth/token", data={"grant_type": "client_credentials"}, auth=credentials)
        api.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
        image = IMAGE.read_bytes()

        def repeat() -> httpx.Response:
            return api.post("/api/extract/image", files={"file": ("chat.png", image, "image/png")})

        first = api.post("/api/extract/image", files={"file": ("chat.png", image)}, headers={"Prefer": "wait=60"})
        first.raise_for_status()
        if not repeat().json()["cached"]:
            raise SystemExit("the repeat was not answered from the cache")
        cached, health = in_turns(rounds, repeat, lambda: api.get("/healthz"))
    sys.stdout.write(
        json.dumps(
            {
                "rounds": rounds,
                "cached_repeat_ms": summary(cached),
                "healthz_ms": summary(health),
                "first_reading_ms": round(first.elapsed.total_seconds() * 1000, 1),
            }
        )
        + "\n"
    )


def in_turns(rounds: int, *calls: Callable[[], httpx.Response]) -> list[list[float]]:
    """Milliseconds of each call, all of them once a round, after some rounds that don't count."""
    taken: list[list[float]] = [[] for _ in calls]
    for number in range(WARM_UP + rounds):
        for call, times in zip(calls, taken, strict=True):
            began = time.perf_counter()
            call().raise_for_status()
            if number >= WARM_UP:
                times.append((time.perf_counter() - began) * 1000)
    return taken


def summary(times: list[float]) -> dict[str, float]:
    """Median and 90th percentile, rounded."""
    deciles = statistics.quantiles(times, n=10)
    return {"median": round(statistics.median(times), 2), "p90": round(deciles[8], 2)}


if __name__ == "__main__":
    main()
