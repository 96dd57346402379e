"""The queue measured as a whole, and images counted as they end: once, and only what was committed."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from arachne.errors import ReadFailed
from arachne.jobs.cancel import cancel_images, request_cancel
from arachne.jobs.finish import finish_failed
from arachne.jobs.gauges import QueueGauges
from arachne.jobs.reconcile import reconcile
from arachne.metrics import REGISTRY

if TYPE_CHECKING:
    from .conftest import Queue


def measure(gauges: QueueGauges) -> dict[tuple[str, str], float]:
    """Every sample, by its name and its label's value."""
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in gauges.collect()
        for sample in family.samples
    }


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_the_queue_is_measured_by_state(queue: "Queue") -> None:
    """Depth and age of each state, workers that live, and nothing of what has ended."""
    gauges = QueueGauges(queue.database.url, 15)
    try:
        empty = measure(gauges)
        worker = queue.worker()
        old = queue.submit("a", "b", "c")
        queue.column("UPDATE job SET created_at = now() - interval '1 hour' WHERE job_id = :it", it=old)
        done = queue.claim(worker, 1)
        queue.complete(queue.claim(worker, 1)[0])
        queue.submit("d")
        found = measure(gauges)
    finally:
        gauges.close()
    assert len(done) == 1
    assert set(empty.values()) == {0.0}
    assert found["arachne_queue_images", "queued"] == 2
    assert found["arachne_queue_images", "running"] == 1
    assert found["arachne_queue_images", "fetching"] == found["arachne_queue_images", "parked"] == 0
    assert 3600 <= found["arachne_queue_oldest_seconds", "queued"] < 7200
    assert found["arachne_workers", "gpu"] == 1
    assert found["arachne_workers", "io"] == 0


def test_deliveries_that_are_due_are_overdue(queue: "Queue") -> None:
    """By how long the first of them has been; those that wait for a retry only count as pending."""
    account = queue.account()
    queue.column(
        "INSERT INTO webhook_endpoint (endpoint_id, account_id, url, events, enabled, hidden, max_in_flight)"
        " VALUES ('whe_1', :it, 'https://a.example', '{}', true, false, 10)", it=account,
    )  # fmt: skip
    for number, due in enumerate(("now() + interval '1 hour'", "now() - interval '10 min'")):
        message = f"msg_{number}"
        queue.column(
            "INSERT INTO webhook_message (message_id, account_id, type, body)"
            " VALUES (:message, :it, 'webhook.test', '')",
            message=message, it=account,
        )  # fmt: skip
        queue.column(
            "INSERT INTO webhook_delivery (message_id, endpoint_id, account_id, state, attempts, next_attempt_at)"
            f" VALUES (:message, 'whe_1', :it, 'pending', 0, {due})", message=message, it=account,
        )  # fmt: skip
    gauges = QueueGauges(queue.database.url, 15)
    try:
        found = measure(gauges)
    finally:
        gauges.close()
    assert found["arachne_deliveries_pending", ""] == 2
    assert 600 <= found["arachne_delivery_overdue_seconds", ""] < 4000


def test_without_the_database_there_are_no_gauges() -> None:
    """None is better than a false one: the alert on their absence speaks."""
    gauges = QueueGauges("postgresql://127.0.0.1:1/nothing", 15)
    assert list(gauges.collect()) == []
    gauges.close()


def test_images_are_counted_as_they_end(queue: "Queue") -> None:
    """Each once, by how; what was rolled back is not."""
    outcomes = ("completed", "cached", "degraded", "failed", "cancelled")
    before = {outcome: value("arachne_images_total", outcome=outcome) for outcome in outcomes}
    job_id = queue.submit("a", "b", "c", "d")
    worker = queue.worker()
    first, second, third, _ = queue.claim(worker)
    with suppress(RuntimeError), queue.database.transaction() as transaction:
        finish_failed(transaction, first, ReadFailed("no"), queue.settings)
        raise RuntimeError
    queue.complete(first)
    queue.complete(first)
    queue.complete(second, degraded=True)
    queue.database.run(finish_failed, third, ReadFailed("no"), queue.settings)
    queue.database.run(request_cancel, job_id)
    queue.database.run(cancel_images, job_id, queue.settings)
    queue.submit("a")
    queue.work(worker)
    counted = {outcome: value("arachne_images_total", outcome=outcome) - before[outcome] for outcome in outcomes}
    assert counted == dict.fromkeys(outcomes, 1.0)


def test_lost_workers_and_their_images_are_counted(queue: "Queue") -> None:
    """As the reconciler finds them."""
    workers, leases = value("arachne_workers_lost_total"), value("arachne_leases_lost_total")
    queue.submit("a", "b")
    worker = queue.worker()
    assert len(queue.claim(worker)) == 2
    queue.witness()
    queue.column(
        "UPDATE worker SET beat_at = :long_ago WHERE worker_id = :it",
        long_ago=datetime(2020, 1, 1, tzinfo=UTC), it=worker,
    )  # fmt: skip
    reconcile(queue.database, queue.settings)
    assert value("arachne_workers_lost_total") == workers + 1
    assert value("arachne_leases_lost_total") == leases + 2
