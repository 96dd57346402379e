"""What may come in, and what it counts as: quota, depth, units, and originals of submissions that come to nothing."""

import json
from collections.abc import Callable
from hashlib import sha256

import pytest
from sqlalchemy import event, text

from arachne.bodies import Reading
from arachne.database import Database, Transaction
from arachne.errors import AccountQueueFull, QuotaExceeded, Unavailable
from arachne.jobs import retention
from arachne.jobs.finish import finish_completed
from arachne.jobs.queue import Room, check_quota, check_room
from arachne.jobs.retention import sweep_originals
from arachne.jobs.submit import NewImage, NewJob, Submitted, reserve_blobs, submit
from arachne.schemas.options import Options
from arachne.secretbox import SecretBox
from arachne.settings import Settings
from arachne.storage import open_storage
from arachne.usage import report_usage

BOX = SecretBox([b"k" * 32])


def image_of(content: str, units: int = 1, **facts: object) -> NewImage:
    """An acceptable image with these bytes."""
    return NewImage(None, sha256(content.encode()).hexdigest(), "png", len(content), units, **facts)  # type: ignore[arg-type]


@pytest.fixture
def small_account(queue) -> str:
    """An account with ten images a month."""
    queue.column(
        "INSERT INTO plan (plan_id, currency, price_image, price_cached, price_vlm, monthly_images, rates) "
        "VALUES ('small', 'EUR', 0.01, 0.001, 0, 10, '{}')"
    )
    return queue.account("small", plan_id="small")


def take_in(transaction: Transaction, new: NewJob, settings: Settings) -> Submitted:
    """The job, whose originals were put on record before."""
    reserve_blobs(transaction, new.images)
    return submit(transaction, new, settings, BOX)


def new_job(account_id: str, *images: NewImage) -> NewJob:
    return NewJob(account_id, "tester", single=False, options=Options(), images=images)


def test_images_on_their_way_count_for_the_quota(queue, small_account: str) -> None:
    """Accepted images count before they are read, by frames; once read they count once."""
    run = queue.database.run
    run(take_in, new_job(small_account, image_of("a", 6), image_of("b")), queue.settings)
    run(check_quota, small_account, 3)
    with pytest.raises(QuotaExceeded, match="7 accepted"):
        run(check_quota, small_account, 4)
    queue.claim(queue.worker(), 1)
    with pytest.raises(QuotaExceeded):
        run(take_in, new_job(small_account, image_of("c", 4)), queue.settings)
    assert queue.column("SELECT count(*) FROM job") == [1]


def test_two_submissions_cannot_both_take_the_last_of_the_quota(database: Database, small_account: str) -> None:
    """The second waits for the first to commit, and then sees what it took."""
    with database.transaction() as first:
        check_quota(first, small_account, 10)
        with pytest.raises(Unavailable), database.transaction() as second:
            impatient(second, small_account)


def impatient(transaction, account_id: str) -> None:
    transaction.session.execute(text("SET LOCAL lock_timeout = '50ms'"))
    check_quota(transaction, account_id, 1)


def test_frames_count_in_the_ledger_the_report_and_the_quota(
    queue, small_account: str, make_reading: Callable[..., Reading]
) -> None:
    """An image of six frames is six images wherever it is counted; its cached result too, however it is answered."""
    run, settings = queue.database.run, queue.settings
    queue.submit("frames", "frames", account="small")
    (image,) = queue.claim(queue.worker())
    run(finish_completed, image, make_reading(pages=3), settings)
    queue.work()
    assert queue.column("SELECT units FROM usage_entry ORDER BY at") == [3, 3]
    assert [str(amount) for amount in queue.column("SELECT amount FROM usage_entry ORDER BY at")] == [
        "0.030000",
        "0.003000",
    ]
    parked = run(report_usage, small_account)
    assert (parked.total.images, parked.total.cached) == (6, 3)
    run(take_in, new_job(small_account, image_of("frames", 3, key=image.key)), settings)
    assert queue.column("SELECT units FROM usage_entry WHERE cached ORDER BY at") == [3, 3]
    run(check_quota, small_account, 1)
    with pytest.raises(QuotaExceeded, match="9 are used"):
        run(check_quota, small_account, 2)


