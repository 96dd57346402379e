"""A worker that is disturbed: recycled, killed from outside, taken for dead, stopped, or one of two."""

from hashlib import sha256
from threading import Event

import psutil
import pytest

from arachne.actors.dispatcher import LOADING_THREADS

pytestmark = pytest.mark.chaos


def test_subprocesses_are_replaced_after_their_images(service, stage_faults) -> None:
    """Recycling loses nothing."""
    object.__setattr__(service.settings, "stage_images", 2)
    with service.dispatcher(stage_faults.read_or_fail):
        job = service.await_finished(service.submit(*(f"image {n}" for n in range(9))))
    assert (job.state, job.completed) == ("completed", 9)


def test_killed_idle_subprocess_costs_nobody_an_attempt(service, stage_faults, eventually) -> None:
    """The kernel may kill a waiting subprocess: the pool is made anew and the next image is read."""
    with service.dispatcher(stage_faults.read_or_fail):
        service.await_finished(service.submit("first"))
        children = [child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())]
        assert len(children) == service.settings.cpu_workers
        for child in children:
            child.kill()
        eventually(lambda: all(_is_dead(child) for child in children))
        job_id = service.submit("second", "third")
        job = service.await_finished(job_id)
    assert job.state == "completed"
    assert {image.attempts for image in service.images(job_id)} == {1}


def _is_dead(child: psutil.Process) -> bool:
    """Whether it has ended; its parent has to notice by itself, so it may not be waited for here."""
    try:
        return child.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_hanging_store_keeps_nothing_from_being_finished(service, stage_faults, eventually, monkeypatch) -> None:
    """While every thread that loads originals waits for the store, images that need no loading are finished."""
    release, hanging, read = Event(), [], service.storage.read
    hung = {sha256(f"hanging {n}".encode()).hexdigest() for n in range(LOADING_THREADS)}

    def hang_or_read(digest: str) -> bytes:
        if digest in hung:
            hanging.append(digest)
            release.wait(60)
        return read(digest)

    monkeypatch.setattr(service.storage, "read", hang_or_read)
    monkeypatch.setattr("arachne.actors.dispatcher.count_ahead", lambda _: LOADING_THREADS)
    with service.dispatcher(stage_faults.read_or_fail):
        service.await_finished(service.submit("read before"))
        late = service.submit(*(f"hanging {n}" for n in range(LOADING_THREADS)))
        eventually(lambda: len(hanging) == LOADING_THREADS)
        assert service.await_finished(service.submit("read before")).cached == 1
        assert service.job(late).completed == 0
        release.set()
        assert service.await_finished(late).completed == LOADING_THREADS


def test_stopping_gives_back_what_is_not_read(service, stage_faults) -> None:
    """A worker that leaves counts neither as lost nor as an attempt; nothing stays running."""
    job_id = service.submit(*(f"image {n}" for n in range(20)))
    with service.dispatcher(stage_faults.slow_image) as dispatcher:
        while service.job(job_id).state == "queued":
            dispatcher.wake()
    images = service.images(job_id)
    assert {image.state for image in images} <= {"completed", "queued"}
    assert all(image.lost_leases == 0 and image.attempts == (image.state == "completed") for image in images)
    assert service.scalar("SELECT count(*) FROM flight") == 0
    with service.dispatcher(stage_faults.read_or_fail):
        assert service.await_finished(job_id).completed == 20


def test_claim_nobody_knows_of_is_given_back(service, stage_faults) -> None:
    """Where a claim was committed but its answer lost, the worker's own record and the database's are compared."""
    with service.dispatcher(stage_faults.read_or_fail):
        service.await_finished(service.submit("first"))
        job_id = service.submit("second", options={"cache": "bypass"})
        service.scalar(
            "UPDATE image SET state = 'running', claim_id = gen_random_uuid(), "
            "worker_id = (SELECT worker_id FROM worker) WHERE state = 'queued' RETURNING 1"
        )
        assert service.await_finished(job_id).state == "completed"


def test_worker_taken_for_dead_goes_on_under_another_name(service, stage_faults, eventually) -> None:
    """Its images are others' from then on; it registers anew and works on."""
    with service.dispatcher(stage_faults.slow_image):
        job_id = service.submit(*(f"image {n}" for n in range(10)))
        eventually(lambda: service.job(job_id).completed > 0)
        first = service.scalar("SELECT worker_id FROM worker")
        service.scalar("DELETE FROM worker RETURNING 1")
        job = service.await_finished(job_id)
        eventually(lambda: service.scalar("SELECT worker_id FROM worker") not in {None, first})
    assert (job.state, job.completed) == ("completed", 10)
    assert service.scalar("SELECT count(*) FROM usage_entry") == 10


def test_two_workers_share_a_batch(service, stage_faults) -> None:
    """Each image is read by one of them."""
    with service.dispatcher(stage_faults.slow_image), service.dispatcher(stage_faults.slow_image):
        job_id = service.submit(*(f"image {n}" for n in range(24)))
        job = service.await_finished(job_id)
    assert job.completed == 24
    assert len({image.worker_id for image in service.images(job_id)}) == 2
