"""A submission becomes a job: rows for it, its images and their originals, in one transaction.

What is decided already is decided there and then: cached images are completed, refused ones failed, and a job that has
no others is closed, with its terminal event. Images given by their URL are left to be fetched.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from sqlalchemy import text

from arachne.cache import CachedResult, CacheKey, lookup
from arachne.database import Transaction
from arachne.errors import ArachneError, OriginalsErased
from arachne.ids import new_id
from arachne.jobs.closing import Tally, count
from arachne.jobs.idempotency import Reservation, complete
from arachne.jobs.queue import Room, check_room
from arachne.ledger import charge
from arachne.metrics import CACHE_HITS
from arachne.net.urls import CheckedUrl
from arachne.news import news_of
from arachne.reading import choose_model
from arachne.schemas.options import Options
from arachne.schemas.tables import Job
from arachne.secretbox import SecretBox
from arachne.settings import Settings
from arachne.webhooks.endpoint_secrets import ensure_default_secret
from arachne.webhooks.endpoints import ensure_job_endpoint

BULK_S = 600  # a large job's images come due as if they had been sent that much later, but never more

_NO_WAIT = text("SET LOCAL synchronous_commit = off")
_KEEP = text("""
INSERT INTO blob (sha256, size_bytes, format)
SELECT * FROM unnest(CAST(:digests AS text[]), CAST(:sizes AS bigint[]), CAST(:formats AS text[]))
    AS kept(sha256, size, kind)
ORDER BY sha256
ON CONFLICT (sha256) DO UPDATE SET stored_at = now() RETURNING sha256, xmax <> 0 AS known
""")
_HOLD = text("""
SELECT result_id FROM image_result WHERE result_id = ANY(:result_ids) ORDER BY result_id FOR KEY SHARE
""")
_IMAGES = text("""
INSERT INTO image (image_id, job_id, account_id, index, name, source_url, source_host, fetch_at, fetch_attempts,
                   sha256, format, size_bytes, units, model, state, due_at, attempts, lost_leases, cached, degraded,
                   error_code, error_message, model_version, result_id, finished_at)
VALUES (:image_id, :job_id, :account_id, :index, :name, :source_url, :source_host,
        CASE WHEN :fetches THEN now() END, 0, :sha256, :format, :size_bytes, :units, :model,
        :state, now() + make_interval(secs => :delay_s), 0, 0, :cached, :degraded, :error_code, :error_message,
        :model_version, :result_id, CASE WHEN :waits THEN NULL ELSE now() END)
""")


@dataclass(frozen=True)
class NewImage:
    """An image as it came in; with `error` it is failed from the start. `units` is what it counts as.

    With a `source_host` it is still to be fetched from `source_url`, and nothing else is known of it.
    """

    name: str | None
    sha256: str | None
    format: str | None
    size_bytes: int
    units: int = 1
    error: ArachneError | None = None
    key: CacheKey | None = None
    source_url: str | None = None
    source_host: str | None = None


@dataclass(frozen=True)
class NewWebhook:
    """Where the job's own events go; `events` None means the default ones."""

    url: CheckedUrl
    events: list[str] | None


@dataclass(frozen=True)
class NewJob:
    """A submission that was found acceptable."""

    account_id: str
    subject: str
    single: bool
    options: Options
    images: Sequence[NewImage]
    metadata: Mapping[str, str] = field(default_factory=dict)
    webhook: NewWebhook | None = None
    request_id: str | None = None
    traceparent: str | None = None
    fingerprint: bytes = b""
    reservation: Reservation | None = None
    retry_of: str | None = None


@dataclass(frozen=True)
class Submitted:
    """The job made, whether it is finished already, and the result for each key that had one.

    `waiting` images wait to be read, `fetching` ones to be fetched.
    """

    job_id: str
    finished: bool
    waiting: int
    fetching: int
    result_ids: Mapping[bytes, str]


def reserve_blobs(transaction: Transaction, images: Sequence[NewImage]) -> set[str]:
    """Hashes of the originals that were on record; now all are, and the sweeper leaves them for its grace period.

    Called before originals are written, so that those of a submission that comes to nothing are swept too. The commit
    isn't waited for where nothing is new: losing a touch in a crash loses nothing.
    """
    kept = keep_blobs(transaction, images)
    if all(kept.values()):
        transaction.session.execute(_NO_WAIT)
    return {digest for digest, known in kept.items() if known}


def check_room_for(transaction: Transaction, account_id: str, images: Sequence[NewImage], settings: Settings) -> None:
    """Nothing, where the acceptable ones of the images may come in; those that are cached don't wait.

    Raises:
        TooManyImages: more than the queue holds.
        QuotaExceeded: the plan's images of this month are used up.
        AccountQueueFull: the account's own share of the queue is full.
        QueueFull: the queue is full, and the account has its fair part of it already.
    """
    hits = find_hits(transaction, images)
    accepted = [image for image in images if image.error is None]
    waiting = sum(1 for image in accepted if image.key is None or image.key.digest not in hits)
    check_room(transaction, account_id, Room(waiting, sum(image.units for image in accepted)), settings)


def find_hits(transaction: Transaction, images: Sequence[NewImage]) -> dict[bytes, CachedResult]:
    """The cached results that answer some of the images, by key digest."""
    return lookup(transaction, {image.key.digest for image in images if image.key is not None})


