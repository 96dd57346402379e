"""Progress of jobs: counters, and the end that the last image brings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy import text

from arachne.database import Transaction
from arachne.schemas.tables import Job
from arachne.settings import Settings
from arachne.webhooks.outbox import emit_image_events, emit_job_event

# A job all of whose images were decided at once was never claimed; its images' events don't call it queued.
_COUNT = text("""
UPDATE job SET completed = completed + :completed, failed = failed + :failed, cancelled = cancelled + :cancelled,
               cached = cached + :cached, degraded = degraded + :degraded,
               state = CASE WHEN state = 'queued' AND completed + failed + cancelled
                                 + :completed + :failed + :cancelled >= total THEN 'processing' ELSE state END
WHERE job_id = :job_id AND finished_at IS NULL
RETURNING completed + failed + cancelled >= total AS done
""")
_CLOSE = text("""
UPDATE job SET state = CASE WHEN cancelled > 0 THEN 'cancelled' WHEN failed >= total THEN 'failed'
                            WHEN failed > 0 THEN 'partial' ELSE 'completed' END,
               finished_at = now(), expires_at = now() + make_interval(secs => :retention_s)
WHERE job_id = :job_id
""")


ImageEvent = Literal["image.completed", "image.failed"]


@dataclass
class Tally:
    """Images of one job that reached a terminal state in this transaction, and the events that tell so."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    cached: int = 0
    degraded: int = 0
    events: list[tuple[ImageEvent, str]] = field(default_factory=list)

    def fail(self, image_id: str) -> None:
        """Count a failed image."""
        self.failed += 1
        self.events.append(("image.failed", image_id))


def count(transaction: Transaction, tallies: Mapping[str, Tally], settings: Settings) -> list[str]:
    """Ids of the jobs that these tallies finish; their terminal event is written with them.

    Call it last in a transaction: job rows are locked here, in the order of their ids, after those of images.
    """
    finished = []
    for job_id, tally in sorted(tallies.items()):
        counters = {name: number for name, number in vars(tally).items() if name != "events"}
        done = transaction.session.scalar(_COUNT, {"job_id": job_id, **counters})
        if tally.events:
            emit_image_events(transaction.session, settings, _read(transaction, job_id), tally.events)
        if done:
            close(transaction, job_id, settings)
            finished.append(job_id)
    return finished


def close(transaction: Transaction, job_id: str, settings: Settings) -> None:
    """The job is in the terminal state its counters say, and the event that tells so is written.

    The caller has locked the job and seen that it is not finished and that all its images are.
    """
    transaction.session.execute(_CLOSE, {"job_id": job_id, "retention_s": settings.result_retention_s})
    job = _read(transaction, job_id)
    emit_job_event(transaction.session, settings, job, f"job.{job.state}")


def _read(transaction: Transaction, job_id: str) -> Job:
    return transaction.session.get_one(Job, job_id, populate_existing=True)
