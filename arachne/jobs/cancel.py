"""Cancelling a job: first the request is committed, then the images are taken back in a transaction of their own.

Finishing and cancelling in one transaction each, with the locks in opposite orders, would deadlock; so images are
locked before jobs here as everywhere, and rows that others hold are passed over and come in the next round.
"""

import asyncio
from typing import NamedTuple

from sqlalchemy import text

from arachne.database import AsyncDatabase, Transaction
from arachne.jobs.closing import Tally, count
from arachne.jobs.flights import end_flights
from arachne.settings import Settings

_ROUNDS = 50
_PAUSE_S = 0.02
_REQUEST = text("""
UPDATE job SET cancel_requested_at = now()
WHERE job_id = :job_id AND finished_at IS NULL AND cancel_requested_at IS NULL
""")
_LOCK = text("""
SELECT image_id FROM image WHERE job_id = :job_id AND state IN ('fetching', 'queued', 'parked', 'running')
ORDER BY image_id FOR UPDATE SKIP LOCKED
""")
_CANCEL = text("""
UPDATE image SET state = 'cancelled', claim_id = NULL, finished_at = now() WHERE image_id = ANY(:image_ids)
""")
_OPEN = text("""
SELECT EXISTS (SELECT 1 FROM image WHERE job_id = :job_id AND state IN ('fetching', 'queued', 'parked', 'running'))
""")


class Cancellation(NamedTuple):
    """How many images were cancelled, whether that finished the job, and whether some could not be locked yet."""

    cancelled: int
    job_finished: bool
    left: bool


async def cancel(database: AsyncDatabase, job_id: str, settings: Settings) -> bool:
    """Whether this finished the job: every image not finished yet is `cancelled`; a no-op on a finished job.

    Work in flight is cancelled too: its worker finds its claim gone and writes nothing.
    """
    await database.run(request_cancel, job_id)
    for _ in range(_ROUNDS):
        done = await database.run(cancel_images, job_id, settings)
        if not done.left:
            return done.job_finished
        await asyncio.sleep(_PAUSE_S)
    return False  # the reconciler goes on with it


def request_cancel(transaction: Transaction, job_id: str) -> None:
    """The job's wish to be cancelled stands, whatever becomes of this process."""
    transaction.session.execute(_REQUEST, {"job_id": job_id})


def cancel_images(transaction: Transaction, job_id: str, settings: Settings) -> Cancellation:
    """One round over the job's open images, in a transaction after `request_cancel`'s."""
    session = transaction.session
    image_ids = list(session.scalars(_LOCK, {"job_id": job_id}))
    finished: list[str] = []
    if image_ids:
        end_flights(transaction, image_ids)
        session.execute(_CANCEL, {"image_ids": image_ids})
        finished = count(transaction, {job_id: Tally(cancelled=len(image_ids))}, settings)
    left = not finished and bool(session.scalar(_OPEN, {"job_id": job_id}))
    return Cancellation(len(image_ids), bool(finished), left)
