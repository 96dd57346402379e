"""Progress of jobs: their start, counters, and the end that the last image brings."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from sqlalchemy import Row, text

from arachne.database import Transaction
from arachne.errors import ImageError
from arachne.metrics import count_images
from arachne.news import news_of
from arachne.schemas.tables import Job
from arachne.settings import Settings
from arachne.webhooks.outbox import emit_image_events, emit_job_event

MAX_LOST_LEASES = 10  # workers lost while they held one image, after which it is given up

# NO KEY: an image updated twice in a transaction has its foreign key checked anew, which shares the job's key.
_START_JOBS = text("""
WITH first_claimed AS (
    SELECT job_id FROM job WHERE job_id = ANY(:job_ids) AND state = 'queued' ORDER BY job_id FOR NO KEY UPDATE)
UPDATE job SET state = 'processing', started_at = coalesce(started_at, now())
FROM first_claimed WHERE job.job_id = first_claimed.job_id RETURNING job.job_id
""")
_FAIL = text("""
UPDATE image SET state = 'failed', finished_at = now(), error_code = :code, error_message = :message
WHERE image_id = ANY(:image_ids)
""")
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


def start_jobs(transaction: Transaction, job_ids: Collection[str], settings: Settings) -> None:
    """Nothing; those of the jobs whose first images have just been claimed are `processing`, with the event for it."""
    session = transaction.session
    for job_id in sorted(session.scalars(_START_JOBS, {"job_ids": sorted(job_ids)})):
        emit_job_event(session, settings, _read(transaction, job_id), "job.started")


def count(transaction: Transaction, tallies: Mapping[str, Tally], settings: Settings) -> list[str]:
    """Ids of the jobs that these tallies finish; their terminal event is written with them.

    Call it last in a transaction: job rows are locked here, in the order of their ids, after those of images.
    """
    finished, afterwards = [], news_of(transaction.session).afterwards
    for job_id, tally in sorted(tallies.items()):
        counters = {name: number for name, number in vars(tally).items() if name != "events"}
        done = transaction.session.scalar(_COUNT, {"job_id": job_id, **counters})
        afterwards.append(partial(count_images, **counters))
        if tally.events:
            emit_image_events(transaction.session, settings, _read(transaction, job_id), tally.events)
        if done:
            close(transaction, job_id, settings)
            finished.append(job_id)
    return finished


def fail_images(transaction: Transaction, rows: Iterable[Row[Any]], error: ImageError, settings: Settings) -> None:
    """The images in `rows`, locked by the caller, are `failed` with this error."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    image_ids = []
    for row in rows:
        image_ids.append(row.image_id)
        tallies[row.job_id].fail(row.image_id)
    if image_ids:
        values = {"image_ids": image_ids, "code": error.code, "message": error.message}
        transaction.session.execute(_FAIL, values)
        count(transaction, tallies, settings)


def close(transaction: Transaction, job_id: str, settings: Settings) -> None:
    """The job is in the terminal state its counters say, and the event that tells so is written.

    The caller has locked the job and seen that it is not finished and that all its images are.
    """
    transaction.session.execute(_CLOSE, {"job_id": job_id, "retention_s": settings.result_retention_s})
    job = _read(transaction, job_id)
    emit_job_event(transaction.session, settings, job, f"job.{job.state}")


def _read(transaction: Transaction, job_id: str) -> Job:
    return transaction.session.get_one(Job, job_id, populate_existing=True)
