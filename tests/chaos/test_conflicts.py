"""Transactions that PostgreSQL ends because of others, a deadlock and serialization failures: they are run again."""

import psycopg
import pytest

from arachne.database import plain_url
from tests.chaos.held_writes import hold_writes
from tests.chaos.test_killed_worker import assert_finished_once

pytestmark = pytest.mark.chaos


def test_finish_that_falls_to_a_deadlock_is_written_once(service, worker_process, eventually) -> None:
    """Somebody locks job before image; the worker's transaction is the one that is ended, and comes again."""
    url = plain_url(service.settings.database_url)
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
    before = service.scalar(deadlocks)
    with (
        psycopg.connect(url) as other,
        psycopg.connect(url, autocommit=True) as watch,
        hold_writes(service.settings.database_url, "usage_entry", "INSERT") as gate,
        # Whose time is up first is ended, so that is the worker.
        worker_process("read_or_fail", PGOPTIONS="-c deadlock_timeout=5s"),
    ):
        job_id = service.submit("image")
        eventually(gate.held)
        other.execute("SET LOCAL deadlock_timeout = '60s'")
        other.execute("SELECT 1 FROM job FOR NO KEY UPDATE")
        gate.open()
        eventually(lambda: watch.execute(waiting).fetchone())
        other.execute("SELECT 1 FROM image FOR UPDATE")
        other.commit()
        assert_finished_once(service, job_id, 1)
    eventually(lambda: service.scalar(deadlocks) == before + 1)
    assert service.images(job_id)[0].attempts == 1


def test_serialization_failures_are_run_again(service, worker_process, eventually) -> None:
    """Two workers under the strictest isolation, which ends one of two that count for the same job."""
    failures = "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()"
    before = service.scalar(failures)
    strict = {"PGOPTIONS": "-c default_transaction_isolation=serializable"}
    with worker_process("read_or_fail", **strict), worker_process("read_or_fail", **strict):
        service.await_workers(2)
        job_id = service.submit(*(f"image {n}" for n in range(30)))
        assert_finished_once(service, job_id, 30)
        eventually(lambda: service.scalar(failures) > before)
    assert {image.attempts for image in service.images(job_id)} == {1}
    assert service.scalar("SELECT count(DISTINCT sequence) FROM webhook_message") == 32
