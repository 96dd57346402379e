"""Images that workers were lost with before run with nothing else in hand."""

from hashlib import sha256
from threading import Event

import pytest

pytestmark = pytest.mark.processes


def test_images_that_outlived_two_workers_run_alone(service, stage_faults, monkeypatch) -> None:
    """One after the other, each when all else is done; images that lost one worker don't wait."""
    job_id = service.submit(*(f"image {n}" for n in range(8)))
    service.scalar("UPDATE image SET lost_leases = CASE WHEN index IN (0, 4, 7) THEN 2 ELSE 1 END")
    in_hand, together = set(), {}
    with service.dispatcher(stage_faults.slow_image) as dispatcher:
        schedule = dispatcher._pool.schedule

        def watch(data, request, ended, **more):
            in_hand.add(data)
            for one in in_hand:
                together[one] = together.get(one, set()) | in_hand

            def end(*done) -> None:
                in_hand.discard(data)
                ended(*done)

            return schedule(data, request, end, **more)

        monkeypatch.setattr(dispatcher._pool, "schedule", watch)
        job = service.await_finished(job_id)
    assert (job.state, job.completed) == ("completed", 8)
    suspects = {b"image 0", b"image 4", b"image 7"}
    assert {one: together[one] for one in suspects} == {one: {one} for one in suspects}
    assert max(map(len, together.values())) > 1
    assert {image.attempts for image in service.images(job_id)} == {1}


def test_stopping_gives_back_what_waits_to_run_alone(service, stage_faults, eventually, monkeypatch) -> None:
    """A worker that leaves keeps no image that it hasn't begun, whatever else it still waits for."""
    begun, release, read = Event(), Event(), service.storage.read
    hanging = sha256(b"hanging").hexdigest()

    def hang(digest: str) -> bytes:
        if digest == hanging:
            begun.set()
            release.wait(60)
        return read(digest)

    monkeypatch.setattr(service.storage, "read", hang)
    job_id = service.submit("hanging", "suspect")
    service.scalar("UPDATE image SET lost_leases = 2 WHERE index = 1")
    with service.dispatcher(stage_faults.read_or_fail) as dispatcher:
        assert begun.wait(60)  # claimed is not begun: one that has not is given back too
        eventually(lambda: service.scalar("SELECT count(*) FROM image WHERE state = 'running'") == 2)
        dispatcher.stop()
        eventually(lambda: [image.state for image in service.images(job_id)] == ["running", "queued"])
        release.set()
    assert {(image.state, image.attempts) for image in service.images(job_id)} == {("queued", 0)}
    assert [image.lost_leases for image in service.images(job_id)] == [0, 2]
    assert service.scalar("SELECT count(*) FROM flight") == 0
