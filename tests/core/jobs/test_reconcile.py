"""What is left lying is picked up: lost workers, deadlines, jobs nobody closed."""

import pytest

from arachne.jobs.reconcile import reconcile, release_worker
from arachne.jobs.workers import beat, register, unregister


def test_images_of_a_lost_worker_are_read_by_another(queue) -> None:
    """Without a beat for the lease the worker is gone; its image is queued again and counts no attempt."""
    job_id = queue.submit("one")
    lost = queue.worker()
    (image,) = queue.claim(lost)
    assert reconcile(queue.database, queue.settings).recovered == 0
    queue.column("UPDATE worker SET beat_at = now() - make_interval(secs => :it)", it=queue.settings.lease_s + 1)
    queue.witness()
    mended = reconcile(queue.database, queue.settings, thorough=False)
    assert (mended.lost_workers, mended.recovered, mended.queued) == (1, 1, True)
    (row,) = queue.images(job_id)
    assert (row.state, row.lost_leases, row.attempts) == ("queued", 1, 0)
    assert not queue.database.run(beat, lost)
    assert not queue.complete(image).written
    assert queue.work() == 1


def test_silence_of_all_is_nobodys_loss(queue) -> None:
    """After an outage of the database every beat is old: who is late is lost once another beats steadily."""
    queue.submit("one")
    late, back = queue.worker(), queue.worker()
    queue.claim(late)
    queue.column("UPDATE worker SET beat_at = now() - interval '1 min', steady_since = now() - interval '1 hour'")
    assert reconcile(queue.database, queue.settings).lost_workers == 0
    assert queue.database.run(beat, back)
    assert reconcile(queue.database, queue.settings).lost_workers == 0
    queue.column("UPDATE worker SET steady_since = steady_since - interval '1 min' WHERE worker_id = :it", it=back)
    assert queue.database.run(beat, back)
    assert reconcile(queue.database, queue.settings).lost_workers == 1
    assert not queue.database.run(beat, late)


def test_worker_that_beats_keeps_its_images(queue) -> None:
    """Slow is not lost."""
    queue.submit("one")
    worker = queue.worker()
    queue.claim(worker)
    queue.column("UPDATE worker SET beat_at = now() - interval '1 hour'")
    queue.witness()
    assert queue.database.run(beat, worker)
    assert reconcile(queue.database, queue.settings).recovered == 0


def test_reaped_process_frees_its_images_at_once(queue) -> None:
    """The supervisor knows that its child is dead before any lease ends; other processes keep theirs."""
    queue.submit("one", "two")
    dead = queue.database.run(register, "gpu", host="here", pid=4711)
    living = queue.database.run(register, "gpu", host="there", pid=4711)
    queue.claim(dead, 1)
    queue.claim(living, 1)
    queue.database.run(release_worker, host="here", pid=4711)
    assert reconcile(queue.database, queue.settings, thorough=False).recovered == 1
    assert queue.column("SELECT worker_id FROM image WHERE state = 'running'") == [living]


def test_worker_that_left_is_not_there(queue) -> None:
    """Leaving in good order removes the row."""
    worker = queue.worker()
    queue.database.run(unregister, worker)
    assert queue.column("SELECT count(*) FROM worker") == [0]


def test_image_that_outlives_too_many_workers_fails(queue) -> None:
    """With the tenth lost worker the image is given up as `worker_lost`, and its job ends."""
    job_id = queue.submit("one")
    for losses in range(1, 11):
        queue.claim(queue.worker())
        queue.column("DELETE FROM worker")
        reconcile(queue.database, queue.settings)
        (row,) = queue.images(job_id)
        assert row.state == ("queued" if losses < 10 else "failed")
    assert row.error_code == "worker_lost"
    assert queue.job(job_id).state == "failed"
    assert queue.ends(job_id) == ["job.failed"]


def test_deadline_ends_a_job_in_any_state(queue) -> None:
    """Past the deadline queued, parked and running images fail at any worker's next look; a completed one stays."""
    job_id = queue.submit("done", "running", "running", "queued", deadline_s=600)
    done, running = queue.claim(queue.worker(), 3)
    queue.complete(done)
    assert reconcile(queue.database, queue.settings).late == 0
    queue.column("UPDATE job SET deadline_at = now() - interval '1 second'")
    assert reconcile(queue.database, queue.settings, thorough=False).late == 3
    assert not queue.complete(running).written
    job = queue.job(job_id)
    assert (job.state, job.completed, job.failed) == ("partial", 1, 3)
    assert [image.error_code for image in queue.images(job_id)] == [None] + ["deadline_exceeded"] * 3
    assert queue.ends(job_id) == ["job.partial"]


def test_job_whose_images_ended_without_it_is_closed(queue) -> None:
    """Belt and braces: counters are counted anew and the terminal event is written."""
    job_id = queue.submit("one", "two")
    queue.column("UPDATE image SET state = 'failed', error_code = 'read_failed' WHERE index = 0")
    queue.column("UPDATE image SET state = 'cancelled' WHERE index = 1")
    assert reconcile(queue.database, queue.settings).closed == 1
    job = queue.job(job_id)
    assert (job.state, job.failed, job.cancelled) == ("cancelled", 1, 1)
    assert queue.ends(job_id) == ["job.cancelled"]


def test_reconciling_again_changes_nothing(queue) -> None:
    """Every step is idempotent and a healthy queue has nothing to mend."""
    queue.submit("one", "one", "two", account="a")
    queue.submit("three", account="b")
    queue.claim(queue.worker(), 2)
    rows = queue.column("SELECT image::text FROM image ORDER BY image_id")
    for _ in range(2):
        mended = reconcile(queue.database, queue.settings)
        assert mended == type(mended)()
    assert queue.column("SELECT image::text FROM image ORDER BY image_id") == rows


def test_one_process_reconciles_at_a_time(queue) -> None:
    """While another is at it there is nothing to do."""
    queue.submit("one")
    queue.claim(queue.worker())
    queue.column("DELETE FROM worker")
    with queue.database.transaction() as transaction:
        from arachne.jobs.reconcile import _alone

        assert _alone(transaction)
        assert reconcile(queue.database, queue.settings).recovered == 0
    assert reconcile(queue.database, queue.settings).recovered == 1


def test_cancelled_jobs_left_over_are_ended_batch_by_batch(queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, one look takes a bounded number of them, those that have waited longest first."""
    first, second = queue.submit("one"), queue.submit("two")
    queue.column("UPDATE job SET cancel_requested_at = now() - interval '1 minute' WHERE job_id = :it", it=second)
    queue.column("UPDATE job SET cancel_requested_at = now() WHERE job_id = :it", it=first)
    monkeypatch.setattr("arachne.jobs.reconcile._BATCH", 1)
    reconcile(queue.database, queue.settings)
    assert (queue.job(first).state, queue.job(second).state) == ("queued", "cancelled")
    reconcile(queue.database, queue.settings)
    assert queue.job(first).state == "cancelled"