def test_parked_images_take_room(queue) -> None:
    """Whoever sends the same image over and over fills the queue all the same."""
    settings = Settings(data_dir=queue.settings.data_dir, max_queue_depth=12)
    queue.submit("same", "same", "same", "same")
    queue.claim(queue.worker())
    assert queue.column("SELECT count(*) FROM image WHERE state = 'parked'") == [3]
    with pytest.raises(AccountQueueFull):
        queue.database.run(check_room, queue.account(), Room(1, 1), settings)


async def test_originals_of_a_submission_that_came_to_nothing_are_swept(queue) -> None:
    """They are on record before they are stored, so that the sweeper finds them."""
    storage = open_storage(queue.settings)
    images = [image_of("left behind"), image_of("other")]
    assert queue.database.run(reserve_blobs, images) == set()
    assert queue.database.run(reserve_blobs, images[:1]) == {images[0].sha256}
    await storage.write_async(str(images[0].sha256), b"left behind")
    assert sweep_originals(queue.database, storage, queue.settings) == 0
    queue.column("UPDATE blob SET stored_at = now() - interval '2 hours'")
    assert sweep_originals(queue.database, storage, queue.settings) == 2
    assert not await storage.has_async(str(images[0].sha256))
    assert queue.column("SELECT count(*) FROM blob") == [0]


async def test_the_sweeper_passes_over_what_is_kept(queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches of two, with originals that jobs need before, between and after those that none does."""
    monkeypatch.setattr(retention, "BLOB_BATCH", 2)
    storage, contents = open_storage(queue.settings), [f"image {number}" for number in range(9)]
    images = sorted((image_of(content) for content in contents), key=lambda image: str(image.sha256))
    queue.database.run(reserve_blobs, images)
    queue.column("UPDATE blob SET stored_at = now() - interval '2 hours'")
    unused = {images[number].sha256 for number in (2, 5, 6)}
    queue.submit(*(one for one in contents if image_of(one).sha256 not in unused))
    assert sweep_originals(queue.database, storage, queue.settings) == 3
    assert set(queue.column("SELECT sha256 FROM blob")) == {image.sha256 for image in images} - unused


def test_a_store_that_hangs_holds_one_row(queue) -> None:
    """While one original is being deleted, submissions of all others go on."""
    images = [image_of("one"), image_of("two")]
    queue.database.run(reserve_blobs, images)
    queue.column("UPDATE blob SET stored_at = now() - interval '2 hours'")

    class Store:
        deleted = 0

        def delete(self, digest: str) -> None:
            self.deleted += 1
            free = queue.column("SELECT sha256 FROM blob FOR UPDATE SKIP LOCKED")
            assert digest not in free
            assert len(free) == 2 - self.deleted

    assert sweep_originals(queue.database, Store(), queue.settings) == 2  # type: ignore[arg-type]


def test_many_cached_images_are_told_in_a_few_statements(queue) -> None:
    """Each image has its event, whose job isn't called queued; the database isn't asked anew for each of them."""
    contents = [f"image {number}" for number in range(40)]
    queue.submit(*contents)
    keys = {}
    while claimed := queue.claim(queue.worker(), 40):
        for image in claimed:
            keys[image.sha256] = image.key
            queue.complete(image)
    account_id = queue.account()
    queue.column(
        "INSERT INTO webhook_endpoint (endpoint_id, account_id, url, events, enabled, hidden, max_in_flight) "
        "VALUES ('whe_1', :it, 'https://example.com/', '{image.*}', true, false, 10)",
        it=account_id,
    )
    images = [image_of(content, key=keys[sha256(content.encode()).hexdigest()]) for content in contents]
    statements: list[str] = []

    def note(_connection, _cursor, statement: str, *_: object) -> None:
        statements.append(statement)

    event.listen(queue.database.engine, "before_cursor_execute", note)
    made = queue.database.run(take_in, new_job(account_id, *images), queue.settings)
    event.remove(queue.database.engine, "before_cursor_execute", note)
    assert made.finished
    assert len(statements) < len(contents)
    bodies = [
        json.loads(bytes(body))["data"]
        for body in queue.column(
            "SELECT body FROM webhook_message WHERE job_id = :it AND type = 'image.completed' ORDER BY sequence",
            it=made.job_id,
        )
    ]
    assert [body["sequence"] for body in bodies] == list(range(1, 41))
    assert {body["status"] for body in bodies} == {"processing"}
    assert all(body["images"][0]["result"] == {"text": "read"} for body in bodies)
    assert queue.column("SELECT count(*) FROM webhook_delivery") == [40]
    assert queue.job(made.job_id).state == "completed"
