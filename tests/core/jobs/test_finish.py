"""Who finishes an image, how often, and what that does to its job, its result, the ledger and the events."""

import json
import zlib
from collections.abc import Callable
from decimal import Decimal

import pytest

from arachne.bodies import Reading
from arachne.cache import load_body
from arachne.errors import DecodeFailed, OutOfMemory, TimedOut, WorkerCrashed
from arachne.jobs.finish import finish_attempt, finish_completed, finish_failed, give_back
from arachne.jobs.reconcile import reconcile


def test_second_finish_writes_nothing(queue, make_reading: Callable[..., Reading]) -> None:
    """However often a claim is finished, the result, the counter and the ledger entry are written once."""
    job_id = queue.submit("one", "two")
    first, _ = queue.claim(queue.worker())
    assert queue.complete(first).written
    for _ in range(2):
        assert not queue.complete(first).written
        assert not queue.database.run(finish_failed, first, DecodeFailed("late"), queue.settings).written
    assert queue.job(job_id).completed == 1
    assert queue.job(job_id).failed == 0
    assert queue.column("SELECT count(*) FROM image_result") == [1]
    assert queue.column("SELECT count(*) FROM usage_entry") == [1]


def test_zombie_writes_nothing(queue) -> None:
    """A worker whose image was given to another finds its claim gone; the other's result stands."""
    job_id = queue.submit("one")
    (zombies,) = queue.claim(queue.worker())
    queue.column("DELETE FROM worker")
    reconcile(queue.database, queue.settings)
    (others,) = queue.claim(queue.worker())
    assert not queue.complete(zombies, value="old").written
    assert queue.complete(others, value="new").written
    assert queue.job(job_id).state == "completed"
    (image,) = queue.images(job_id)
    with queue.database.transaction() as transaction:
        assert json.loads(load_body(transaction, image.result_id)) == {"text": "new"}


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [("cc", "completed"), ("cf", "partial"), ("fc", "partial"), ("ff", "failed")],
)
def test_last_image_closes_the_job(queue, outcomes: str, state: str) -> None:
    """A job's state follows from its images, and its terminal event is written once, with the last of them."""
    job_id = queue.submit("one", "two")
    for image, outcome in zip(queue.claim(queue.worker()), outcomes, strict=True):
        assert queue.ends(job_id) == []
        if outcome == "c":
            queue.complete(image)
        else:
            queue.database.run(finish_failed, image, DecodeFailed("no rows", stage="decode"), queue.settings)
    job = queue.job(job_id)
    assert job.state == state
    assert (job.completed, job.failed) == (outcomes.count("c"), outcomes.count("f"))
    assert job.started_at <= job.finished_at < job.expires_at
    assert queue.ends(job_id) == [f"job.{state}"]


def test_failed_image_says_why(queue) -> None:
    """Code, message and stage of the error stand on the image; nothing is charged and nothing stored."""
    job_id = queue.submit("one")
    (image,) = queue.claim(queue.worker())
    queue.database.run(finish_failed, image, DecodeFailed("no rows", stage="decode"), queue.settings)
    (row,) = queue.images(job_id)
    assert (row.state, row.error_code, row.error_message, row.error_stage) == (
        "failed", "decode_failed", "no rows", "decode",
    )  # fmt: skip
    assert queue.column("SELECT count(*) FROM usage_entry") == [0]
    assert queue.column("SELECT count(*) FROM image_result") == [0]


@pytest.mark.parametrize("error", [WorkerCrashed("died"), TimedOut("hung"), OutOfMemory("grew")])
def test_image_that_kills_its_subprocess_fails_at_the_third_attempt(queue, error) -> None:
    """Each death counts as the image's attempt; after three it fails with the last one's code."""
    job_id = queue.submit("poison")
    for attempt in (1, 2, 3):
        (image,) = queue.claim(queue.worker())
        queue.database.run(finish_attempt, image, error, queue.settings)
        (row,) = queue.images(job_id)
        assert row.attempts == attempt
        assert row.state == ("failed" if attempt == 3 else "queued")
    assert row.error_code == error.code
    assert queue.job(job_id).state == "failed"


