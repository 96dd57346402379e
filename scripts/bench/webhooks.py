"""Webhooks of the whole product to receivers on loopback. Each measurement is a line of JSON.

latency   from a job's end, as the record has it, to the receiver having its webhook, on an idle service; beside it, in
          turns with it, a bare POST of the same body to the same receiver
pace      deliveries a second, of events that all wait when it begins, for 50 endpoints of which one hangs
delivery  events, each for one of 50 endpoints, written at a steady rate, three times over: with healthy endpoints
          alone; with 5 that hang and 5 that fail half the time; with these and the IO worker killed twice by kill -9.
          All get everything in the end, each event under one id with one body, or this exits with 1. `p99_ratio` is
          what those that hang and fail cost the healthy ones.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
from sqlalchemy import text

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
from launch import Service, create_account  # noqa: E402  # a neighbour of this folder's

from arachne.actors.wake import Waker  # noqa: E402
from arachne.announcer import Announcer  # noqa: E402
from arachne.database import Database  # noqa: E402
from arachne.embedded.instance import attach  # noqa: E402
from arachne.news import news_of  # noqa: E402
from arachne.secretbox import open_secret_box  # noqa: E402
from arachne.settings import Settings  # noqa: E402
from tests.standins.happenings import Target, add_targets, expected, finish_job, load_written  # noqa: E402
from tests.standins.hooks import FAILING, HANGING, HEALTHY, Arrival, Hooks  # noqa: E402

PICTURE = ROOT / "tests" / "images" / "dialog_light.png"
RATE = "1000000/minute"
ENDPOINTS, BAD_OF_A_KIND = 50, 5
IN_FLIGHT = 10  # of an endpoint, as the product sets it
RETRY_S, TIMEOUT_S = 1.0, 5.0
PATIENCE_S = 600.0
WARM_UP = 5


@dataclass
class Bench:
    """A running product, its receivers, and the record below."""

    service: Service
    settings: Settings
    hooks: Hooks
    database: Database


@dataclass
class Run:
    """The events of one run and the endpoints they are for."""

    name: str
    targets: Sequence[Target]
    kills: int = 0


def main() -> None:
    """Print a line of JSON for each measurement."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench/webhooks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("latency", "pace", "delivery"), help="one of them; all without")
    parser.add_argument("--jobs", type=int, default=50, help="jobs of `latency`")
    parser.add_argument("--events", type=int, default=1000, help="events of each run of `delivery`; 10000 is the whole")
    parser.add_argument("--rate", type=float, default=100, help="events a second")
    given = parser.parse_args()
    with bench() as running:
        if given.what in {None, "latency"}:
            tell("latency", measure_latency(running, given.jobs))
        if given.what in {None, "pace"}:
            tell("pace", measure_pace(running, given.events))
        if given.what in {None, "delivery"}:
            measure_delivery(running, given.events, given.rate)


def tell(name: str, found: dict[str, object]) -> None:
    """A line of JSON."""
    sys.stdout.write(json.dumps({"bench": name} | found) + "\n")
    sys.stdout.flush()


@contextmanager
def bench() -> Iterator[Bench]:
    """The product and receivers, until the context ends."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="arachne-webhooks-")))
        os.environ |= {
            "ARACHNE_VISION_RATE_LIMIT": RATE,
            "ARACHNE_IMAGE_RATE_LIMIT": RATE,
            "ARACHNE_READ_RATE_LIMIT": RATE,
            "ARACHNE_WEBHOOK_TIMEOUT_S": str(TIMEOUT_S),
            "ARACHNE_WEBHOOK_RETRY_SECONDS": json.dumps([RETRY_S] * 1000),
        }
        hooks = stack.enter_context(Hooks())
        service = stack.enter_context(Service(folder / "data", 0, hooks.port))
        service.await_ready()
        chosen = Settings.load(
            data_dir=service.data_dir, egress_allow_http=True, webhook_egress_allow=[f"127.0.0.1:{hooks.port}"]
        )
        settings = attach(chosen)
        waker = Waker(settings)
        stack.callback(waker.close)
        announcer = Announcer(str(settings.database_url), waker.wake_webhooks)
        stack.callback(announcer.close)
        database = Database(str(settings.database_url), on_commit=announcer.tell)
        stack.callback(database.close)
        yield Bench(service, settings, hooks, database)


def measure_latency(running: Bench, jobs: int) -> dict[str, object]:
    """Milliseconds from a job's end to its webhook's arrival, and of a bare POST, after some that don't count."""
    picture, hooks = PICTURE.read_bytes(), running.hooks
    found: dict[str, list[float]] = {"finish_to_receipt_ms": [], "bare_post_ms": []}
    with client(running.service) as api, httpx.Client(trust_env=False) as bare:
        created = api.post("/api/webhooks", json={"url": hooks.url("latency"), "events": ["job.completed"]})
        created.raise_for_status()
        for number in range(WARM_UP + jobs):
            # What comes after a PNG's end is not looked at, but makes it another file.
            files = {"file": ("a.png", picture + number.to_bytes(4, "big"))}
            api.post("/api/extract/image?detail_level=fast", files=files).raise_for_status()
            webhook = next_arrival(hooks)
            job_id = json.loads(webhook.body)["data"]["job_id"]
            finished_s = finish_of(running, job_id)
            sent_s = time.time()
            bare.post(hooks.url("latency"), content=webhook.body, headers=dict(webhook.headers)).raise_for_status()
            posted = next_arrival(hooks)
            if number >= WARM_UP:
                found["finish_to_receipt_ms"].append(1000 * (webhook.at_s - finished_s))
                found["bare_post_ms"].append(1000 * (posted.at_s - sent_s))
    return {"jobs": jobs} | {name: summary(times) for name, times in found.items()}


