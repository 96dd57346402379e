"""The whole product under random faults, a small run of `scripts/chaos`; and its verdict, which finds what is wrong."""

import json
from collections import Counter
from collections.abc import Callable
from itertools import islice
from random import Random

import pytest

from scripts.havoc.orders import Item, Order
from scripts.havoc.outside import Arrival
from scripts.havoc.pictures import draw_pictures
from scripts.havoc.run import Run, run
from scripts.havoc.verdict import Record, judge_events, judge_jobs

pytestmark = pytest.mark.chaos
KINDS = ("kill-workers", "kill-api", "redis-empty", "postgres-immediate")


def test_nothing_is_lost_doubled_or_wrong(capfd: pytest.CaptureFixture[str]) -> None:
    """30 jobs with 60 images, while workers, an API process, Redis' data and PostgreSQL are taken away."""
    plan = Run(seed=7, jobs=30, images=60, every_s=4, faults=len(KINDS), kinds=KINDS, lease_s=5, lines=3)
    status = run(plan)
    told = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert status == 0, told
    assert {line["fault"] for line in told if line["chaos"] == "fault"} == set(KINDS)
    assert (told[-1]["jobs"], told[-1]["images"]) == (30, 60)


class World:
    """A job of two images, done as it should be, and what its receiver got."""

    def __init__(self) -> None:
        pictures = list(islice(draw_pictures(Random(1), 2), 2))
        items = [Item(picture, "upload") for picture in pictures]
        self.order = Order(0, 0, "key", items, "use", 0.0, hook="/own", job_ids={"job_1"})
        rows = [
            {
                "image_id": f"img_{n}", "job_id": "job_1", "index": n, "state": "completed", "error_code": None,
                "sha256": picture.digest, "attempts": 1, "lost_leases": 0, "result_id": f"res_{n}",
            }
            for n, picture in enumerate(pictures)
        ]  # fmt: skip
        job = {
            "job_id": "job_1", "state": "completed", "total": 2, "completed": 2, "failed": 0, "cancelled": 0,
            "finished_at": "now", "labels": {},
        }  # fmt: skip
        body = json.dumps({"type": "job.completed", "data": {"job_id": "job_1"}}).encode()
        message = {"message_id": "msg_1", "job_id": "job_1", "type": "job.completed", "body": body}
        texts = {f"res_{n}": " ".join(picture.words) for n, picture in enumerate(pictures)}
        self.record = Record({"job_1": job}, {"job_1": rows}, texts, Counter(["img_0", "img_1"]), {"msg_1": message})
        self.arrivals = [Arrival("/own", "msg_1", body, genuine=True)] * 2

    def faults(self) -> list[str]:
        """What the verdict finds."""
        return [*judge_jobs([self.order], self.record), *judge_events([self.order], self.record, self.arrivals, {})]


def _swap_texts(world: World) -> None:
    texts = world.record.texts
    texts["res_0"], texts["res_1"] = texts["res_1"], texts["res_0"]


def _cancel(world: World) -> None:
    world.record.images["job_1"][0].update(state="cancelled")
    world.record.billed.pop("img_0")


def _forge(world: World) -> None:
    world.arrivals[1] = Arrival("/own", "msg_1", world.arrivals[0].body + b" ", genuine=True)


def _send_under_two_ids(world: World) -> None:
    world.record.messages["msg_2"] = world.record.messages["msg_1"] | {"message_id": "msg_2", "type": "job.started"}
    world.arrivals[1] = Arrival("/own", "msg_2", world.arrivals[0].body, genuine=True)


HARMS: dict[str, tuple[Callable[[World], object], str]] = {
    "lost": (lambda world: world.record.jobs.clear(), "lost"),
    "two jobs": (lambda world: world.order.job_ids.add("job_2"), "became 2 jobs"),
    "strange job": (lambda world: world.record.jobs.update(job_9={"state": "x", "labels": {}}), "never told of"),
    "open": (lambda world: world.record.images["job_1"][0].update(state="running"), "is running"),
    "unasked": (_cancel, "nobody asked for"),
    "counts": (lambda world: world.record.jobs["job_1"].update(completed=1), "counts"),
    "reopened": (lambda world: setattr(world.order, "seen", {"status": "failed"}), "was failed and is"),
    "billed twice": (lambda world: world.record.billed.update(["img_0"]), "billed 2 times"),
    "not billed": (lambda world: world.record.billed.pop("img_1"), "billed 0 times"),
    "swapped": (_swap_texts, "not its own"),
    "never came": (lambda world: world.arrivals.clear(), "never came"),
    "not genuine": (
        lambda world: world.arrivals.append(Arrival("/own", "msg_1", world.arrivals[0].body, genuine=False)),
        "wrong signature",
    ),
    "other bytes": (_forge, "other bytes"),
    "two ids": (_send_under_two_ids, "under 2 ids"),
    "two ends": (
        lambda world: world.record.messages.update(msg_3=world.record.messages["msg_1"] | {"type": "job.failed"}),
        "terminal events",
    ),
}


@pytest.mark.parametrize("harm", HARMS)
def test_verdict_finds_what_is_wrong(harm: str) -> None:
    """Nothing where all is right, and each wrong by its name."""
    world = World()
    assert world.faults() == []
    do, told = HARMS[harm]
    do(world)
    assert any(told in fault for fault in world.faults())
