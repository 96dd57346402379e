"""The same image is read once, and its cached result answers whoever else asked for it."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from arachne.cache import load_body
from arachne.errors import DecodeFailed
from arachne.jobs.cancel import cancel_images, request_cancel
from arachne.jobs.finish import finish_completed, finish_failed, give_back
from arachne.jobs.reconcile import reconcile


def states(queue, job_id: str) -> list[str]:
    return [image.state for image in queue.images(job_id)]


def test_same_image_twice_in_a_batch_is_read_once(queue) -> None:
    """The second waits parked, and is then completed from the cache, sharing the stored result."""
    job_id = queue.submit("same", "same", "other", "same")
    worker = queue.worker()
    first, other = queue.claim(worker)
    assert sorted(states(queue, job_id)) == ["parked", "parked", "running", "running"]
    queue.complete(first)
    queue.complete(other)
    again = queue.claim(worker)
    assert [image.hit is not None for image in again] == [True, True]
    for image in again:
        queue.complete(image)
    job, images = queue.job(job_id), queue.images(job_id)
    assert (job.state, job.completed, job.cached) == ("completed", 4, 2)
    assert sorted(image.cached for image in images) == [False, False, True, True]
    assert len({image.result_id for image in images}) == 2
    assert queue.column("SELECT count(*) FROM flight") == [0]
    assert queue.column("SELECT count(*) FROM usage_entry WHERE cached") == [2]


def test_same_image_at_two_workers_is_read_once(queue) -> None:
    """A worker that comes second parks the image although it has nothing else to do."""
    queue.submit("same")
    second = queue.submit("same")
    one, two = queue.worker(), queue.worker()
    (image,) = queue.claim(one, 1)
    assert queue.claim(two, 1) == []
    assert states(queue, second) == ["parked"]
    queue.complete(image)
    (again,) = queue.claim(two, 1)
    assert again.hit is not None


def test_workers_that_race_for_one_image_read_it_once(queue) -> None:
    """Many at once, over and over: each image is read by one of them, all the rest are answered by its result."""
    jobs = [queue.submit(*(f"image {n}" for n in range(5))) for _ in range(8)]
    start = Barrier(4)

    def work() -> int:
        worker = queue.worker()
        start.wait()
        return queue.work(worker, limit=3)

    with ThreadPoolExecutor(4) as pool:
        read = sum(one.result() for one in [pool.submit(work) for _ in range(4)])
    read += queue.work()  # what was parked when the others looked last
    assert read == 5
    assert {queue.job(job_id).state for job_id in jobs} == {"completed"}
    assert sum(queue.job(job_id).cached for job_id in jobs) == 35
    assert queue.column("SELECT count(*) FROM flight") == [0]


def test_flight_of_a_worker_that_died_is_free(queue) -> None:
    """Once it counts as lost, another reads for all who wait; what the dead one might still write, it doesn't."""
    flying, waiting = queue.submit("same"), queue.submit("same")
    dead = queue.worker()
    (image,) = queue.claim(dead)
    assert queue.claim(queue.worker()) == []
    queue.column("UPDATE worker SET beat_at = now() - interval '1 hour' WHERE worker_id = :it", it=dead)
    queue.witness()
    mended = reconcile(queue.database, queue.settings)
    assert (mended.lost_workers, mended.recovered) == (1, 1)
    assert queue.column("SELECT count(*) FROM flight") == [0]
    assert states(queue, flying) == states(queue, waiting) == ["queued"]
    assert queue.work() == 1
    assert not queue.complete(image).written
    assert (queue.job(flying).state, queue.job(waiting).state) == ("completed", "completed")


def test_other_accounts_are_not_answered_from_this_ones_cache(queue) -> None:
    """The key holds the account, so nobody learns what others have sent."""
    queue.submit("same", account="one")
    queue.submit("same", account="two")
    assert queue.work() == 2


