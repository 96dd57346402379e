"""One run: the product and its clients are started, faults strike, all settles, and the verdict is told."""

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

from psycopg import Error as PsycopgError

from arachne.embedded.process import last_lines
from scripts.havoc.clients import Client, Crowd
from scripts.havoc.faults import FAULTS, Durations, Scene, Undo
from scripts.havoc.house import House, open_house, wait_until
from scripts.havoc.leftovers import find_leftovers, judge_files
from scripts.havoc.orders import Order, plan_orders
from scripts.havoc.outside import Outside
from scripts.havoc.verdict import Record, judge_answers, judge_events, judge_jobs
from tests.standins.ports import free_ports

CREW = {"api": 2, "gpu": 2, "io": 2, "scheduler": 2}
CLIENTS = 3
FILTERS = ["job.*", "image.*"]
MANY = "1000000/minute"
START_S, SETTLE_S, TIDY_S = 120.0, 600.0, 90.0
OUTAGE_S = 30.0
FIRST_S = 2.0  # of work before the first fault
SHOWN_FAULTS = 20


@dataclass(frozen=True)
class Run:
    """What a run is to be; the seed chooses all the rest."""

    seed: int
    jobs: int
    images: int
    every_s: float
    faults: int
    kinds: tuple[str, ...]
    lease_s: float
    lines: int

    @property
    def durations(self) -> Durations:
        """A freeze outlasts the lease; an outage is shorter where faults come faster than by default."""
        return Durations(self.lease_s + 5, min(OUTAGE_S, 2 * self.every_s), self.lease_s)

    @property
    def over_s(self) -> float:
        """Seconds in which all is sent: while faults strike."""
        return FIRST_S + self.every_s * self.faults


@dataclass
class Storm:
    """Faults, one after the other, each undone in its time; `tick` is to be called often, by the house's thread."""

    plan: Run
    scene: Scene
    began_s: float = field(default_factory=time.monotonic)
    struck: list[str] = field(default_factory=list)
    _deck: list[str] = field(default_factory=list)
    _undos: list[Undo] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether all have struck and nothing is left to undo."""
        return len(self.struck) >= self.plan.faults and not self._undos

    def tick(self) -> None:
        """Strike and undo what is due."""
        now_s = time.monotonic() - self.began_s
        for undo in [one for one in self._undos if one[0] <= now_s]:
            self._undos.remove(undo)
            undo[1]()
        if len(self.struck) < self.plan.faults and now_s >= FIRST_S + self.plan.every_s * len(self.struck):
            self._strike()

    def _strike(self) -> None:
        """The next fault of the shuffled deck that can be done now."""
        if not self._deck:
            self._deck = self.scene.random.sample(self.plan.kinds, len(self.plan.kinds))
        for name in list(self._deck):
            try:
                target, undos = FAULTS[name](self.scene)
            except LookupError:
                continue
            self._deck.remove(name)
            now_s = time.monotonic() - self.began_s
            self._undos += [(now_s + after_s, undo) for after_s, undo in undos]
            self.struck.append(name)
            tell("fault", at_s=round(now_s, 1), fault=name, target=target)
            return


@dataclass(frozen=True)
class Witnesses:
    """All that a verdict can be had from. `standing` has the path and the filters of clients' endpoints."""

    house: House
    orders: Sequence[Order]
    clients: Sequence[Client]
    outside: Outside
    standing: dict[int, tuple[str, list[str]]]


def run(plan: Run) -> int:
    """Exit status: 0 if nothing was lost, doubled or wrong."""
    tell("begin", **asdict(plan))
    random = Random(plan.seed)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="arachne-chaos-", ignore_cleanup_errors=True))
        outside = stack.enter_context(Outside())
        house = stack.enter_context(open_product(Path(folder), outside, CREW, lease_s=plan.lease_s))
        orders = plan_orders(
            random, outside, jobs=plan.jobs, images=plan.images, clients=CLIENTS, over_s=plan.over_s, lines=plan.lines
        )
        clients = [stack.enter_context(open_client(house, f"client-{number}")) for number in range(CLIENTS)]
        seen = Witnesses(house, orders, clients, outside, add_hooks(clients, outside))
        crowd = Crowd(clients, orders, outside)
        crowd.start()
        storm = Storm(plan, Scene(house, random, plan.durations, set()))
        try:
            took_s = rage(storm, crowd, house)
        finally:
            crowd.stop()
        return conclude(storm, seen, took_s)


def rage(storm: Storm, crowd: Crowd, house: House) -> dict[str, float]:
    """Seconds under fire, and from then until everything had ended; returns when it has, or can't."""

    def over() -> bool:
        storm.tick()
        return storm.is_over and crowd.is_done

    wait_until(over, house, storm.plan.over_s + SETTLE_S, "the clients", look_s=0.05)
    over_s = time.monotonic()
    try:
        wait_until(lambda: _has_settled(house), house, SETTLE_S, "the jobs", look_s=0.5)
    except SystemExit as stuck:
        tell("stuck", why=str(stuck))
    return {"storm_s": round(over_s - storm.began_s, 1), "settled_s": round(time.monotonic() - over_s, 1)}