def next_arrival(hooks: Hooks) -> Arrival:
    """The one request that comes, taken out."""
    wait_until(lambda: bool(hooks.arrivals), "a webhook of a job")
    return hooks.arrivals.pop()


def finish_of(running: Bench, job_id: str) -> float:
    """When the job ended by the record, in seconds of the epoch: the moment its last transaction began."""
    query = text("SELECT extract(epoch FROM finished_at)::float8 FROM job WHERE job_id = :job_id")
    with running.database.transaction() as transaction:
        return float(transaction.session.connection().execute(query, {"job_id": job_id}).scalar_one())


def measure_pace(running: Bench, events: int) -> dict[str, object]:
    """How many events of the healthy endpoints come a second, once all of them may be sent."""
    hooks, hanging = running.hooks, ENDPOINTS // 50
    chosen = targets(running, "pace", [HANGING] * hanging + [HEALTHY] * (ENDPOINTS - hanging))
    bound_in_flight(running, chosen, 0)
    for number in range(events):
        finish_job(running.database, running.settings, chosen[number % len(chosen)].account_id)
    healthy = expected(load_written(running.database, chosen), chosen, HEALTHY)
    hooks.arrivals.clear()
    hooks.hold()
    began_s = time.time()
    bound_in_flight(running, chosen, IN_FLIGHT)
    wait_until(lambda: hooks.received(HEALTHY) >= healthy, "all events of the healthy endpoints", look_s=0.05)
    ended_s = max(one.at_s for one in hooks.arrivals if (one.path, one.message_id) in healthy)
    hooks.release()
    return {"events": events, "healthy_events": len(healthy), "per_s": round(len(healthy) / (ended_s - began_s), 1)}


def bound_in_flight(running: Bench, chosen: Sequence[Target], most: int) -> None:
    """These endpoints may have so many requests in flight each; deliverers are told."""
    query = text("UPDATE webhook_endpoint SET max_in_flight = :most WHERE account_id = ANY(:accounts)")
    with running.database.transaction() as transaction:
        values = {"most": most, "accounts": [one.account_id for one in chosen]}
        transaction.session.connection().execute(query, values)
        news_of(transaction.session).deliveries = True