@pytest.mark.parametrize("given_back", [True, False])
def test_parked_image_flies_when_the_first_does_not_land(queue, given_back: bool) -> None:
    """A reading that fails or is given back answers nobody: one that waited is read next."""
    job_id = queue.submit("same", "same")
    worker = queue.worker()
    (first,) = queue.claim(worker)
    if given_back:
        queue.database.run(give_back, first)
    else:
        queue.database.run(finish_failed, first, DecodeFailed("no rows"), queue.settings)
    assert "parked" not in states(queue, job_id)
    (second,) = queue.claim(worker)
    assert second.hit is None
    queue.complete(second)
    assert queue.work(worker) == 0
    assert queue.job(job_id).state == ("completed" if given_back else "partial")


def test_degraded_result_answers_nobody_else(queue, make_reading) -> None:
    """What is not complete is kept for its own image only."""
    queue.submit("same", "same")
    worker = queue.worker()
    (first,) = queue.claim(worker)
    queue.database.run(finish_completed, first, make_reading(degraded=True), queue.settings)
    (second,) = queue.claim(worker)
    assert second.hit is None
    assert queue.column("SELECT cache_key FROM image_result") == [None]


def test_bypass_neither_reads_nor_writes(queue) -> None:
    """A cached result is not used, and the new one not reusable."""
    queue.submit("same")
    assert queue.work() == 1
    queue.submit("same", "same", options={"cache": "bypass"})
    assert queue.work() == 2
    assert len(queue.column("SELECT 1 FROM image_result WHERE cache_key IS NOT NULL")) == 1
    assert queue.column("SELECT count(*) FROM flight") == [0]


def test_refresh_takes_the_key_over(queue) -> None:
    """Later images get the new result; the earlier job keeps the one it got."""
    before = queue.submit("same")
    queue.work()
    refreshing = queue.submit("same", options={"cache": "refresh"})
    (image,) = queue.claim(queue.worker())
    assert image.hit is None
    queue.complete(image, value="newer")
    after = queue.submit("same")
    assert queue.work() == 0

    def text(job_id: str) -> bytes:
        with queue.database.transaction() as transaction:
            return load_body(transaction, queue.images(job_id)[0].result_id)

    assert text(before) == b'{"text": "read"}'
    assert text(refreshing) == text(after) == b'{"text": "newer"}'


def test_cached_result_that_was_erased_meanwhile_is_read_anew(queue) -> None:
    """Between claim and finish the result may be erased: the image goes back and is read."""
    first = queue.submit("same")
    queue.work()
    second = queue.submit("same")
    (image,) = queue.claim(queue.worker())
    queue.column("UPDATE image SET result_id = NULL WHERE job_id = :it", it=first)
    queue.column("DELETE FROM image_result")
    queue.complete(image)
    assert queue.job(second).finished_at is None
    assert queue.work() == 1
    assert queue.job(second).state == "completed"


def test_cancelling_the_one_that_flies_frees_those_that_wait(queue) -> None:
    """Another job's parked image doesn't wait for a reading that was cancelled."""
    flying = queue.submit("same")
    waiting = queue.submit("same")
    queue.claim(queue.worker())
    assert states(queue, waiting) == ["parked"]
    queue.database.run(request_cancel, flying)
    queue.database.run(cancel_images, flying, queue.settings)
    assert states(queue, waiting) == ["queued"]
    assert queue.work() == 1


def test_parked_image_without_a_flight_is_queued(queue) -> None:
    """Whatever lost the flight, the reconciler sees who waits for nothing."""
    job_id = queue.submit("same", "same")
    queue.claim(queue.worker())
    queue.column("DELETE FROM flight")
    assert reconcile(queue.database, queue.settings).unparked == 1
    assert sorted(states(queue, job_id)) == ["queued", "running"]


def test_flight_nobody_flies_is_dropped(queue) -> None:
    """A flight left behind blocks nobody for long."""
    job_id = queue.submit("same")
    (image,) = queue.claim(queue.worker())
    queue.complete(image)
    queue.column(
        "INSERT INTO flight (cache_key, image_id, worker_id) SELECT cache_key, image_id, 'wrk_gone' FROM image"
    )
    queue.column("UPDATE image_result SET cache_key = NULL")
    queue.submit("same")
    assert queue.claim(queue.worker()) == []
    assert reconcile(queue.database, queue.settings).unparked == 1
    assert queue.work() == 1
    assert queue.job(job_id).state == "completed"
