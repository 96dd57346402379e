"""What clients are told of the queue, held against what then happens."""

import random
import statistics

import pytest
from sqlalchemy import text

from arachne.errors import AccountQueueFull, QueueFull
from arachne.jobs.claim import Claimed
from arachne.jobs.estimates import find_place
from arachne.jobs.queue import Room, check_room

_PASS = text("""
UPDATE image SET due_at = due_at - make_interval(secs => :s), started_at = started_at - make_interval(secs => :s),
                 finished_at = finished_at - make_interval(secs => :s)
""")


_TOOK = text("UPDATE image SET started_at = finished_at - make_interval(secs => :s) WHERE image_id = :image_id")


class Replay:
    """Images read in so many places, on a clock of its own: time passes by making all that happened older."""

    def __init__(self, queue, places: int, seed: int = 1) -> None:
        self.queue, self.places, self.worker = queue, places, queue.worker()
        self.random, self.now_s = random.Random(seed), 0.0
        self.ends: list[tuple[float, int, float, Claimed]] = []  # with the time it was begun
        self.begun: list[str] = []
        self.finished_s: dict[str, float] = {}

    def fill(self) -> None:
        """Have the free places claim."""
        for image in self.queue.claim(self.worker, self.places - len(self.ends)):
            self.begun.append(image.job_id)
            end_s = self.now_s + self.random.uniform(0.5, 5.5)
            self.ends.append((end_s, len(self.begun), self.now_s, image))

    def step(self) -> bool:
        """Whether an image was read: the next one that ends."""
        self.fill()
        if not self.ends:
            return False
        first = min(self.ends)
        self.ends.remove(first)
        end_s, _, begun_s, image = first
        with self.queue.database.transaction() as transaction:
            transaction.session.execute(_PASS, {"s": end_s - self.now_s})
        self.now_s = end_s
        self.queue.complete(image)
        with self.queue.database.transaction() as transaction:  # what the test itself takes is not counted
            transaction.session.execute(_TOOK, {"s": end_s - begun_s, "image_id": image.image_id})
        self.finished_s[image.job_id] = self.now_s
        self.fill()
        return True

    def place(self, job_id: str):
        """What the job's client is told."""
        return self.queue.database.run(find_place, job_id)


def contents(name: str, number: int) -> list[str]:
    return [f"{name}{n}" for n in range(number)]


@pytest.mark.parametrize("places", [1, 4])
def test_promised_times_are_right_within_a_factor_of_two(queue, places: int) -> None:
    """Over the drain of three accounts' jobs, from the first image on: the middle of all promises, and most of them."""
    queue.account("heavy", weight=3.0)
    run = Replay(queue, places)
    jobs = [
        queue.submit(*contents("a", 30), account="bulk"), queue.submit(*contents("b", 10), account="bulk"),
        queue.submit(*contents("c", 20), account="heavy"), queue.submit("d", account="single"),
        queue.submit(*contents("e", 8), account="single"),
    ]  # fmt: skip
    promised: list[tuple[str, float, float]] = []
    while run.step():
        for job_id in jobs:
            place = run.place(job_id)
            if place is not None:
                assert place.eta_seconds is not None
                promised.append((job_id, run.now_s, place.eta_seconds))
    ratios = [eta_s / (run.finished_s[job_id] - at_s) for job_id, at_s, eta_s in promised]
    assert len(ratios) > 100
    assert 0.5 < statistics.median(ratios) < 2
    assert sum(0.5 <= ratio <= 2 for ratio in ratios) > len(ratios) * 0.8
    early = [ratio for ratio, (_, at_s, _) in zip(ratios, promised, strict=True) if at_s < 10]
    assert 0.5 < statistics.median(early) < 2


def test_the_position_is_how_many_images_then_begin_first(queue) -> None:
    """Turns of others count as they come; a job that is told 7 sees seven images begun before its own, or nearly."""
    run = Replay(queue, 2)
    queue.submit(*contents("a", 20), account="one")
    queue.submit(*contents("b", 5), account="two")
    run.fill()
    last = queue.submit(*contents("c", 20), account="one")
    told, begun = run.place(last).position, len(run.begun)
    while last not in run.begun:
        assert run.step()
    assert told == pytest.approx(run.begun.index(last) - begun, abs=2)
    newcomer = queue.submit("d", account="three")
    assert run.place(newcomer).position == 0


def test_images_still_to_be_fetched_have_a_place(queue) -> None:
    """A job of which all is being fetched stands in the line like others; one of which all is in hand doesn't."""
    queue.submit("before")
    job_id = queue.submit("later")
    queue.column(
        "UPDATE image SET state = 'fetching', source_host = 'h', fetch_at = now() WHERE job_id = :it", it=job_id
    )
    assert queue.database.run(find_place, job_id).position == 1
    queue.column("UPDATE image SET state = 'queued'")
    queue.claim(queue.worker())
    assert queue.database.run(find_place, job_id) is None


def test_nothing_is_promised_before_anything_was_read(queue) -> None:
    """Without a measure there is a place and no time; ten minutes after the last image there is none again."""
    first, second = queue.submit("a"), queue.submit("b")
    assert queue.database.run(find_place, first).eta_seconds is None
    queue.complete(queue.claim(queue.worker(), 1)[0])
    assert queue.database.run(find_place, second).eta_seconds is not None
    queue.column("UPDATE image SET started_at = now() - interval '1 h', finished_at = now() - interval '601 s'")
    assert queue.database.run(find_place, second).eta_seconds is None


def test_retry_after_is_what_draining_takes(queue) -> None:
    """Four at a time, eight seconds each: half an image a second, of which an account has its share."""
    settings = queue.settings.model_copy(update={"max_queue_depth": 80})
    for account in ("one", "two"):
        queue.submit(*contents(account, 20), account=account)
    claimed = queue.claim(queue.worker(), 8)
    for image in claimed[:4]:
        queue.complete(image)
    queue.column("UPDATE image SET started_at = finished_at - interval '8 s' WHERE state = 'completed'")
    with pytest.raises(AccountQueueFull) as full:
        queue.database.run(check_room, queue.account("one"), Room(12, 12), settings)
    assert full.value.retry_after_s == pytest.approx(8 / (0.5 * 0.5), rel=0.05)
    settings = queue.settings.model_copy(update={"max_queue_depth": 40})
    queue.column("UPDATE image SET account_id = :it WHERE state = 'queued'", it=queue.account("two"))
    with pytest.raises(QueueFull) as full:
        queue.database.run(check_room, queue.account("three"), Room(28, 28), settings)
    assert full.value.retry_after_s == pytest.approx(20 / 0.5, rel=0.05)
