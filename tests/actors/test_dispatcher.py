"""The dispatcher and its subprocesses: what befalls one image never befalls its neighbours."""

import json

import pytest

from arachne.actors.gpu import find_reader
from arachne.actors.pool import PoolLostError, StagePool
from arachne.cache import load_body
from arachne.schemas.options import Options

pytestmark = pytest.mark.processes


def texts(service, job_id: str) -> list[str | None]:
    """What was read from each image."""
    with service.database.transaction() as transaction:
        bodies = [
            load_body(transaction, image.result_id) if image.result_id else None for image in service.images(job_id)
        ]
    return [None if body is None else json.loads(body)["text"] for body in bodies]


def test_batch_is_read(busy_service) -> None:
    """Each image gets its own text; the same one twice is read once."""
    contents = [f"image {n}" for n in range(12)] + ["image 3"]
    job_id = busy_service.submit(*contents)
    job = busy_service.await_finished(job_id)
    assert (job.state, job.completed, job.cached) == ("completed", 13, 1)
    assert texts(busy_service, job_id) == contents
    assert len({image.result_id for image in busy_service.images(job_id)}) == 12


def test_result_is_in_the_machines_cache(busy_service) -> None:
    """After the commit the first level has it under the key the image was claimed with."""
    job_id = busy_service.submit("for the cache")
    busy_service.await_finished(job_id)
    (image,) = busy_service.images(job_id)
    key = find_reader(busy_service.settings).key_of(Options(), busy_service.account_id, image.sha256)
    assert busy_service.cache.get(key).result_id == image.result_id
    assert json.loads(busy_service.cache.get(key).result_json)["text"] == "for the cache"


@pytest.mark.parametrize(("mode", "is_kept"), [("refresh", True), ("bypass", False)])
def test_cache_mode_holds_for_the_machines_file_too(busy_service, mode: str, is_kept: bool) -> None:
    """`refresh` puts the new result in the old one's place, `bypass` leaves the file alone."""
    busy_service.await_finished(busy_service.submit(f"for {mode}"))
    job_id = busy_service.submit(f"for {mode}", options={"cache": mode})
    assert busy_service.await_finished(job_id).cached == 0
    (image,) = busy_service.images(job_id)
    key = find_reader(busy_service.settings).key_of(Options(), busy_service.account_id, image.sha256)
    assert (busy_service.cache.get(key).result_id == image.result_id) is is_kept


def test_new_prompt_without_a_model_reads_nothing_again(busy_service) -> None:
    """Stages 1 to 7 are those of the first request, told as cached, and the image is charged as cached."""
    busy_service.await_finished(busy_service.submit("asked twice"))
    job_id = busy_service.submit("asked twice", options={"prompt": "what is new?"})
    assert busy_service.await_finished(job_id).cached == 1
    (image,) = busy_service.images(job_id)
    with busy_service.database.transaction() as transaction:
        result = json.loads(load_body(transaction, image.result_id))
    assert [(stage["name"], stage["cached"]) for stage in result["stages"]] == [("read", True)]


def test_faulty_images_fail_alone(busy_service) -> None:
    """Neighbours complete at their first attempt, whatever others do to their subprocesses: die, hang, hoard, trip."""
    contents = ["a", "crash", "b", "hang", "c", "hungry", "d", "broken", "e", "surprise", "f"]
    job_id = busy_service.submit(*contents)
    job = busy_service.await_finished(job_id)
    assert (job.state, job.completed, job.failed) == ("partial", 6, 5)
    found = {
        content: (image.error_code, image.attempts)
        for content, image in zip(contents, busy_service.images(job_id), strict=True)
    }
    assert found == dict.fromkeys("abcdef", (None, 1)) | {
        "crash": ("worker_crashed", 3),
        "hang": ("timeout", 3),
        "hungry": ("out_of_memory", 3),
        "broken": ("decode_failed", 1),
        "surprise": ("read_failed", 1),
    }
    assert {image.lost_leases for image in busy_service.images(job_id)} == {0}


def test_lost_original_fails_its_image(busy_service) -> None:
    """An image whose bytes are gone says so."""
    job_id = busy_service.submit("never stored", "stored", lost={"never stored"})
    assert busy_service.await_finished(job_id).state == "partial"
    assert busy_service.images(job_id)[0].error_code == "read_failed"


def test_missing_language_fails_its_image(busy_service) -> None:
    """A language that was there at submission and isn't on this machine is told by name."""
    job_id = busy_service.submit("x", options={"languages": ["xyz"]})
    assert busy_service.await_finished(job_id).state == "failed"
    assert "xyz" in busy_service.images(job_id)[0].error_message


def test_job_of_another_version_fails_alone(busy_service) -> None:
    """Options this version doesn't know fail their job and nothing else."""
    strange = busy_service.submit("strange", options={"invented": True})
    plain = busy_service.submit("plain")
    assert busy_service.await_finished(plain).state == "completed"
    assert busy_service.await_finished(strange).state == "failed"


def test_stopped_pool_stays_stopped(settings, stage_faults) -> None:
    """An image that comes too late, because its bytes did, starts no subprocesses again."""
    pool = StagePool(stage_faults.read_or_fail, settings)
    pool.stop()
    with pytest.raises(PoolLostError):
        pool.schedule(b"late", None, lambda _: None)
    assert not pool._pool.active