def submit(transaction: Transaction, new: NewJob, settings: Settings, box: SecretBox) -> Submitted:
    """The job, written with all that is decided already. The originals are on record and in the store.

    Raises:
        TooManyImages, QuotaExceeded, AccountQueueFull, QueueFull: what came in since the room was looked at has it.
        IdempotencyKeyInUse: another request took the idempotency key over.
        OriginalsErased: some of them were erased since they were put on record.
    """
    check_room_for(transaction, new.account_id, new.images, settings)
    job = _insert_job(transaction, new, settings, box)
    hits = hold_hits(transaction, new.images)
    keep_stored(transaction, new.images)
    model = choose_model(new.options, settings)
    rows = [_image_row(job, index, image, hits) | {"model": model} for index, image in enumerate(new.images)]
    transaction.session.connection().execute(_IMAGES, rows)
    charge(transaction, [str(row["image_id"]) for row in rows if row["cached"]])
    if new.reservation is not None:
        complete(transaction, new.reservation, new.fingerprint, job.job_id)
    tally = _tally(rows)
    done = count(transaction, {job.job_id: tally}, settings) if tally != Tally() else []
    news_of(transaction.session).afterwards.append(partial(CACHE_HITS.labels("result").inc, tally.cached))
    states = Counter(row["state"] for row in rows)
    return Submitted(
        job.job_id, bool(done), states["queued"], states["fetching"], {key: hit.result_id for key, hit in hits.items()}
    )


def hold_hits(transaction: Transaction, images: Sequence[NewImage]) -> dict[bytes, CachedResult]:
    """The hits whose results stay until this transaction ends."""
    hits = find_hits(transaction, images)
    if not hits:
        return hits
    held = set(transaction.session.scalars(_HOLD, {"result_ids": [hit.result_id for hit in hits.values()]}))
    return {key: hit for key, hit in hits.items() if hit.result_id in held}


def _insert_job(transaction: Transaction, new: NewJob, settings: Settings, box: SecretBox) -> Job:
    session = transaction.session
    endpoint_id = None
    if new.webhook is not None:
        ensure_default_secret(session, box, new.account_id)
        endpoint_id = ensure_job_endpoint(session, new.account_id, new.webhook.url)
    job = Job(
        job_id=new_id("job"),
        account_id=new.account_id,
        subject=new.subject,
        single=new.single,
        options=new.options.model_dump(mode="json"),
        labels=dict(new.metadata),
        total=len(new.images),
        retry_of=new.retry_of,
        request_id=new.request_id,
        traceparent=new.traceparent,
        webhook_endpoint_id=endpoint_id,
        webhook_events=new.webhook.events if new.webhook is not None else None,
        deadline_at=datetime.now(UTC) + timedelta(seconds=settings.job_deadline_s),
    )
    session.add(job)
    session.flush()
    return job


def _image_row(job: Job, index: int, image: NewImage, hits: Mapping[bytes, CachedResult]) -> dict[str, object]:
    hit = hits.get(image.key.digest) if image.key is not None else None
    state = _first_state(image, hit)
    return {
        "image_id": new_id("img"),
        "job_id": job.job_id,
        "account_id": job.account_id,
        "index": index,
        "name": image.name,
        "source_url": image.source_url,
        "source_host": image.source_host,
        "sha256": image.sha256,
        "format": image.format,
        "size_bytes": image.size_bytes,
        "units": hit.units if hit else image.units,
        "state": state,
        "waits": state in {"queued", "fetching"},
        "fetches": state == "fetching",
        "delay_s": min(job.total, BULK_S),
        "cached": hit is not None,
        "degraded": hit.degraded if hit else False,
        "error_code": image.error.code if image.error else None,
        "error_message": image.error.message if image.error else None,
        "model_version": hit.model_version if hit else None,
        "result_id": hit.result_id if hit else None,
    }


def _first_state(image: NewImage, hit: CachedResult | None) -> str:
    if image.error is not None:
        return "failed"
    if hit is not None:
        return "completed"
    return "queued" if image.source_host is None else "fetching"


def keep_stored(transaction: Transaction, images: Sequence[NewImage]) -> None:
    """Nothing; the originals of the acceptable images, put on record before, are kept for them.

    Raises:
        OriginalsErased: some are no longer on record, and so not in the store either.
    """
    if not all(keep_blobs(transaction, images).values()):
        raise OriginalsErased("Images that were stored for this were erased meanwhile. Send it again.", retry_after_s=1)


def keep_blobs(transaction: Transaction, images: Sequence[NewImage]) -> dict[str, bool]:
    """For each original of the acceptable images, now on record: whether it was before."""
    kept = {image.sha256: image for image in images if image.error is None and image.sha256 is not None}
    if not kept:
        return {}
    values = {
        "digests": list(kept),
        "sizes": [image.size_bytes for image in kept.values()],
        "formats": [image.format for image in kept.values()],
    }
    return {row.sha256: row.known for row in transaction.session.execute(_KEEP, values)}


def _tally(rows: Sequence[Mapping[str, object]]) -> Tally:
    tally = Tally()
    for row in rows:
        if row["state"] == "failed":
            tally.fail(str(row["image_id"]))
        elif row["state"] == "completed":
            tally.completed += 1
            tally.cached += 1
            tally.events.append(("image.completed", str(row["image_id"])))
    return tally
