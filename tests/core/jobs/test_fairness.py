"""How accounts share the workers: by weight and priority, by turns, and nobody's backlog is another's wait."""

import json
from collections import Counter
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from arachne.jobs import claim as claiming
from arachne.jobs.claim import Claimed, claim

MANY = 10_000


def add_many(queue, account: str, images: int, *, model: str | None = None, state: str = "queued") -> None:
    """The account has a job of so many images that the cache doesn't answer."""
    account_id = queue.account(account)
    values = {"job_id": f"job_{uuid4().hex}", "account_id": account_id, "images": images}
    queue.column(
        "INSERT INTO job (job_id, account_id, subject, state, single, options, labels, total, completed, failed, "
        "cancelled, cached, degraded, sequence, deadline_at) VALUES (:job_id, :account_id, 's', 'processing', false, "
        "'{\"cache\": \"bypass\"}', '{}', :images, 0, 0, 0, 0, 0, 0, now() + interval '1 h')",
        **values,
    )
    queue.column(
        "INSERT INTO image (image_id, job_id, account_id, index, sha256, state, due_at, attempts, lost_leases, cached, "
        "degraded, model) SELECT CAST(:job_id AS text) || n, :job_id, :account_id, n, 'x', :state, "
        "now() + interval '600 s', 0, 0, false, false, :model FROM generate_series(1, :images) n",
        **values, model=model, state=state,
    )  # fmt: skip


class Places:
    """A worker that reads one image after the other in each of its places; the oldest claim ends first."""

    def __init__(self, queue, places: int) -> None:
        self.queue, self.places, self.worker = queue, places, queue.worker()
        self.held: list[Claimed] = []
        self.read = Counter[str]()

    def step(self) -> None:
        """Fill the places, and end what has been held longest."""
        self.held += self.queue.claim(self.worker, self.places - len(self.held))
        image = self.held.pop(0)
        self.queue.complete(image)
        self.read[image.account_id] += 1


@pytest.mark.parametrize("places", [1, 2, 5, 8])
def test_images_are_shared_by_weight_however_few_places_there_are(queue, places: int) -> None:
    """Of forty images three in four are of the account with three times the weight."""
    queue.account("heavy", weight=3.0)
    for name in ("heavy", "light"):
        add_many(queue, name, 60)
    run = Places(queue, places)
    for _ in range(40):
        run.step()
    assert run.read[queue.accounts["heavy"]] == pytest.approx(30, abs=2)


def test_a_backlog_of_thousands_delays_nobody(queue) -> None:
    """Whoever comes while one account's images wait by the thousand has the next free place."""
    add_many(queue, "bulk", MANY)
    run = Places(queue, 4)
    for _ in range(12):
        run.step()
    job_id = queue.submit("single", account="quiet")
    run.held.pop(0)
    assert [image.job_id for image in queue.claim(run.worker, 1)] == [job_id]


def test_a_newcomer_takes_its_share_and_no_more(queue) -> None:
    """An account that had nothing for long makes up for nothing: it goes by turns with the others from the start."""
    add_many(queue, "old", 100)
    run = Places(queue, 2)
    for _ in range(40):
        run.step()
    add_many(queue, "new", 100)
    run.read.clear()
    for _ in range(20):
        run.step()
    assert run.read[queue.accounts["old"]] == pytest.approx(10, abs=2)


def test_a_higher_priority_has_most_and_never_all(queue) -> None:
    """Each class counts four of the one below: two classes up sixteen images are read beside one."""
    queue.account("high", priority=2)
    for name in ("high", "low"):
        add_many(queue, name, 60)
    run = Places(queue, 2)
    for _ in range(51):
        run.step()
    assert 2 <= run.read[queue.accounts["low"]] <= 4


def test_slow_images_take_no_more_than_their_accounts_share_of_the_places(queue) -> None:
    """Images that take for ever fill half of the places; the other account has the other half, image by image."""
    for name in ("slow", "quick"):
        add_many(queue, name, 100)
    worker, held, slow = queue.worker(), [], 0
    for _ in range(30):
        held += queue.claim(worker, 4 - len(held) - slow)
        slow += sum(image.account_id == queue.accounts["slow"] for image in held)
        held = [image for image in held if image.account_id == queue.accounts["quick"]]
        queue.complete(held.pop(0))
    assert slow == 2