def test_image_given_back_unread_has_no_attempt(queue) -> None:
    """Shutting a worker down costs the image nothing."""
    job_id = queue.submit("one")
    (image,) = queue.claim(queue.worker())
    assert queue.database.run(give_back, image).written
    (row,) = queue.images(job_id)
    assert (row.state, row.attempts, row.lost_leases, row.claim_id) == ("queued", 0, 0, None)
    assert not queue.complete(image).written
    assert queue.work() == 1
    assert queue.images(job_id)[0].attempts == 1


def test_ledger_charges_what_was_delivered(queue, make_reading: Callable[..., Reading]) -> None:
    """An image costs the plan's price, the cached price if it was, each times its frames; the VLM's once."""
    queue.column(
        "INSERT INTO plan (plan_id, currency, price_image, price_cached, price_vlm, rates) "
        "VALUES ('paid', 'EUR', 0.0021, 0.0003, 0.0100, '{}')"
    )
    queue.account("payer", plan_id="paid")
    queue.submit("plain", "vlm", "degraded", "frames", "described", account="payer", options={"cache": "bypass"})
    plain, vlm, degraded, frames, described = queue.claim(queue.worker())

    def finish(image, body: Reading) -> None:
        assert queue.database.run(finish_completed, image, body, queue.settings).written

    finish(plain, make_reading("a", cpu_s=1.5))
    finish(vlm, Reading(b"", "qwen2.5vl:7b@0123456789ab", gpu_s=2.0))
    finish(degraded, Reading(b"", "qwen2.5vl:7b@0123456789ab", degraded=True))
    finish(frames, make_reading("b", pages=3))
    finish(described, Reading(b"", "qwen2.5vl:7b@0123456789ab", pages=3))
    queue.submit("again", account="payer")
    queue.work()
    queue.submit("again", account="payer")
    queue.work()
    amounts = queue.column("SELECT amount FROM usage_entry ORDER BY at, entry_id")
    told = ("0.0021", "0.0121", "0.0021", "0.0063", "0.0163", "0.0021", "0.0003")
    assert amounts == [Decimal(amount) for amount in told]
    assert set(queue.column("SELECT currency FROM usage_entry")) == {"EUR"}
    assert queue.column("SELECT sum(cpu_s) FROM usage_entry") == [1.5]
    assert queue.column("SELECT sum(gpu_s) FROM usage_entry") == [2.0]


def test_any_text_a_code_may_hold_can_be_stored(queue) -> None:
    """NUL and lone surrogates, which JSONB refuses, come back as they were."""
    told = {"text": "\x00 \ud800 é"}
    queue.submit("one")
    (image,) = queue.claim(queue.worker())
    body = zlib.compress(json.dumps(told).encode())
    assert queue.database.run(finish_completed, image, Reading(body, "none"), queue.settings).written
    with queue.database.transaction() as transaction:
        (result_id,) = queue.column("SELECT result_id FROM image")
        assert json.loads(load_body(transaction, result_id)) == told


def test_listeners_hear_of_every_image_in_order(queue) -> None:
    """With an endpoint that wants them, start, each image and the end are events with rising sequence."""
    account_id = queue.account()
    queue.column(
        "INSERT INTO webhook_endpoint (endpoint_id, account_id, url, events, enabled, hidden, max_in_flight) "
        "VALUES ('whe_1', :it, 'https://example.com/', '{job.*,image.*}', true, false, 10)",
        it=account_id,
    )
    job_id = queue.submit("one", "two")
    first, second = queue.claim(queue.worker())
    queue.complete(first)
    queue.database.run(finish_failed, second, DecodeFailed("no rows"), queue.settings)
    assert queue.events(job_id) == ["job.started", "image.completed", "image.failed", "job.partial"]
    assert queue.column("SELECT sequence FROM webhook_message ORDER BY sequence") == [1, 2, 3, 4]
