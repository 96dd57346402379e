"""An image that takes whole workers down, which no limit on its subprocess stops: in the end it fails alone."""

import os

import pytest

from arachne.jobs.reconcile import reconcile, release_worker

pytestmark = pytest.mark.chaos


def test_image_that_takes_workers_down_fails_alone(service, worker_process) -> None:
    """Its neighbours are lost with it twice at most; then each runs alone, and the tenth worker lost is its last."""
    job_id = service.submit("lethal", *(f"linger {n}" for n in range(3)))
    losses = 0
    while losses < 10:
        with worker_process("read_or_fail") as worker:
            assert worker.wait(60) < 0
        service.database.run(release_worker, host=os.uname().nodename, pid=worker.pid)
        reconcile(service.database, service.settings)
        losses += 1
        assert service.images(job_id)[0].lost_leases == min(losses, 9)  # the last one fails it
        if losses == 3:  # the same five times over would show nothing more
            service.scalar("UPDATE image SET lost_leases = 8 WHERE index = 0")
            losses = 8
    with worker_process("read_or_fail"):
        job = service.await_finished(job_id)
    lethal, *others = service.images(job_id)
    assert (job.state, job.completed, job.failed) == ("partial", 3, 1)
    assert (lethal.error_code, lethal.attempts) == ("worker_lost", 0)
    assert "10 times" in lethal.error_message
    assert {image.state for image in others} == {"completed"}
    assert max(image.lost_leases for image in others) <= 2
    assert {image.attempts for image in others} == {1}
    assert service.scalar("SELECT count(*) FROM usage_entry") == 3
