"""What is kept for how long: each period by its own setting and the database's clock, and nothing else goes with it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from arachne.errors import Gone
from arachne.jobs import retention
from arachne.jobs.idempotency import reserve
from arachne.jobs.originals import require_original
from arachne.settings import Settings
from arachne.storage import open_storage
from tests.core.jobs.erasing import digest_of, everything, finish

KEPT_S = 1000.0


@pytest.fixture
def kept(queue: Any) -> Callable[..., Settings]:
    """Settings in which one thing is kept for `KEPT_S`, and all else for a hundred days."""
    names = ("original_retention_s", "result_retention_s", "event_retention_s", "tombstone_s", "idempotency_ttl_s")

    def change(name: str) -> Settings:
        times = dict.fromkeys(names, 100 * 86_400.0) | {name: KEPT_S}
        return Settings(data_dir=queue.settings.data_dir, **times)  # type: ignore[arg-type]

    return change


def count(queue: Any) -> dict[str, int]:
    """Rows of each table that has any."""
    tables = ("job", "image", "image_result", "blob", "webhook_message", "webhook_delivery", "idempotency_key",
              "revoked_token", "usage_entry")  # fmt: skip
    return {table: queue.column(f"SELECT count(*) FROM {table}")[0] for table in tables}


def what_goes(queue: Any, step: Callable[[], object]) -> dict[str, int]:
    """How many rows of which tables the step takes, until it has nothing left to do."""
    before = count(queue)
    while step():
        pass
    after = count(queue)
    return {table: before[table] - after[table] for table in before if before[table] != after[table]}


def age(queue: Any, statement: str, seconds: float, **values: object) -> None:
    """Put a time so far back."""
    queue.column(statement.replace("AGO", "now() - make_interval(secs => :seconds)"), seconds=seconds, **values)


async def test_originals_go_by_their_own_time(queue, kept, store) -> None:
    """A week by default; results, names and events outlive them."""
    settings = kept("original_retention_s")
    await store("old", "new")
    old, new = finish(queue, "old"), finish(queue, "new")
    for job_id, seconds in ((old, KEPT_S + 5), (new, KEPT_S - 60)):
        age(queue, "UPDATE job SET finished_at = AGO WHERE job_id = :it", seconds, it=job_id)
    queue.column("UPDATE blob SET stored_at = now() - interval '2 hours'")
    storage = open_storage(settings)
    gone = what_goes(queue, lambda: retention.sweep_originals(queue.database, storage, settings))
    assert gone == {"blob": 1}
    assert storage.read(digest_of("new")) == b"new"
    with pytest.raises(Gone):
        require_original(queue.job(old), queue.images(old)[0], settings)
    assert require_original(queue.job(new), queue.images(new)[0], settings) == digest_of("new")


def test_jobs_expire_with_their_results(queue, kept) -> None:
    """By the setting at their end. Of an expired one no name, no URL and no message is kept; its events are."""
    settings = kept("result_retention_s")
    queue.settings = settings
    old, new = finish(queue, "old"), finish(queue, "new")
    [first] = queue.column(
        "SELECT extract(epoch FROM expires_at - finished_at)::float FROM job WHERE job_id = :it", it=old
    )
    assert first == KEPT_S
    age(queue, "UPDATE job SET expires_at = AGO WHERE job_id = :it", 5, it=old)
    age(queue, "UPDATE image_result SET created_at = AGO WHERE sha256 = :it", KEPT_S + 5, it=digest_of("old"))
    assert what_goes(queue, partial(queue.database.run, retention.drop_results, settings)) == {}
    assert what_goes(queue, partial(queue.database.run, retention.expire_jobs)) == {}
    assert (queue.job(old).deleted_at, queue.job(new).deleted_at) == (queue.job(old).expires_at, None)
    assert what_goes(queue, partial(queue.database.run, retention.drop_results, settings)) == {"image_result": 1}
    [image] = queue.images(old)
    assert (image.name, image.source_url, image.source_host, image.result_id) == (None, None, None, None)
    assert queue.images(new)[0].source_url.endswith("hush")
    assert everything(queue).count("hush") == 1


def test_tombstones_go_by_their_own_time(queue, kept) -> None:
    """With their images; the ledger and the events stay, and so does one that is still being erased."""
    settings = kept("tombstone_s")
    for content, seconds in (("old", KEPT_S + 5), ("new", KEPT_S - 60), ("erasing", KEPT_S + 5)):
        job_id = finish(queue, content)
        queue.column("UPDATE image SET result_id = NULL WHERE job_id = :it", it=job_id)
        age(queue, "UPDATE job SET deleted_at = AGO WHERE job_id = :it", seconds, it=job_id)
    queue.column("UPDATE job SET erasing = true WHERE job_id = :it", it=job_id)
    assert what_goes(queue, partial(queue.database.run, retention.bury_jobs, settings)) == {"job": 1, "image": 1}


def test_events_go_by_their_own_time(queue, kept) -> None:
    """With their deliveries; the job that they tell of stays."""
    settings = kept("event_retention_s")
    finish(queue, "a")
    old, *_ = queue.column("SELECT message_id FROM webhook_message ORDER BY message_id")
    age(queue, "UPDATE webhook_message SET created_at = AGO WHERE message_id = :it", KEPT_S + 5, it=old)
    age(queue, "UPDATE webhook_message SET created_at = AGO WHERE message_id <> :it", KEPT_S - 60, it=old)
    assert what_goes(queue, partial(queue.database.run, retention.drop_events, settings)) == {"webhook_message": 1}


def test_keys_go_by_their_own_time(queue, kept) -> None:
    """An Idempotency-Key after its setting, a revoked token once it would have expired anyway."""
    settings, account_id = kept("idempotency_ttl_s"), queue.account()
    for key in ("old", "new"):
        queue.database.run(reserve, account_id, key, settings)
    [ttl_s] = queue.column("SELECT DISTINCT round(extract(epoch FROM expires_at - now()))::int FROM idempotency_key")
    assert KEPT_S - 60 <= ttl_s <= KEPT_S
    age(queue, "UPDATE idempotency_key SET expires_at = expires_at - make_interval(secs => :seconds) WHERE key = 'old'",
        KEPT_S)  # fmt: skip
    queue.column("INSERT INTO revoked_token (issuer, jti, expires_at) VALUES ('i', 'old', now() - interval '1 s'), "
                 "('i', 'new', now() + interval '1 hour')")  # fmt: skip
    queue.column("INSERT INTO erased_result (result_id, erased_at) VALUES ('old', now() - interval '25 hours'), "
                 "('new', now() - interval '23 hours')")  # fmt: skip
    gone = what_goes(queue, partial(queue.database.run, retention.forget_keys))
    assert gone == {"idempotency_key": 1, "revoked_token": 1}
    assert queue.column("SELECT result_id FROM erased_result") == ["new"]
