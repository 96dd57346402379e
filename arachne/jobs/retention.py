"""What is kept no longer: each step drops a batch of what is past its time, and may be missed or repeated."""

from collections.abc import Mapping

from sqlalchemy import TextClause, text

from arachne.database import AsyncDatabase, Database, Transaction
from arachne.settings import Settings
from arachne.storage import Storage

BATCH = 1000
JOB_BATCH = 100  # jobs of up to hundreds of images each
BLOB_BATCH = 500
BLOB_GRACE_S = 3600.0
ERASED_KEPT_S = 86_400.0  # a machine that has not looked for so long looks through its whole file

_KEYS = text("""
DELETE FROM idempotency_key WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM idempotency_key WHERE expires_at < now() LIMIT :batch FOR UPDATE SKIP LOCKED))
""")
_TOKENS = text("""
DELETE FROM revoked_token WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM revoked_token WHERE expires_at < now() LIMIT :batch FOR UPDATE SKIP LOCKED))
""")
_ERASED = text("""
DELETE FROM erased_result WHERE result_id = ANY(ARRAY(
    SELECT result_id FROM erased_result WHERE erased_at < now() - make_interval(secs => :kept_s) LIMIT :batch))
""")
_EXPIRED = text("""
SELECT job_id FROM job WHERE expires_at < now() AND deleted_at IS NULL
ORDER BY expires_at LIMIT :batch
""")
# What clients called their images, and where those came from, is kept no longer than what was read in them.
_STRIP = text("""
UPDATE image SET result_id = NULL, name = NULL, source_url = NULL, source_host = NULL, error_message = NULL
WHERE job_id = ANY(:job_ids)
""")
# Readers have found it gone since then, however late this comes.
_ENTOMB = text("UPDATE job SET deleted_at = expires_at WHERE job_id = ANY(:job_ids)")
_BURIED = text("""
SELECT job_id FROM job
WHERE expires_at IS NOT NULL AND NOT erasing AND deleted_at < now() - make_interval(secs => :tombstone_s)
ORDER BY deleted_at LIMIT :batch
""")
_DROP_IMAGES = text("DELETE FROM image WHERE job_id = ANY(:job_ids)")
_DROP_JOBS = text("DELETE FROM job WHERE job_id = ANY(:job_ids)")
_RESULTS = text("""
DELETE FROM image_result WHERE result_id = ANY(ARRAY(
    SELECT result_id FROM image_result r WHERE created_at < now() - make_interval(secs => :retention_s)
       AND NOT EXISTS (SELECT 1 FROM image WHERE image.result_id = r.result_id)
    LIMIT :batch FOR UPDATE SKIP LOCKED))
""")
_OLD_EVENTS = text("""
SELECT message_id FROM webhook_message m WHERE created_at < now() - make_interval(secs => :retention_s)
   AND NOT EXISTS (SELECT 1 FROM webhook_delivery d WHERE d.message_id = m.message_id AND d.state = 'pending')
ORDER BY created_at LIMIT :batch FOR UPDATE SKIP LOCKED
""")
_DROP_DELIVERIES = text("DELETE FROM webhook_delivery WHERE message_id = ANY(:message_ids)")
_DROP_EVENTS = text("DELETE FROM webhook_message WHERE message_id = ANY(:message_ids)")
_IS_UNUSED = """
SELECT stored_at < now() - make_interval(secs => :grace_s) AND NOT EXISTS (
    SELECT 1 FROM image JOIN job USING (job_id) WHERE image.sha256 = blob.sha256 AND job.deleted_at IS NULL
       AND (job.finished_at IS NULL OR job.finished_at > now() - make_interval(secs => :retention_s))) AS unused, sha256
FROM blob
"""
_BLOBS = text(f"{_IS_UNUSED} WHERE sha256 > :after ORDER BY sha256 LIMIT :batch")
_LOCK_BLOB = text("SELECT sha256 FROM blob WHERE sha256 = :digest FOR UPDATE")
_BLOB = text(f"{_IS_UNUSED} WHERE sha256 = :digest")
_DROP_BLOB = text("DELETE FROM blob WHERE sha256 = :digest")


def forget_keys(transaction: Transaction) -> int:
    """Number of idempotency keys, revoked tokens and ids of erased results forgotten because their time is over."""
    forgotten = _affected(transaction, _KEYS) + _affected(transaction, _TOKENS)
    return forgotten + _affected(transaction, _ERASED, kept_s=ERASED_KEPT_S)


