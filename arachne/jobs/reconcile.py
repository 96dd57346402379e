"""What keeps the promise that every accepted job ends: anything left lying is picked up, by whoever looks first.

Each step stands on its own, is idempotent, passes over rows that others hold, and needs nothing but the database.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, TextClause, text

from arachne.database import Database, Transaction
from arachne.errors import DeadlineExceeded, WorkerLost
from arachne.jobs.cancel import cancel_images
from arachne.jobs.closing import MAX_LOST_LEASES, close, fail_images
from arachne.jobs.fetch_recovery import recover_fetches
from arachne.jobs.flights import end_flights
from arachne.jobs.slots import end_lost_sessions
from arachne.jobs.workers import expire, expire_process
from arachne.locks import Lock, try_lock
from arachne.metrics import LEASES_LOST, WORKERS_LOST
from arachne.settings import Settings
from arachne.webhooks.lost import free_lost_deliveries

_BATCH = 500

_ORPHANS = text("""
SELECT image_id, job_id, lost_leases FROM image
WHERE state = 'running' AND NOT EXISTS (SELECT 1 FROM worker WHERE worker.worker_id = image.worker_id)
ORDER BY image_id LIMIT :batch FOR UPDATE SKIP LOCKED
""")
_UNHELD = text("""
SELECT image_id, job_id, lost_leases FROM image
WHERE state = 'running' AND worker_id = :worker_id AND NOT image_id = ANY(:held)
ORDER BY image_id LIMIT :batch FOR UPDATE SKIP LOCKED
""")
_REQUEUE = text("""
UPDATE image SET state = 'queued', claim_id = NULL, worker_id = NULL, started_at = NULL,
                 lost_leases = lost_leases + :lost
WHERE image_id = ANY(:image_ids)
""")
_LATE = text("""
SELECT image_id, job_id FROM image
WHERE job_id = ANY(ARRAY(SELECT job_id FROM job WHERE finished_at IS NULL AND deadline_at < now() LIMIT :batch))
  AND state IN ('fetching', 'queued', 'parked', 'running')
ORDER BY image_id LIMIT :batch FOR UPDATE SKIP LOCKED
""")
_STRAY_FLIGHTS = text("""
DELETE FROM flight WHERE NOT EXISTS (
    SELECT 1 FROM image WHERE image.image_id = flight.image_id AND image.state = 'running'
                          AND image.worker_id = flight.worker_id AND image.cache_key = flight.cache_key)
""")
_STRAY_PARKED = text("""
WITH stray AS (
    SELECT image_id FROM image WHERE state = 'parked'
       AND NOT EXISTS (SELECT 1 FROM flight WHERE flight.cache_key = image.cache_key)
    ORDER BY image_id LIMIT :batch FOR UPDATE SKIP LOCKED)
UPDATE image SET state = 'queued' FROM stray WHERE image.image_id = stray.image_id
""")
_CANCELLING = text("""
SELECT job_id FROM job WHERE finished_at IS NULL AND cancel_requested_at IS NOT NULL
ORDER BY cancel_requested_at, job_id LIMIT :batch
""")
_UNCLOSED = text("""
SELECT job_id FROM job WHERE finished_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM image WHERE image.job_id = job.job_id AND image.state IN ('fetching', 'queued', 'parked', 'running'))
ORDER BY job_id LIMIT :batch FOR NO KEY UPDATE SKIP LOCKED
""")
_RECOUNT = text("""
UPDATE job SET (completed, failed, cancelled, cached, degraded) = (
    SELECT count(*) FILTER (WHERE state = 'completed'), count(*) FILTER (WHERE state = 'failed'),
           count(*) FILTER (WHERE state = 'cancelled'), count(*) FILTER (WHERE cached),
           count(*) FILTER (WHERE degraded) FROM image WHERE image.job_id = job.job_id)
WHERE job_id = :job_id
""")


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What was mended: counts of workers, images, jobs and deliveries."""

    lost_workers: int = 0
    recovered: int = 0
    late: int = 0
    unparked: int = 0
    closed: int = 0
    unsent: int = 0

    @property
    def queued(self) -> bool:
        """Whether there may be images to claim that nobody was told of."""
        return bool(self.recovered or self.unparked)


def reconcile(database: Database, settings: Settings, *, thorough: bool = True) -> Reconciled:
    """What was mended just now; nothing, while another process is at it.

    Not `thorough`: only lost workers, flights and deadlines, what a worker looks after every two seconds.
    """
    lost, recovered = database.run(_recover, settings)
    # Each apart, since all images of a transaction are locked before its jobs.
    recovered += database.run(_recover_fetches, settings)
    unsent = database.run(_recover_deliveries)
    LEASES_LOST.inc(recovered)
    WORKERS_LOST.inc(lost)
    unparked = database.run(_land)
    late = database.run(fail_late_images, settings)
    if not thorough:
        return Reconciled(lost, recovered, late, unparked, unsent=unsent)
    for job_id in database.run(_cancelling):
        database.run(cancel_images, job_id, settings)
    return Reconciled(lost, recovered, late, unparked, database.run(close_jobs, settings), unsent)


