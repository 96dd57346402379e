"""The dispatcher and its subprocesses: what befalls one image never befalls its neighbours."""

import json

import pytest

from arachne.cache import load_body


def texts(service, job_id: str) -> list[str | None]:
    """What was read from each image."""
    with service.database.transaction() as transaction:
        bodies = [
            load_body(transaction, image.result_id) if image.result_id else None for image in service.images(job_id)
        ]
    return [None if body is None else json.loads(body)["text"] for body in bodies]


def test_batch_is_read(service, stage_faults) -> None:
    """Each image gets its own text; the same one twice is read once; who must know of the end is told."""
    contents = [f"image {n}" for n in range(12)] + ["image 3"]
    with service.dispatcher(stage_faults.read_or_fail) as dispatcher:
        job_id = service.submit(*contents)
        dispatcher.wake()
        job = service.await_finished(job_id)
    assert (job.state, job.completed, job.cached) == ("completed", 13, 1)
    assert texts(service, job_id) == contents
    assert len(service.finished_jobs) == 1
    assert service.scalar("SELECT count(*) FROM image_result") == 12
    assert service.scalar("SELECT sum(cpu_s) FROM usage_entry") == pytest.approx(0.012)
    assert service.scalar("SELECT count(*) FROM worker") == 0


def test_result_is_in_the_machines_cache(service, stage_faults) -> None:
    """After the commit the first level has it under the key the image was claimed with."""
    with service.dispatcher(stage_faults.read_or_fail):
        service.await_finished(service.submit("cached"))
    from arachne.actors.gpu import find_reader
    from arachne.schemas.options import Options

    digest = service.scalar("SELECT sha256 FROM image")
    key = find_reader(service.settings).key_of(Options(), service.account_id, digest)
    assert json.loads(service.cache.get(key))["text"] == "cached"


@pytest.mark.parametrize(
    ("content", "code", "attempts"),
    [
        ("crash", "worker_crashed", 3),
        ("hungry", "out_of_memory", 3),
        ("broken", "decode_failed", 1),
        ("surprise", "read_failed", 1),
    ],
)
def test_faulty_image_fails_alone(service, stage_faults, content: str, code: str, attempts: int) -> None:
    """Neighbours complete at their first attempt, whatever one image does to its subprocess."""
    with service.dispatcher(stage_faults.read_or_fail):
        job_id = service.submit("a", "b", content, "c", "d", "e", "f")
        job = service.await_finished(job_id)
    assert (job.state, job.completed, job.failed) == ("partial", 6, 1)
    failed = [image for image in service.images(job_id) if image.state == "failed"]
    assert [(image.error_code, image.attempts) for image in failed] == [(code, attempts)]
    others = [image for image in service.images(job_id) if image.state == "completed"]
    assert {(image.attempts, image.lost_leases) for image in others} == {(1, 0)}


def test_hanging_image_is_cut_off(service, stage_faults) -> None:
    """Over the hard limit its subprocess is killed, even inside C code; after three times it fails."""
    object.__setattr__(service.settings, "hard_time_limit_s", 0.5)
    with service.dispatcher(stage_faults.read_or_fail):
        job_id = service.submit("a", "hang", "b", "c")
        job = service.await_finished(job_id)
    assert (job.state, job.completed, job.failed) == ("partial", 3, 1)
    (failed,) = [image for image in service.images(job_id) if image.state == "failed"]
    assert (failed.error_code, failed.attempts) == ("timeout", 3)
    assert "0.5 s" in failed.error_message


def test_subprocesses_are_replaced_after_their_images(service, stage_faults) -> None:
    """Recycling loses nothing."""
    object.__setattr__(service.settings, "stage_images", 2)
    with service.dispatcher(stage_faults.read_or_fail):
        job = service.await_finished(service.submit(*(f"image {n}" for n in range(9))))
    assert (job.state, job.completed) == ("completed", 9)


def test_killed_idle_subprocess_costs_nobody_an_attempt(service, stage_faults, eventually) -> None:
    """The kernel may kill a waiting subprocess: the pool is made anew and the next image is read."""
    import os
    import signal

    import psutil

    with service.dispatcher(stage_faults.read_or_fail):
        service.await_finished(service.submit("first"))
        for child in psutil.Process().children():
            if "spawn_main" in " ".join(child.cmdline()):
                os.kill(child.pid, signal.SIGKILL)
        job_id = service.submit("second", "third")
        job = service.await_finished(job_id)
    assert job.state == "completed"
    assert {image.attempts for image in service.images(job_id)} == {1}


def test_lost_original_fails_its_image(service, stage_faults) -> None:
    """An image whose bytes are gone says so."""
    job_id = service.submit("gone", "there")
    service.storage.delete(service.images(job_id)[0].sha256)
    with service.dispatcher(stage_faults.read_or_fail):
        job = service.await_finished(job_id)
    assert job.state == "partial"
    assert service.images(job_id)[0].error_code == "read_failed"


def test_missing_language_fails_its_image(service, stage_faults) -> None:
    """A language that was there at submission and isn't on this machine is told by name."""
    with service.dispatcher(stage_faults.read_or_fail):
        job_id = service.submit("x", options={"languages": ["xyz"]})
        assert service.await_finished(job_id).state == "failed"
    assert "xyz" in service.images(job_id)[0].error_message


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
