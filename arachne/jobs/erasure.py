"""Erasing a job on request: it is out of sight at once, its images are cancelled, and then all that it holds goes.

The wish is committed first. What follows are short transactions that may be repeated, so that whoever finds a job
still `erasing` goes on where another stopped. Images are locked before results, and originals apart from both.
"""

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import text

from arachne.database import Database, Transaction
from arachne.errors import NotFound, Unavailable
from arachne.ids import is_id
from arachne.jobs.cancel import cancel_images
from arachne.jobs.retention import sweep_original
from arachne.news import news_of
from arachne.settings import Settings
from arachne.storage import Storage
from arachne.webhooks.history import erase_events

BATCH = 500
GOES_ON = "The job is out of sight, and erasing it goes on by itself"
_ROUNDS = 100
_PAUSE_S = 0.02
_REQUEST = text("""
UPDATE job SET deleted_at = coalesce(deleted_at, now()), erasing = true,
               cancel_requested_at = CASE WHEN finished_at IS NULL THEN coalesce(cancel_requested_at, now())
                                          ELSE cancel_requested_at END
WHERE job_id = :job_id AND account_id = :account_id RETURNING job_id
""")
_FINISHED = text("SELECT finished_at IS NOT NULL FROM job WHERE job_id = :job_id")
_DIGESTS = text("SELECT DISTINCT sha256 FROM image WHERE job_id = :job_id AND sha256 IS NOT NULL ORDER BY sha256")
_IMAGES = text("""
SELECT image_id, account_id, sha256, result_id FROM image WHERE job_id = :job_id AND image_id > :after
ORDER BY image_id LIMIT :batch FOR UPDATE
""")
_STRIP_IMAGES = text("""
UPDATE image SET result_id = NULL, cache_key = NULL, name = NULL, source_url = NULL, source_host = NULL,
                 error_message = NULL
WHERE image_id = ANY(:image_ids)
""")
_STRIP_JOB = text("""
UPDATE job SET subject = '', options = '{}', labels = '{}', retry_of = NULL, request_id = NULL, traceparent = NULL,
               webhook_endpoint_id = NULL, webhook_events = NULL
WHERE job_id = :job_id
""")
_DROP_IMAGES = text("""
DELETE FROM image WHERE image_id = ANY(ARRAY(SELECT image_id FROM image WHERE job_id = :job_id LIMIT :batch))
""")
# Those the images have, and those of the account that were made of the same bytes and that no job has.
_RESULTS = text("""
SELECT result_id FROM image_result
WHERE result_id = ANY(:result_ids) OR (sha256 = ANY(:digests) AND account_id = :account_id)
ORDER BY result_id FOR UPDATE
""")
_DROP_RESULTS = text("""
DELETE FROM image_result r WHERE result_id = ANY(:result_ids)
   AND NOT EXISTS (SELECT 1 FROM image WHERE image.result_id = r.result_id) RETURNING result_id
""")
_NOTE = text("""
INSERT INTO erased_result (result_id) SELECT unnest(CAST(:result_ids AS text[]))
ON CONFLICT (result_id) DO UPDATE SET erased_at = now()
""")
_DONE = text("UPDATE job SET erasing = false WHERE job_id = :job_id")
_STANDS = text("SELECT 1 FROM job WHERE job_id = :job_id AND deleted_at IS NULL")
_ERASING = text("SELECT job_id FROM job WHERE erasing ORDER BY job_id LIMIT :batch")


def request_erasure(transaction: Transaction, account_id: str, job_id: str) -> None:
    """Nobody is shown the account's job from now on, and it is to be erased, whatever becomes of this process.

    Raises:
        NotFound: the account has no such job.
    """
    values = {"account_id": account_id, "job_id": job_id}
    if not is_id(job_id, "job") or transaction.session.scalar(_REQUEST, values) is None:
        raise NotFound("There is no such job.")
    news_of(transaction.session).job_ids.add(job_id)  # whoever waits for it or follows its events hears at once