def _has_settled(house: House) -> bool:
    try:
        ((open_ones,),) = house.query(
            "SELECT (SELECT count(*) FROM job WHERE finished_at IS NULL) "
            "+ (SELECT count(*) FROM webhook_delivery WHERE state = 'pending')"
        )
    except PsycopgError:
        return False
    return open_ones == 0


def judge(seen: Witnesses) -> Iterator[str]:
    """All faults found."""
    house, record = seen.house, Record.read(seen.house.database_url)
    yield from judge_jobs(seen.orders, record)
    yield from judge_events(seen.orders, record, list(seen.outside.arrivals), seen.standing)
    yield from judge_answers(seen.orders, record, seen.clients)
    yield from judge_files(house)
    yield from (f"an answer that should not be: {one}" for client in seen.clients for one in client.faults)
    try:
        wait_until(lambda: not find_leftovers(house), house, TIDY_S, "the last leases", look_s=1.0)
    except SystemExit:
        yield f"left over: {find_leftovers(house)}"


def conclude(storm: Storm, seen: Witnesses, took_s: dict[str, float]) -> int:
    """Exit status; the verdict is told."""
    faults, house = list(judge(seen)), seen.house
    for fault in faults[:SHOWN_FAULTS]:
        tell("wrong", what=fault)
    for line in house.unasked[:SHOWN_FAULTS]:
        tell("ended", part=line)
    record, arrivals = Record.read(house.database_url), seen.outside.arrivals
    images = [image for images in record.images.values() for image in images]
    tell(
        "end", seed=storm.plan.seed, jobs=len(record.jobs), images=len(images),
        states=Counter(job["state"] for job in record.jobs.values()), billed=sum(record.billed.values()),
        lost_leases=sum(image["lost_leases"] for image in images),
        events=len({(one.path, one.message_id) for one in arrivals}), webhooks=len(arrivals),
        sent_again=sum(one.resent for one in seen.clients), faults=len(storm.struck), kinds=len(set(storm.struck)),
        ended_unasked=len(house.unasked), wrong=len(faults), **took_s,
    )  # fmt: skip
    if faults:
        for part in house.parts:
            sys.stderr.write(f"== {part.name}\n{last_lines(house.folder / f'{part.name}.log', 40)}\n")
    return 1 if faults else 0


@contextmanager
def open_product(
    folder: Path, outside: Outside, crew: dict[str, int], *, lease_s: float, **more: object
) -> Iterator[House]:
    """The product with so many parts of each kind, all ready."""
    ports = free_ports(crew["api"])
    allowed = [f"127.0.0.1:{outside.port}"]
    settings = {
        "public_url": f"http://127.0.0.1:{ports[0]}", "egress_allow_http": True, "webhook_egress_allow": allowed,
        "image_egress_allow": allowed, "vision_rate_limit": MANY, "image_rate_limit": MANY, "read_rate_limit": MANY,
        "other_rate_limit": MANY, "max_queue_depth": 100_000, "webhook_retry_seconds": [0.5] * 1000,
        "webhook_timeout_s": 5, "lease_s": lease_s, "cpu_workers": 1, "log_level": "INFO",
    } | more  # fmt: skip
    with open_house(folder, settings) as house:
        for kind, number in crew.items():
            for n in range(number):
                house.add(kind, **({"ARACHNE_PORT": str(ports[n])} if kind == "api" else {}))
        workers = crew["gpu"] + crew["io"]
        wait_until(lambda: house.query("SELECT count(*) FROM worker") == [(workers,)], house, START_S, "the workers")
        yield house


@contextmanager
def open_client(house: House, name: str) -> Iterator[Client]:
    """A client with an account of its own, signed in."""
    client = Client(json.loads(house.command("account", "create", name, "--json")), house.apis)
    try:
        client.sign_in()
        yield client
    finally:
        client.close()


def add_hooks(clients: Sequence[Client], outside: Outside) -> dict[int, tuple[str, list[str]]]:
    """Path and filters of the standing endpoints, by client; the last client has none."""
    standing = {}
    for number, client in enumerate(clients):
        secret = client.ask("GET", "/api/webhooks/default/secret").json()["secret"]
        outside.secrets |= {f"/own/{number}/{n}": secret for n in range(3)}
        if number < len(clients) - 1:
            path = f"/standing/{number}"
            endpoint = client.ask("POST", "/api/webhooks", json={"url": outside.url(path), "events": FILTERS}).json()
            outside.secrets[path] = endpoint["secret"]
            standing[number] = (path, FILTERS)
    return standing


def tell(line: str, **members: object) -> None:
    """A line of JSON."""
    sys.stdout.write(json.dumps({"chaos": line} | members) + "\n")
    sys.stdout.flush()
