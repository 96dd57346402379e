"""The end of a fetch, in one short transaction, by whoever still holds the claim and by nobody else."""

from typing import NamedTuple

from sqlalchemy import text

from arachne.cache.shared import CachedResult
from arachne.database import Transaction
from arachne.errors import ArachneError, QuotaExceeded
from arachne.jobs.closing import Tally, count
from arachne.jobs.fetch_claim import Fetch
from arachne.jobs.queue import check_quota
from arachne.jobs.submit import NewImage, hold_hits, keep_stored
from arachne.ledger import charge
from arachne.settings import Settings

# The fence: whoever lost the claim finds no row and writes nothing. The row is locked before anything else.
_HOLD = text("""
SELECT 1 FROM image WHERE image_id = :image_id AND claim_id = :claim_id AND state = 'fetching' FOR UPDATE
""")
_ARRIVE = text("""
UPDATE image SET state = CASE WHEN :cached THEN 'completed' ELSE 'queued' END, claim_id = NULL, worker_id = NULL,
                 fetch_attempts = fetch_attempts + 1, sha256 = :sha256, format = :format, size_bytes = :size_bytes,
                 units = :units, cached = :cached, degraded = :degraded, model_version = :model_version,
                 result_id = :result_id, finished_at = CASE WHEN :cached THEN now() END
WHERE image_id = :image_id
""")
_FAIL = text("""
UPDATE image SET state = 'failed', finished_at = now(), fetch_attempts = fetch_attempts + 1, sha256 = :sha256,
                 size_bytes = :size_bytes, error_code = :code, error_message = :message
WHERE image_id = :image_id
""")
_GIVE_BACK = text("""
UPDATE image SET claim_id = NULL, worker_id = NULL, fetch_attempts = fetch_attempts + :attempts,
                 fetch_at = now() + make_interval(secs => :delay_s)
WHERE image_id = :image_id
""")


class Fetched(NamedTuple):
    """Whether anything was written, and whether the image waits to be read now."""

    written: bool
    queued: bool = False


LOST = Fetched(written=False)


def finish_fetched(transaction: Transaction, fetch: Fetch, image: NewImage, settings: Settings) -> Fetched:
    """The image waits to be read, or is `completed` with a cached result. Its original is on record and in the store.

    With an `error`, or with more frames than the plan has images left, it is `failed`.

    Raises:
        OriginalsErased: the original was erased since it was put on record; the image is to be fetched again.
    """
    if not _hold(transaction, fetch):
        return LOST
    error = image.error or _find_quota_fault(transaction, fetch, image)
    if error is not None:
        return _fail(transaction, fetch, error, settings, image)
    hits = hold_hits(transaction, [image])
    keep_stored(transaction, [image])
    hit = hits.get(image.key.digest) if image.key is not None else None
    transaction.session.execute(_ARRIVE, _row(fetch, image, hit))
    if hit is None:
        return Fetched(written=True, queued=True)
    charge(transaction, [fetch.image_id])
    tally = Tally(completed=1, cached=1, events=[("image.completed", fetch.image_id)])
    count(transaction, {fetch.job_id: tally}, settings)
    return Fetched(written=True)


def finish_unfetched(transaction: Transaction, fetch: Fetch, error: ArachneError, settings: Settings) -> Fetched:
    """The image is `failed` with this error."""
    return _fail(transaction, fetch, error, settings) if _hold(transaction, fetch) else LOST


def fetch_later(transaction: Transaction, fetch: Fetch, delay_s: float, *, counted: bool) -> Fetched:
    """The image's URL is asked again after so many seconds; `counted` is whether this was a try of its own."""
    if not _hold(transaction, fetch):
        return LOST
    values = {"image_id": fetch.image_id, "attempts": int(counted), "delay_s": delay_s}
    transaction.session.execute(_GIVE_BACK, values)
    return Fetched(written=True)


def _hold(transaction: Transaction, fetch: Fetch) -> bool:
    fence = {"image_id": fetch.image_id, "claim_id": fetch.claim_id}
    return transaction.session.scalar(_HOLD, fence) is not None


def _find_quota_fault(transaction: Transaction, fetch: Fetch, image: NewImage) -> QuotaExceeded | None:
    """Accepted as one image, it may have turned out to be many."""
    if image.units > 1:
        try:
            check_quota(transaction, fetch.account_id, image.units - 1)
        except QuotaExceeded as error:
            return error
    return None


def _fail(
    transaction: Transaction, fetch: Fetch, error: ArachneError, settings: Settings, image: NewImage | None = None
) -> Fetched:
    known = {"sha256": image.sha256 if image else None, "size_bytes": image.size_bytes if image else None}
    values = {"image_id": fetch.image_id, "code": error.code, "message": error.message}
    transaction.session.execute(_FAIL, values | known)
    tally = Tally()
    tally.fail(fetch.image_id)
    count(transaction, {fetch.job_id: tally}, settings)
    return Fetched(written=True)


def _row(fetch: Fetch, image: NewImage, hit: CachedResult | None) -> dict[str, object]:
    return {
        "image_id": fetch.image_id,
        "sha256": image.sha256,
        "format": image.format,
        "size_bytes": image.size_bytes,
        "units": hit.units if hit else image.units,
        "cached": hit is not None,
        "degraded": hit.degraded if hit else False,
        "model_version": hit.model_version if hit else None,
        "result_id": hit.result_id if hit else None,
    }
