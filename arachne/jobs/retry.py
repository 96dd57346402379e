"""A finished job's failed, cancelled or degraded images once more, as what a new job can be made of."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import text
from sqlmodel import col, select

from arachne.database import Transaction
from arachne.errors import Conflict, EgressBlocked, Gone, InvalidUrl, NotFinished
from arachne.jobs.originals import require_original, was_refused
from arachne.jobs.publications import published
from arachne.jobs.submit import NewImage, check_room_for
from arachne.jobs.views import find_job
from arachne.net.policy import image_policy
from arachne.net.urls import check_url
from arachne.reading import cache_key
from arachne.schemas.options import Options
from arachne.schemas.submission import RetryKind, WebhookInput
from arachne.schemas.tables import Image, Job, WebhookEndpoint
from arachne.settings import Settings
from arachne.versions import Published

_HOLD = text("SELECT sha256 FROM blob WHERE sha256 = ANY(:digests) ORDER BY sha256 FOR NO KEY UPDATE")
_TOUCH = text("UPDATE blob SET stored_at = now() WHERE sha256 = ANY(:digests)")


@dataclass(frozen=True)
class Retry:
    """What of a job is to be tried again, and the terms it was sent with. The webhook is to be checked anew."""

    job_id: str
    single: bool
    options: Options
    metadata: dict[str, str]
    webhook: WebhookInput | None
    images: list[NewImage]


def plan_retry(
    transaction: Transaction, account_id: str, job_id: str, include: Collection[RetryKind], settings: Settings
) -> Retry:
    """The job's images of these kinds. Those of which nothing was kept are left out, but URLs are called again.

    Raises:
        NotFound: the account has no such job.
        Gone: it was deleted or has expired, or its originals are no longer kept.
        NotFinished: it isn't finished.
        Conflict: it has no such image that can be tried again.
        LanguageMissing: a language of its options is no longer installed.
    """
    job = find_job(transaction, account_id, job_id, settings.tombstone_s)
    if job.finished_at is None:
        raise NotFinished("The job is not finished. Retry it when it is, or cancel it first.", retry_after_s=1)
    options, facts = Options.model_validate(job.options), published(transaction)
    images = [
        _keyed(image, options, account_id, settings, facts)
        for row in _find(transaction, job_id, include)
        if (image := _again(job, row, settings)) is not None
    ]
    if not images:
        told = ", ".join(sorted(include))
        raise Conflict(f"The job has no image to retry that is {told}; of refused ones nothing was kept.")
    return Retry(job_id, job.single, options, dict(job.labels), _webhook_of(transaction, job), images)


def make_room(transaction: Transaction, account_id: str, images: Sequence[NewImage], settings: Settings) -> None:
    """Nothing, where the images may come in; their originals are left alone by the sweeper for its grace period.

    Raises:
        Gone: an original is no longer kept.
        TooManyImages: more than the queue holds.
        QuotaExceeded: the plan's images of this month are used up.
        AccountQueueFull: the account's own share of the queue is full.
        QueueFull: the queue is full, and the account has its fair part of it already.
    """
    check_room_for(transaction, account_id, images, settings)
    digests = {image.sha256 for image in images if image.sha256 is not None}
    if set(transaction.session.scalars(_HOLD, {"digests": sorted(digests)})) != digests:
        raise Gone("The originals are no longer kept. Send the images again.")
    transaction.session.execute(_TOUCH, {"digests": sorted(digests)})


def _find(transaction: Transaction, job_id: str, include: Collection[RetryKind]) -> Iterator[Image]:
    query = select(Image).where(col(Image.job_id) == job_id).order_by(col(Image.index))
    for image in transaction.session.exec(query):
        kind = "degraded" if image.state == "completed" and image.degraded else image.state
        if kind in include:
            yield image


def _again(job: Job, image: Image, settings: Settings) -> NewImage | None:
    """The image as it can come in once more; None where nothing of it was kept."""
    if image.format is None:
        return _fetch_again(image, settings)
    if was_refused(image):
        return None
    digest = require_original(job, image, settings)
    return NewImage(
        name=image.name,
        sha256=digest,
        format=image.format,
        size_bytes=image.size_bytes or 0,
        units=image.units,
        source_url=image.source_url,
    )


def _fetch_again(image: Image, settings: Settings) -> NewImage | None:
    """The image as it is to be fetched; None where it was no URL, or one that may not be called."""
    if image.source_url is None:
        return None
    try:
        host = check_url(image.source_url, image_policy(settings)).host
    except (InvalidUrl, EgressBlocked):
        return None
    return NewImage(image.name, None, None, 0, source_url=image.source_url, source_host=host)


def _keyed(image: NewImage, options: Options, account_id: str, settings: Settings, facts: Published | None) -> NewImage:
    if image.sha256 is None or facts is None or options.cache != "use":
        return image
    return replace(image, key=cache_key(options, account_id, image.sha256, settings, facts))


def _webhook_of(transaction: Transaction, job: Job) -> WebhookInput | None:
    """Where the job's own events go, to its own filters; None where nowhere."""
    if job.webhook_endpoint_id is None:
        return None
    endpoint = transaction.session.get(WebhookEndpoint, job.webhook_endpoint_id)
    return None if endpoint is None else WebhookInput(url=endpoint.url, events=job.webhook_events)