def expire_jobs(transaction: Transaction) -> int:
    """Number of finished jobs whose results are kept no longer; tombstones, and that since they expired."""
    job_ids = list(transaction.session.scalars(_EXPIRED, {"batch": JOB_BATCH}))
    if job_ids:
        transaction.session.execute(_STRIP, {"job_ids": job_ids})
        transaction.session.execute(_ENTOMB, {"job_ids": job_ids})
    return len(job_ids)


def bury_jobs(transaction: Transaction, settings: Settings) -> int:
    """Number of tombstones removed for good. The ledger and the events stay."""
    job_ids = list(transaction.session.scalars(_BURIED, {"batch": JOB_BATCH, "tombstone_s": settings.tombstone_s}))
    if job_ids:
        transaction.session.execute(_DROP_IMAGES, {"job_ids": job_ids})
        transaction.session.execute(_DROP_JOBS, {"job_ids": job_ids})
    return len(job_ids)


def drop_results(transaction: Transaction, settings: Settings) -> int:
    """Number of results dropped that no image points at and that are too old to answer anybody."""
    return _affected(transaction, _RESULTS, retention_s=settings.result_retention_s)


def drop_events(transaction: Transaction, settings: Settings) -> int:
    """Number of events dropped with their deliveries; what is still to be delivered stays."""
    values = {"batch": BATCH, "retention_s": settings.event_retention_s}
    message_ids = list(transaction.session.scalars(_OLD_EVENTS, values))
    if message_ids:
        transaction.session.execute(_DROP_DELIVERIES, {"message_ids": message_ids})
        transaction.session.execute(_DROP_EVENTS, {"message_ids": message_ids})
    return len(message_ids)


def sweep_originals(database: Database, storage: Storage, settings: Settings) -> int:
    """Number of originals deleted because every job that had them ended too long ago; each is looked at once.

    Raises:
        Unavailable: the store can't be reached; the rows of what was not deleted stay.
    """
    values = {"grace_s": BLOB_GRACE_S, "retention_s": settings.original_retention_s}
    swept, after = 0, ""
    while looked_at := database.run(_look_at_blobs, after, values):
        unused = [digest for digest, is_unused in looked_at.items() if is_unused]
        swept += sum(database.run(_sweep, digest, storage, values) for digest in unused)
        after = max(looked_at)
    return swept


def sweep_original(database: Database, storage: Storage, settings: Settings, digest: str) -> bool:
    """Whether the original was deleted, because no job needs it; at once, also while the same bytes are being sent.

    Whoever sends them finds their row gone at the end (`OriginalsErased`) and stores them again.

    Raises:
        Unavailable: the store can't be reached.
    """
    values = {"grace_s": 0, "retention_s": settings.original_retention_s}
    return database.run(_sweep, digest, storage, values)


async def sweep_original_async(database: AsyncDatabase, storage: Storage, settings: Settings, digest: str) -> bool:
    """Whether the original was deleted, as `sweep_original` does it.

    Raises:
        Unavailable: the store or the database can't be reached.
    """
    values = {"grace_s": 0, "retention_s": settings.original_retention_s}
    async with database.session() as session:
        unused = await session.run_sync(lambda sync: _hold_unused(Transaction(sync), digest, values))  # type: ignore[arg-type]
        if unused:
            await storage.delete_async(digest)
            await session.execute(_DROP_BLOB, {"digest": digest})
    return unused


def _look_at_blobs(transaction: Transaction, after: str, values: Mapping[str, float]) -> dict[str, bool]:
    """Of the next originals: whether no job needs them. A batch costs what it holds, however many are kept."""
    rows = transaction.session.execute(_BLOBS, {**values, "after": after, "batch": BLOB_BATCH})
    return {row.sha256: row.unused for row in rows}


def _sweep(transaction: Transaction, digest: str, storage: Storage, values: Mapping[str, float]) -> bool:
    """Whether the original went. Its row alone is locked: a submission of the same bytes waits and stores them anew."""
    if not _hold_unused(transaction, digest, values):
        return False
    storage.delete(digest)
    transaction.session.execute(_DROP_BLOB, {"digest": digest})
    return True


def _hold_unused(transaction: Transaction, digest: str, values: Mapping[str, float]) -> bool:
    """Whether no job needs the original, looked at once it is locked: a submission may have taken it up meanwhile."""
    transaction.session.execute(_LOCK_BLOB, {"digest": digest})
    return bool(transaction.session.scalar(_BLOB, {**values, "digest": digest}))


def _affected(transaction: Transaction, statement: TextClause, **values: float) -> int:
    return transaction.session.connection().execute(statement, {"batch": BATCH, **values}).rowcount
