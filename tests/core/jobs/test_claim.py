"""Who gets the next free worker."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from arachne.errors import LanguageMissing
from arachne.jobs.claim import claim
from tests.core.jobs.conftest import key_of


def test_account_with_least_in_flight_goes_first(queue) -> None:
    """A big backlog delays nobody: the other account's images are in the next claim."""
    queue.submit(*(f"a{n}" for n in range(50)), account="busy")
    queue.claim(queue.worker(), 8)
    queue.submit("b0", "b1", account="quiet")
    claimed = queue.claim(queue.worker(), 2)
    assert [image.account_id for image in claimed] == [queue.accounts["quiet"]] * 2


def test_accounts_share_by_weight(queue) -> None:
    """With three times the weight, three times as many images are in flight."""
    queue.account("heavy", weight=3.0)
    for name in ("heavy", "light"):
        queue.submit(*(f"{name}{n}" for n in range(40)), account=name)
    worker = queue.worker()
    got = Counter(image.account_id for _ in range(12) for image in queue.claim(worker, 2))
    assert got[queue.accounts["heavy"]] == pytest.approx(18, abs=2)
    assert got.total() == 24


def test_in_flight_is_bounded_by_the_account(queue) -> None:
    """An account never has more in flight than it may."""
    queue.account("bounded", max_in_flight=3)
    queue.submit(*(f"b{n}" for n in range(10)), account="bounded")
    worker = queue.worker()
    assert len(queue.claim(worker, 2)) == 2
    assert len(queue.claim(worker, 2)) == 1
    assert queue.claim(worker, 2) == []


def test_claims_at_once_keep_to_what_an_account_may_have_in_flight(queue) -> None:
    """A claim waits for another one of the account, and puts back what is too many; other accounts wait for nobody."""
    queue.account("bounded", max_in_flight=3)
    queue.submit(*(f"b{n}" for n in range(10)), account="bounded")
    queue.submit(*(f"o{n}" for n in range(10)), account="other")
    first, second = queue.worker(), queue.worker()
    waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with ThreadPoolExecutor(1) as beside:
        with queue.database.transaction() as transaction:
            mine = claim(transaction, first, 4, key_of, queue.settings).images
            theirs = beside.submit(queue.claim, second, 6)
            while not theirs.done() and queue.column(waits) == [0]:
                pass
        both = Counter(image.account_id for image in [*mine, *theirs.result()])
    assert both[queue.accounts["bounded"]] == 3
    assert len(mine) == 4
    assert both[queue.accounts["other"]] >= 5
    held = "SELECT count(*) FROM image WHERE account_id = :it AND state = 'running'"
    assert queue.column(held, it=queue.accounts["bounded"]) == [3]
    left = "SELECT count(*) FROM image WHERE state = 'queued' AND claim_id IS NULL AND worker_id IS NULL"
    assert queue.column(left) == [20 - both.total()]
    assert queue.work() == 10 - both[queue.accounts["other"]]


def test_small_jobs_before_bulk(queue) -> None:
    """Within an account a single image overtakes a batch that came just before it."""
    bulk = queue.submit(*(f"bulk{n}" for n in range(100)))
    single = queue.submit("single")
    assert queue.claim(queue.worker(), 1)[0].job_id == single
    assert queue.claim(queue.worker(), 1)[0].job_id == bulk


def test_claim_starts_the_job_once(queue) -> None:
    """The first claim makes the job `processing` and says since when; later ones leave that."""
    job_id = queue.submit("one", "two")
    assert queue.job(job_id).state == "queued"
    queue.claim(queue.worker(), 1)
    started_at = queue.job(job_id).started_at
    assert queue.job(job_id).state == "processing"
    queue.claim(queue.worker(), 1)
    assert queue.job(job_id).started_at == started_at


def test_images_of_many_jobs_are_claimed_in_their_order(queue) -> None:
    """Equal jobs are served in the order they came."""
    job_ids = [queue.submit(f"x{n}") for n in range(5)]
    assert [image.job_id for image in queue.claim(queue.worker(), 5)] == job_ids


def test_concurrent_claims_are_disjoint_and_complete(queue) -> None:
    """Four workers at once never share an image, and leave none."""
    for name in ("a", "b", "c"):
        queue.submit(*(f"{name}{n}" for n in range(40)), account=name)

    def drain(worker_id: str) -> list[str]:
        got = []
        while claimed := queue.claim(worker_id, 3):
            got += [image.image_id for image in claimed]
        return got

    with ThreadPoolExecutor(4) as pool:
        got = [image_id for part in pool.map(drain, [queue.worker() for _ in range(4)]) for image_id in part]
    assert len(got) == len(set(got)) == 120


def test_every_account_comes_into_view(queue) -> None:
    """With more accounts than a claim looks at, all with a backlog, none is left out for ever."""
    queue.column(
        "INSERT INTO account (account_id, name, plan_id, weight, max_in_flight) "
        "SELECT 'acc_' || n, n, 'default', 1, 1000 FROM generate_series(1001, 1200) n; "
        "INSERT INTO job (job_id, account_id, subject, state, single, options, labels, total, completed, failed, "
        "cancelled, cached, degraded, sequence, deadline_at) "
        "SELECT 'job_' || n, 'acc_' || n, 's', 'processing', false, '{\"cache\": \"bypass\"}', '{}', 9, 0, 0, "
        "0, 0, 0, 0, now() + interval '1 h' FROM generate_series(1001, 1200) n; "
        "INSERT INTO image (image_id, job_id, account_id, index, sha256, state, due_at, attempts, lost_leases, "
        "cached, degraded) SELECT 'img_' || n || m, 'job_' || n, 'acc_' || n, m, 'x', 'queued', now(), 0, 0, "
        "false, false FROM generate_series(1001, 1200) n, generate_series(1, 9) m"
    )
    worker, start, served = queue.worker(), "", set[str]()
    for _ in range(60):
        claimed = queue.claim(worker, 10, start)
        start = claimed[-1].account_id
        served |= {image.account_id for image in claimed}
    assert len(served) == 200


def test_options_of_another_version_keep_nobody_else_waiting(queue) -> None:
    """A job this worker can't understand is claimed with its fault, and the others as ever."""
    queue.submit("strange", options={"invented": True})
    queue.submit("plain")
    faults = [image.fault for image in queue.claim(queue.worker())]
    assert faults[1] is None
    assert "options" in faults[0]


def test_language_this_worker_lacks_keeps_nobody_else_waiting(queue) -> None:
    """What the key can't be made of is told as the image's fault."""
    queue.submit("x")

    def refuse(*_: object) -> None:
        raise LanguageMissing("No language data for xyz.")

    (image,) = queue.database.run(claim, queue.worker(), 1, refuse, queue.settings).images
    assert image.fault == "No language data for xyz."
