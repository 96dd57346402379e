"""Jobs and images as clients see them, read from the rows and from nothing else, so that polls and events agree.

Results stand in what is shown as they are stored (`StoredJson`), for whoever writes the JSON to put in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from sqlalchemy import Boolean, Label, func, literal_column, text
from sqlmodel import col, select

from arachne.bodies import StoredJson
from arachne.cursors import decode_cursor, encode_cursor
from arachne.database import Transaction
from arachne.errors import Gone, NotFound
from arachne.ids import is_id
from arachne.jobs.estimates import find_place
from arachne.schemas.job import (
    TERMINAL,
    ImageFault,
    ImageStatus,
    ImageView,
    JobStatus,
    JobSummary,
    JobView,
    Progress,
    SingleJobView,
)
from arachne.schemas.options import Options
from arachne.schemas.tables import Image, ImageResult, Job

IMAGES_PAGE = 100
RESULTS_PAGE = 20
_LIST = "jobs"
Results = Mapping[str, StoredJson]
"""Results as they are stored, by id."""
_STATUS: Mapping[str, ImageStatus] = {"running": "processing", "parked": "queued"}
# The time is the database's: the row is gone for everybody at once, whether or not housekeeping has come by.
IS_SHOWN = "deleted_at IS NULL AND (expires_at IS NULL OR expires_at > now())"
_SHOWN = literal_column(IS_SHOWN, Boolean).label("shown")
_VERSIONS = text("""
SELECT job_id, min(model_version) FROM image WHERE job_id = ANY(:job_ids)
GROUP BY job_id HAVING min(model_version) = max(model_version)
""")


@dataclass(frozen=True)
class JobPage:
    """Some jobs, newest first, and the cursor that continues them."""

    data: list[JobSummary]
    next_cursor: str | None


def find_job(transaction: Transaction, account_id: str, job_id: str, tombstone_s: float) -> Job:
    """The account's job.

    Raises:
        NotFound: the account has no such job, or has had none for longer than `tombstone_s`.
        Gone: it was deleted or has expired.
    """
    wanted = col(Job.job_id) == job_id, col(Job.account_id) == account_id
    query = select(Job, _SHOWN, _forgotten(tombstone_s)).where(*wanted).execution_options(populate_existing=True)
    found = transaction.session.execute(query).one_or_none() if is_id(job_id, "job") else None
    if found is None or found.forgotten:
        raise NotFound("There is no such job.")
    if not found.shown:
        raise Gone("The job was deleted, or its results have expired.")
    job: Job = found.Job
    return job


def _forgotten(tombstone_s: float) -> Label[bool]:
    """Whether the job has been gone for longer than its tombstone stands; null where it is not gone."""
    gone_at = func.least(col(Job.deleted_at), col(Job.expires_at))
    return (gone_at < func.now() - timedelta(seconds=tombstone_s)).label("forgotten")


def find_image(
    transaction: Transaction, account_id: str, job_id: str, index: str, tombstone_s: float
) -> tuple[Job, Image]:
    """The image at an index of the account's job.

    Raises:
        NotFound: the account has no such job, or it no such image.
        Gone: the job was deleted or has expired.
    """
    job = find_job(transaction, account_id, job_id, tombstone_s)
    wanted = int(index) if index.isascii() and index.isdigit() and len(index) <= 6 else -1
    query = select(Image).where(Image.job_id == job.job_id, Image.index == wanted)
    image = transaction.session.exec(query.execution_options(populate_existing=True)).first()
    if image is None:
        raise NotFound(f"The job has images 0 to {job.total - 1}.")
    return job, image


def show_job(
    transaction: Transaction,
    account_id: str,
    job_id: str,
    *,
    base_url: str,
    tombstone_s: float,
    with_results: bool = False,
    after_index: int | None = None,
    known: Results = MappingProxyType({}),
) -> dict[str, object]:
    """The job resource, with one page of its images from after `after_index`.

    `known` are results by id that need not be loaded.

    Raises:
        NotFound: the account has no such job.
        Gone: it was deleted or has expired.
    """
    job = find_job(transaction, account_id, job_id, tombstone_s)
    inlines = with_results or job.single
    size = RESULTS_PAGE if inlines and not job.single else IMAGES_PAGE
    images, cursor = _page_of_images(transaction, job_id, after_index, size)
    missing = [image for image in images if inlines and image.result_id not in known]
    results = {**known, **load_results(transaction, missing)} if inlines else {}
    views = [view_image(image, base_url) for image in images]
    queue = None if job.state in TERMINAL else find_place(transaction, job_id)
    version = _find_versions(transaction, [job_id]).get(job_id)
    members = _summary(job, version) | {"queue": queue, "images": views, "images_next_cursor": cursor}
    return (_shown_single if job.single else _shown_batch)(members, images, results)


def _shown_batch(members: dict[str, Any], images: Sequence[Image], results: Results) -> dict[str, object]:
    return _with_results(JobView.model_validate(members).model_dump(mode="json"), images, results)


def _shown_single(members: dict[str, Any], images: Sequence[Image], results: Results) -> dict[str, object]:
    """A single-image job: its result and error stand at the top as well."""
    views = members["images"]
    view = SingleJobView.model_validate(members | {"result": None, "error": views[0].error if views else None})
    shown = _with_results(view.model_dump(mode="json"), images, results)
    shown["result"] = results.get(images[0].result_id or "") if images else None
    return shown


def _page_of_images(
    transaction: Transaction, job_id: str, after_index: int | None, size: int
) -> tuple[Sequence[Image], str | None]:
    query = select(Image).where(Image.job_id == job_id, col(Image.index) > (-1 if after_index is None else after_index))
    query = query.order_by(col(Image.index)).limit(size + 1).execution_options(populate_existing=True)
    found = transaction.session.exec(query).all()
    images = found[:size]
    return images, encode_cursor("images", images[-1].index) if len(found) > size else None


def show_image(
    transaction: Transaction, account_id: str, job_id: str, index: str, tombstone_s: float, *, base_url: str
) -> dict[str, object]:
    """One image with its result.

    Raises:
        NotFound: the account has no such job, or it no such image.
        Gone: the job was deleted or has expired.
    """
    _, image = find_image(transaction, account_id, job_id, index, tombstone_s)
    shown = view_image(image, base_url).model_dump(mode="json")
    shown["result"] = load_results(transaction, [image]).get(image.result_id or "")
    return shown


def list_jobs(
    transaction: Transaction,
    account_id: str,
    *,
    status: JobStatus | None = None,
    created_after: datetime | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> JobPage:
    """The account's jobs, newest first.

    Raises:
        MalformedRequest: the cursor is none of this list.
    """
    after = decode_cursor(_LIST, cursor)
    query = select(Job).where(Job.account_id == account_id, text(IS_SHOWN))
    if status is not None:
        query = query.where(Job.state == status)
    if created_after is not None:
        query = query.where(col(Job.created_at) > created_after)
    if after is not None:
        query = query.where(col(Job.job_id) < after)
    rows = transaction.session.exec(query.order_by(col(Job.job_id).desc()).limit(limit + 1)).all()
    versions = _find_versions(transaction, [job.job_id for job in rows[:limit]])
    data = [JobSummary.model_validate(_summary(job, versions.get(job.job_id))) for job in rows[:limit]]
    return JobPage(data, encode_cursor(_LIST, rows[limit - 1].job_id) if len(rows) > limit else None)


def load_results(transaction: Transaction, images: Sequence[Image]) -> dict[str, StoredJson]:
    """The results of those of the images that have one, by result id."""
    ids = {image.result_id for image in images if image.result_id is not None}
    if not ids:
        return {}
    query = select(ImageResult.result_id, ImageResult.body).where(col(ImageResult.result_id).in_(ids))
    return {result_id: StoredJson(body) for result_id, body in transaction.session.exec(query)}


def view_image(image: Image, base_url: str) -> ImageView:
    """The image without its result."""
    status = _STATUS.get(image.state, image.state)
    url = f"{base_url}/api/extract/image-jobs/{image.job_id}/images/{image.index}/result"
    return ImageView.model_validate(
        {
            "image_id": image.image_id,
            "index": image.index,
            "name": image.name,
            "source_url": image.source_url,
            "sha256": image.sha256,
            "status": status,
            "cached": image.cached,
            "degraded": image.degraded,
            "error": _fault(image),
            "attempts": image.attempts,
            "model_version": image.model_version,
            "result_url": url if status == "completed" else None,
            "result": None,
        }
    )


def progress_of(job: Job) -> Progress:
    """The job's counts."""
    done = job.completed + job.failed + job.cancelled
    return Progress(
        total=job.total,
        completed=job.completed,
        failed=job.failed,
        cancelled=job.cancelled,
        cached=job.cached,
        degraded=job.degraded,
        percent=100 * done // max(1, job.total),
    )


def _find_versions(transaction: Transaction, job_ids: list[str]) -> dict[str, str]:
    """The one model version of each job whose images have no other."""
    return {row[0]: row[1] for row in transaction.session.execute(_VERSIONS, {"job_ids": job_ids})}


def _summary(job: Job, model_version: str | None) -> dict[str, object]:
    return {
        "job_id": job.job_id,
        "status": job.state,
        "finished": job.state in TERMINAL,
        "cached": job.cached == job.total,
        "progress": progress_of(job),
        "queue": None,
        "options": Options.model_validate(job.options).model_dump(mode="json"),  # JSONB has reordered the members
        "metadata": job.labels,
        "model_version": model_version,
        "retry_of": job.retry_of,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "expires_at": job.expires_at,
    }


def _with_results(shown: dict[str, object], images: Sequence[Image], results: Results) -> dict[str, object]:
    rows = shown["images"]
    assert isinstance(rows, list)
    for row, image in zip(rows, images, strict=True):
        row["result"] = results.get(image.result_id or "")
    return shown


def _fault(image: Image) -> ImageFault | None:
    if image.error_code is None:
        return None
    return ImageFault(code=image.error_code, message=image.error_message or "", stage=image.error_stage)
