"""Images to be fetched that are held by nobody in fact: taken back, so that others fetch them."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Row, text

from arachne.database import Transaction
from arachne.errors import WorkerLost
from arachne.jobs.closing import MAX_LOST_LEASES, fail_images
from arachne.settings import Settings

_BATCH = 500
_AGAIN_S = 2.0  # whatever kept them from being finished may last a moment

_ORPHANS = text("""
SELECT image_id, job_id, lost_leases FROM image
WHERE state = 'fetching' AND worker_id IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM worker WHERE worker.worker_id = image.worker_id)
ORDER BY image_id LIMIT :batch FOR UPDATE SKIP LOCKED
""")
_UNHELD = text("""
SELECT image_id, job_id, lost_leases FROM image
WHERE state = 'fetching' AND worker_id = :worker_id AND NOT image_id = ANY(:held)
ORDER BY image_id LIMIT :batch FOR UPDATE SKIP LOCKED
""")
_FREE = text("""
UPDATE image SET claim_id = NULL, worker_id = NULL, lost_leases = lost_leases + :lost,
                 fetch_at = now() + make_interval(secs => :delay_s)
WHERE image_id = ANY(:image_ids)
""")


def recover_fetches(transaction: Transaction, settings: Settings) -> int:
    """Number of images taken back from fetchers that are gone; one that lost too many of them fails."""
    rows = transaction.session.execute(_ORPHANS, {"batch": _BATCH}).all()
    return _take_back(transaction, rows, settings, delay_s=0)


def recover_unheld_fetches(transaction: Transaction, worker_id: str, held: Collection[str], settings: Settings) -> int:
    """Number of images taken back that this worker holds by the record but not in fact.

    No claim of the worker may be under way meanwhile.
    """
    values = {"worker_id": worker_id, "held": list(held), "batch": _BATCH}
    return _take_back(transaction, transaction.session.execute(_UNHELD, values).all(), settings, delay_s=_AGAIN_S)


def give_fetches_back(transaction: Transaction, worker_id: str) -> int:
    """Number of images a worker that is leaving gives back. It was not lost, so that does not count against them."""
    rows = transaction.session.execute(_UNHELD, {"worker_id": worker_id, "held": [], "batch": _BATCH}).all()
    transaction.session.execute(_FREE, {"image_ids": [row.image_id for row in rows], "lost": 0, "delay_s": 0})
    return len(rows)


def _take_back(transaction: Transaction, rows: Sequence[Row[Any]], settings: Settings, *, delay_s: float) -> int:
    if not rows:
        return 0
    given_up = [row for row in rows if row.lost_leases + 1 >= MAX_LOST_LEASES]
    again = [row.image_id for row in rows if row.lost_leases + 1 < MAX_LOST_LEASES]
    transaction.session.execute(_FREE, {"image_ids": again, "lost": 1, "delay_s": delay_s})
    error = WorkerLost(f"Workers were lost {MAX_LOST_LEASES} times while fetching this image. Submit it again later.")
    fail_images(transaction, given_up, error, settings)
    return len(rows)