def test_plans_say_what_accounts_get_and_accounts_may_say_otherwise(queue) -> None:
    """Bound, weight and priority come from the plan; what an account sets itself stands in their place."""
    queue.column("UPDATE plan SET priority = 1, weight = 2, max_in_flight = 3")
    queue.account("plain")
    queue.account("special", priority=0, weight=5.0, max_in_flight=1)
    assert queue.column("SELECT weight FROM account_share ORDER BY max_in_flight") == [5, 8]
    for name in ("plain", "special"):
        add_many(queue, name, 10)
    assert Counter(image.account_id for image in queue.claim(queue.worker(), 10)) == {
        queue.accounts["plain"]: 3, queue.accounts["special"]: 1,
    }  # fmt: skip
    with pytest.raises(IntegrityError, match="ck_plan_priority"):
        queue.column("UPDATE plan SET priority = 4")
    with pytest.raises(IntegrityError, match="ck_account_share"):
        queue.column("UPDATE account SET weight = 0")


def test_small_jobs_pass_a_large_one_for_ten_minutes_at_most(queue) -> None:
    """A large job counts as come later, by a second an image and never by more: then it is before whatever comes."""
    bulk = queue.submit(*(f"bulk{n}" for n in range(700)))
    assert queue.claim(queue.worker(), 1)[0].job_id == bulk
    assert queue.claim(queue.worker(), 1, queue.submit("single"))[0].job_id != bulk
    queue.column("UPDATE image SET due_at = due_at - interval '601 s'")
    queue.submit("another")
    assert queue.claim(queue.worker(), 1)[0].job_id == bulk


def test_accounts_out_of_view_come_into_it_where_a_claim_gives_nothing(queue) -> None:
    """The window moves on over accounts that may have no more in flight, and comes to the one that may."""
    queue.column(
        "INSERT INTO account (account_id, name, plan_id, max_in_flight) "
        "SELECT 'acc_' || n, n, 'default', 1 FROM generate_series(1001, 1200) n; "
        "INSERT INTO job (job_id, account_id, subject, state, single, options, labels, total, completed, failed, "
        "cancelled, cached, degraded, sequence, deadline_at) "
        "SELECT 'job_' || n, 'acc_' || n, 's', 'processing', false, '{\"cache\": \"bypass\"}', '{}', 9, 0, 0, "
        "0, 0, 0, 0, now() + interval '1 h' FROM generate_series(1001, 1200) n; "
        "INSERT INTO image (image_id, job_id, account_id, index, sha256, state, due_at, attempts, lost_leases, "
        "cached, degraded) SELECT 'img_' || n || m, 'job_' || n, 'acc_' || n, m, 'x', CASE WHEN m = 1 AND n < 1200 "
        "THEN 'running' ELSE 'queued' END, now(), 0, 0, false, false "
        "FROM generate_series(1001, 1200) n, generate_series(1, 2) m"
    )
    first = queue.database.run(claim, queue.worker(), 4, None, queue.settings)
    assert not first.images
    second = queue.claim(queue.worker(), 4, first.start)
    assert [image.account_id for image in second] == ["acc_1200"]


def test_images_of_a_full_model_are_not_walked(queue) -> None:
    """However many wait for a model that has no room, a claim looks at a few rows, and gives those of other models."""
    add_many(queue, "both", MANY, model="full")
    add_many(queue, "both", 3, model="free")
    add_many(queue, "none", 3)
    add_many(queue, "full alone", MANY, model="full")
    queue.column("ANALYZE image")
    values = {
        "start": "", "window": 128, "limit": 4, "accounts": 8, "but_for": ["full"], "ahead": 32, "claim_id": uuid4(),
        "worker_id": "w",
    }  # fmt: skip
    with queue.database.transaction() as transaction:
        explained = text(f"EXPLAIN (ANALYZE, FORMAT JSON) {claiming._CLAIM.text}")
        (plan,) = transaction.session.scalar(explained, values)
        transaction.session.rollback()
    assert 0 < sum(rows_of_images(plan["Plan"])) < 500, json.dumps(plan)
    found = queue.database.run(
        claim, queue.worker(), 10, lambda *_: None, queue.settings, but_for=["full"]
    ).images  # none is looked up in the cache
    assert Counter(image.account_id for image in found) == {queue.accounts["both"]: 3, queue.accounts["none"]: 3}


def rows_of_images(node: dict) -> list[float]:
    """Rows that each step of a plan read from the images, those it left out included."""
    told = [row for child in node.get("Plans", []) for row in rows_of_images(child)]
    if node.get("Relation Name") == "image" and "Scan" in node["Node Type"]:
        told.append((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
    return told