def release_worker(transaction: Transaction, *, host: str, pid: int) -> None:
    """A process is dead, as its supervisor knows: what it held is picked up at the next look, not after the lease."""
    expire_process(transaction, host=host, pid=pid)


def recover_images(transaction: Transaction, settings: Settings) -> int:
    """Number of images taken back from workers that are gone; one that lost too many of them fails."""
    return _take_back(transaction, transaction.session.execute(_ORPHANS, {"batch": _BATCH}).all(), settings)


def recover_unheld(transaction: Transaction, worker_id: str, held: Collection[str], settings: Settings) -> int:
    """Number of images taken back that this worker holds by the record but not in fact.

    A claim may be committed although its answer was lost, and then nobody knows of it. No claim of the worker may be
    under way meanwhile.
    """
    values = {"worker_id": worker_id, "held": list(held), "batch": _BATCH}
    return _take_back(transaction, transaction.session.execute(_UNHELD, values).all(), settings)


def give_all_back(transaction: Transaction, worker_id: str) -> int:
    """Number of images a worker that is leaving gives back. It was not lost, so that does not count against them."""
    rows = transaction.session.execute(_UNHELD, {"worker_id": worker_id, "held": [], "batch": _BATCH}).all()
    image_ids = [row.image_id for row in rows]
    if image_ids:
        end_flights(transaction, image_ids)
        transaction.session.execute(_REQUEUE, {"image_ids": image_ids, "lost": 0})
    return len(image_ids)


def _take_back(transaction: Transaction, rows: Sequence[Row[Any]], settings: Settings) -> int:
    if not rows:
        return 0
    end_flights(transaction, [row.image_id for row in rows])
    given_up = [row for row in rows if row.lost_leases + 1 >= MAX_LOST_LEASES]
    again = [row.image_id for row in rows if row.lost_leases + 1 < MAX_LOST_LEASES]
    transaction.session.execute(_REQUEUE, {"image_ids": again, "lost": 1})
    error = WorkerLost(f"Workers were lost {MAX_LOST_LEASES} times while reading this image. Submit it again later.")
    fail_images(transaction, given_up, error, settings)
    return len(rows)


def fail_late_images(transaction: Transaction, settings: Settings) -> int:
    """Number of images failed because their job's deadline has passed."""
    if not _alone(transaction):
        return 0
    rows = transaction.session.execute(_LATE, {"batch": _BATCH}).all()
    if rows:
        end_flights(transaction, [row.image_id for row in rows])
        error = DeadlineExceeded("The job's deadline passed before this image was read.")
        fail_images(transaction, rows, error, settings)
    return len(rows)


def close_jobs(transaction: Transaction, settings: Settings) -> int:
    """Number of jobs closed whose images had all ended without it."""
    if not _alone(transaction):
        return 0
    job_ids = list(transaction.session.scalars(_UNCLOSED, {"batch": _BATCH}))
    for job_id in job_ids:
        transaction.session.execute(_RECOUNT, {"job_id": job_id})
        close(transaction, job_id, settings)
    return len(job_ids)


def _recover(transaction: Transaction, settings: Settings) -> tuple[int, int]:
    """Numbers of workers that are lost, and of images taken back from those that are."""
    if not _alone(transaction):
        return 0, 0
    lost = len(expire(transaction, settings.lease_s))
    end_lost_sessions(transaction)
    return lost, recover_images(transaction, settings)


def _recover_fetches(transaction: Transaction, settings: Settings) -> int:
    return recover_fetches(transaction, settings) if _alone(transaction) else 0


def _recover_deliveries(transaction: Transaction) -> int:
    return free_lost_deliveries(transaction) if _alone(transaction) else 0


def _land(transaction: Transaction) -> int:
    """Number of parked images queued because nobody reads theirs any more."""
    if not _alone(transaction):
        return 0
    transaction.session.execute(_STRAY_FLIGHTS)
    return _affected(transaction, _STRAY_PARKED)


def _cancelling(transaction: Transaction) -> list[str]:
    return list(transaction.session.scalars(_CANCELLING, {"batch": _BATCH}))


def _alone(transaction: Transaction) -> bool:
    """Whether no other process is at it; if one is, there is nothing to add."""
    return try_lock(transaction, Lock.RECONCILE)


def _affected(transaction: Transaction, statement: TextClause) -> int:
    return transaction.session.connection().execute(statement, {"batch": _BATCH}).rowcount