def measure_delivery(running: Bench, events: int, rate: float) -> None:
    """Three runs, and what they say of each other."""
    healthy = [HEALTHY] * ENDPOINTS
    mixed = [HEALTHY] * (ENDPOINTS - 2 * BAD_OF_A_KIND) + [HANGING] * BAD_OF_A_KIND + [FAILING] * BAD_OF_A_KIND
    deliver(running, Run("warm_up", targets(running, "warm_up", healthy)), events // 10, rate)
    runs = [
        Run("clean", targets(running, "clean", healthy)),
        Run("bad", targets(running, "bad", mixed)),
        Run("killed", targets(running, "killed", mixed), kills=2),
    ]
    found = [deliver(running, run, events, rate) for run in runs]
    clean, bad = (one["p99"] for one in found[:2])
    tell("delivery", {"p99_ratio": round(bad / clean, 2)})


def targets(running: Bench, name: str, kinds: Sequence[str]) -> list[Target]:
    """Endpoints of a run, each of an account of its own."""
    urls = [running.hooks.url(f"{kind}/{name}/{n}") for n, kind in enumerate(kinds)]
    return add_targets(running.database, open_secret_box(running.settings), running.settings, urls)


def deliver(running: Bench, run: Run, events: int, rate: float) -> dict[str, float]:
    """How long the events took to healthy endpoints; told with all else the run came to."""
    hooks = running.hooks
    hooks.arrivals.clear()
    hooks.hold()
    written_per_s = write(running, run, events, rate)
    written = {one.message_id: one for one in load_written(running.database, run.targets)}
    wanted, healthy = (expected(written.values(), run.targets, kind) for kind in ("", HEALTHY))
    wait_until(lambda: hooks.received(HEALTHY) >= healthy, "all events of the healthy endpoints", look_s=0.1)
    hooks.release()
    wait_until(lambda: count_open(running, run) == 0, "all other events", look_s=0.2)
    check(hooks.arrivals, {name: one.body for name, one in written.items()}, wanted)
    first: dict[str, float] = {}
    for one in hooks.arrivals:
        first.setdefault(one.message_id, 1000 * (one.at_s - written[one.message_id].at_s))
    times = summary([first[message_id] for _, message_id in healthy])
    told = {"run": run.name, "events": events, "healthy_events": len(healthy), "healthy_ms": times}
    tell("delivery", told | {"requests": len(hooks.arrivals), "killed": run.kills, "written_per_s": written_per_s})
    return times


def write(running: Bench, run: Run, events: int, rate: float) -> float:
    """Events written a second, `rate` if the machine can; the IO worker is killed on the way as often as is wanted."""
    began = time.monotonic()
    kills_at = {(n + 1) * events // (run.kills + 1) for n in range(run.kills)}
    for number in range(events):
        if number in kills_at:
            kill_io_worker(running)
        finish_job(running.database, running.settings, run.targets[number % len(run.targets)].account_id)
        time.sleep(max(0.0, began + (number + 1) / rate - time.monotonic()))
    return round(events / (time.monotonic() - began), 1)


def count_open(running: Bench, run: Run) -> int:
    """Number of the run's deliveries that nobody has answered with success."""
    query = text("SELECT count(*) FROM webhook_delivery WHERE account_id = ANY(:accounts) AND state <> 'succeeded'")
    with running.database.transaction() as transaction:
        accounts = {"accounts": [one.account_id for one in run.targets]}
        return int(transaction.session.connection().execute(query, accounts).scalar_one())


def check(arrivals: Sequence[Arrival], bodies: dict[str, bytes], wanted: set[tuple[str, str]]) -> None:
    """Exit unless each event came where it belongs, under its id, with its bytes."""
    got = {(one.path, one.message_id) for one in arrivals}
    changed = [one.message_id for one in arrivals if one.body != bodies.get(one.message_id)]
    if got != wanted or changed:
        raise SystemExit(f"{len(wanted - got)} events lost, {len(got - wanted)} strange, {len(changed)} changed")


def kill_io_worker(running: Bench) -> None:
    """Kill -9 of the IO worker; `arachne up` starts another."""
    children = psutil.Process(running.service.process.pid).children(recursive=True)
    workers = [child for child in children if child.cmdline()[-2:] == ["worker", "io"]]
    if not workers:
        raise SystemExit("no IO worker runs")
    for worker in workers:
        worker.kill()


@contextmanager
def client(service: Service) -> Iterator[httpx.Client]:
    """A client with a token."""
    account = create_account(service.data_dir, "webhooks")
    credentials = (account["client_id"], account["client_secret"])
    with httpx.Client(base_url=service.url, timeout=90, trust_env=False) as api:
        token = api.post("/api/auth/token", data={"grant_type": "client_credentials"}, auth=credentials).json()
        api.headers["Authorization"] = f"Bearer {token['access_token']}"
        yield api


def wait_until(holds: Callable[[], bool], what: str, *, look_s: float = 0.002) -> None:
    """Return once it holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {PATIENCE_S:.0f} s for {what} in vain")
        time.sleep(look_s)


def summary(times: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and the most, rounded."""
    ranks = statistics.quantiles(times, n=100, method="inclusive")
    return {"median": round(statistics.median(times), 1), "p99": round(ranks[98], 1), "most": round(max(times), 1)}


if __name__ == "__main__":
    main()
