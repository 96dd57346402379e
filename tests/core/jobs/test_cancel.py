"""Cancelling takes back what is not finished, once, and against whoever finishes at the same time."""

import random
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from sqlalchemy import event

from arachne.database import AsyncDatabase
from arachne.jobs.cancel import cancel, cancel_images, request_cancel
from arachne.jobs.reconcile import reconcile


def cancel_now(queue, job_id: str) -> None:
    """Both transactions, again until nothing is left."""
    queue.database.run(request_cancel, job_id)
    deadline = monotonic() + 30
    while queue.database.run(cancel_images, job_id, queue.settings).left:
        assert monotonic() < deadline


def test_open_images_are_cancelled_and_finished_ones_kept(queue) -> None:
    """Queued, parked and running ones end `cancelled`; a completed one keeps its result and its charge."""
    job_id = queue.submit("done", "running", "running", "queued")
    done, running = queue.claim(queue.worker(), 3)
    queue.complete(done)
    cancel_now(queue, job_id)
    job = queue.job(job_id)
    assert (job.state, job.completed, job.cancelled) == ("cancelled", 1, 3)
    assert [image.state for image in queue.images(job_id)] == ["completed", "cancelled", "cancelled", "cancelled"]
    assert queue.column("SELECT count(*) FROM usage_entry") == [1]
    assert not queue.complete(running).written
    assert queue.ends(job_id) == ["job.cancelled"]


def test_cancelling_twice_or_too_late_changes_nothing(queue) -> None:
    """Terminal states never change."""
    job_id = queue.submit("one")
    queue.work()
    before = queue.job(job_id)
    cancel_now(queue, job_id)
    assert queue.job(job_id) == before
    other = queue.submit("two")
    cancel_now(queue, other)
    cancel_now(queue, other)
    assert queue.job(other).cancelled == 1
    assert queue.ends(other) == ["job.cancelled"]


async def test_cancel_on_the_event_loop(queue, async_database: AsyncDatabase) -> None:
    """The same from the API's side."""
    job_id = queue.submit("one", "two")
    assert await cancel(async_database, job_id, queue.settings)
    assert queue.job(job_id).state == "cancelled"
    assert not await cancel(async_database, job_id, queue.settings)


def test_requested_cancel_is_carried_out_by_the_reconciler(queue) -> None:
    """The API may die between the two transactions."""
    job_id = queue.submit("one")
    queue.database.run(request_cancel, job_id)
    reconcile(queue.database, queue.settings)
    assert queue.job(job_id).state == "cancelled"


def test_finishing_and_cancelling_at_once(queue) -> None:
    """Workers and cancels race over 20 jobs: nothing deadlocks, and every counter equals a recount."""
    job_ids = [queue.submit(*(f"{n}.{m % 15}" for m in range(20))) for n in range(20)]

    def work(worker_id: str) -> int:
        return queue.work(worker_id, limit=3)

    def stop(job_id: str) -> None:
        cancel_now(queue, job_id)

    with ThreadPoolExecutor(6) as pool:
        workers = [pool.submit(work, queue.worker()) for _ in range(3)]
        shuffled = random.sample(job_ids, len(job_ids))
        cancels = [pool.submit(stop, job_id) for job_id in shuffled]
        for future in workers + cancels:
            future.result(timeout=60)
    reconcile(queue.database, queue.settings)
    queue.work()
    for job_id in job_ids:
        job, images = queue.job(job_id), queue.images(job_id)
        counted = {state: sum(image.state == state for image in images) for state in ("completed", "cancelled")}
        assert counted == {"completed": job.completed, "cancelled": job.cancelled}
        assert job.completed + job.cancelled == job.total
        assert job.cached == sum(image.cached for image in images)
        assert queue.ends(job_id) == [f"job.{job.state}"]
    assert queue.column("SELECT count(*) FROM usage_entry") == queue.column(
        "SELECT count(*) FROM image WHERE state = 'completed'"
    )
    assert queue.column("SELECT count(*) FROM flight") == [0]


def test_cancelling_costs_as_many_statements_for_hundreds_of_images_as_for_one(queue) -> None:
    """Among 10,000 queued images of 20 jobs each cancel is one round, of statements that take all images at once."""
    account_id, job_ids = queue.account(), [f"job_{n:02}" for n in range(20)]
    queue.column(
        "INSERT INTO job (job_id, account_id, subject, state, single, options, labels, total, completed, failed, "
        "cancelled, cached, degraded, sequence, deadline_at) SELECT unnest(CAST(:job_ids AS text[])), :account_id, "
        "'s', 'queued', false, '{}', '{}', 500, 0, 0, 0, 0, 0, 0, now() + interval '1 h'",
        job_ids=job_ids, account_id=account_id,
    )  # fmt: skip
    queue.column(
        "INSERT INTO image (image_id, job_id, account_id, index, sha256, state, due_at, attempts, lost_leases, cached, "
        "degraded) SELECT job_id || '.' || n, job_id, account_id, n, 'x', 'queued', now(), 0, 0, false, false "
        "FROM job, generate_series(0, 499) n"
    )
    single = queue.submit("one")
    statements: list[str] = []
    event.listen(queue.database.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    cancel_now(queue, single)
    for_one = len(statements)
    for job_id in job_ids:
        statements.clear()
        cancel_now(queue, job_id)
        assert len(statements) == for_one
        assert (queue.job(job_id).state, queue.job(job_id).cancelled) == ("cancelled", 500)
        assert queue.ends(job_id) == ["job.cancelled"]
    assert queue.column("SELECT DISTINCT state FROM image") == ["cancelled"]