def erase_job(database: Database, storage: Storage, settings: Settings, job_id: str) -> None:
    """Nothing of the job is left but a tombstone, after `request_erasure`.

    Raises:
        Unavailable: something can't be erased just now; the message says that `continue_erasures` goes on with it.
    """
    with told_first(f"{GOES_ON}."):
        _erase_job(database, storage, settings, job_id)


@contextmanager
def told_first(words: str) -> Iterator[None]:
    """How far an erasure came stands before what keeps it from coming further.

    Raises:
        Unavailable: as within.
    """
    try:
        yield
    except Unavailable as error:
        cause = error.__cause__ or error
        raise Unavailable(f"{words} {error.message}", retry_after_s=error.retry_after_s) from cause


def _erase_job(database: Database, storage: Storage, settings: Settings, job_id: str) -> None:
    _cancel(database, job_id, settings)
    database.run(lambda transaction: erase_events(transaction.session, job_id))
    last: str | None = ""
    while last is not None:
        last = database.run(_strip_images, job_id, last)
    database.run(lambda transaction: transaction.session.execute(_STRIP_JOB, {"job_id": job_id}))
    for digest in database.run(lambda transaction: list(transaction.session.scalars(_DIGESTS, {"job_id": job_id}))):
        sweep_original(database, storage, settings, digest)
    while database.run(_drop_images, job_id):
        pass


def is_erased(transaction: Transaction, job_id: str) -> bool:
    """Whether the job was deleted, erased, or is no longer on record at all."""
    return transaction.session.scalar(_STANDS, {"job_id": job_id}) is None


def continue_erasures(database: Database, storage: Storage, settings: Settings) -> int:
    """Number of jobs found that were still to be erased; what can't be erased now is left to the next time."""
    job_ids = database.run(lambda transaction: list(transaction.session.scalars(_ERASING, {"batch": BATCH})))
    for job_id in job_ids:
        with suppress(Unavailable):
            erase_job(database, storage, settings, job_id)
    return len(job_ids)


def drop_unused_results(transaction: Transaction, result_ids: Collection[str]) -> list[str]:
    """Those of the results, locked by the caller, that no image had; they are gone, and every machine will drop them.

    A statement of its own after the one that locks: it sees who took a result up meanwhile.
    """
    dropped = list(transaction.session.scalars(_DROP_RESULTS, {"result_ids": list(result_ids)}))
    if dropped:
        transaction.session.execute(_NOTE, {"result_ids": dropped})
    return dropped


def _cancel(database: Database, job_id: str, settings: Settings) -> None:
    for _ in range(_ROUNDS):
        left = database.run(cancel_images, job_id, settings).left
        if not left and database.run(lambda transaction: transaction.session.scalar(_FINISHED, {"job_id": job_id})):
            return
        time.sleep(_PAUSE_S)
    raise Unavailable("Others have its images in hand just now.", retry_after_s=5)


def _strip_images(transaction: Transaction, job_id: str, after: str) -> str | None:
    """The last of the next images, which are left with their hashes alone; results that nobody else has are gone."""
    run = transaction.session.execute
    images = run(_IMAGES, {"job_id": job_id, "after": after, "batch": BATCH}).all()
    if not images:
        return None
    wanted = {
        "result_ids": [image.result_id for image in images if image.result_id],
        "digests": [image.sha256 for image in images if image.sha256],
        "account_id": images[0].account_id,
    }
    result_ids = list(transaction.session.scalars(_RESULTS, wanted))
    run(_STRIP_IMAGES, {"image_ids": [image.image_id for image in images]})
    drop_unused_results(transaction, result_ids)
    return str(images[-1].image_id)


def _drop_images(transaction: Transaction, job_id: str) -> int:
    """Number of rows dropped; without any left the job is a tombstone and no more."""
    dropped = transaction.session.connection().execute(_DROP_IMAGES, {"job_id": job_id, "batch": BATCH}).rowcount
    if not dropped:
        transaction.session.execute(_DONE, {"job_id": job_id})
    return dropped
