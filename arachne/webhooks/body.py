"""Bodies of events: JSON bytes that are frozen when the event happens."""

import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import func
from sqlmodel import Session, col, select

from arachne.schemas.job import ImageFault, ImageStatus, Progress, rfc3339
from arachne.schemas.tables import Image, ImageResult, Job

_WIRE_STATUS: Mapping[str, ImageStatus] = {"running": "processing", "parked": "queued"}


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What an event says of its job."""

    job_id: str
    status: str
    sequence: int
    progress: Progress
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What an event says of one image; `result_id` names the stored result."""

    image_id: str
    index: int
    name: str | None
    status: str
    cached: bool
    degraded: bool
    error: ImageFault | None
    result_id: str | None


def build_job_body(
    session: Session,
    event: str,
    job: JobFacts,
    images: Sequence[ImageFacts],
    *,
    base_url: str,
    limit_bytes: int,
    stored: Mapping[str, bytes] | None = None,
) -> bytes:
    """The body of an event: all results inlined if it stays within `limit_bytes`, else none, else not even the rows.

    `stored` are the compressed results by id, where the caller has loaded them for several events.
    """
    job_url = f"{base_url}/api/extract/image-jobs/{job.job_id}"
    rows = [_image_row(image, job_url) for image in images]
    data = _data_of(job, job_url, rows)
    moment = datetime.now(UTC)
    bare = freeze(event, data, moment)
    if len(bare) > limit_bytes:
        return freeze(event, data | {"images": None, "images_omitted": True}, moment)
    results = _load_results(session, images, limit_bytes - len(bare), stored)
    if not results:
        return bare
    inlined = [row | {"result": results.get(image.result_id or "")} for row, image in zip(rows, images, strict=True)]
    full = freeze(event, data | {"images": inlined}, moment)
    return full if len(full) <= limit_bytes else bare


def _data_of(job: JobFacts, job_url: str, rows: list[dict[str, object]]) -> dict[str, object]:
    return {
        "job_id": job.job_id,
        "sequence": job.sequence,
        "status": job.status,
        "progress": job.progress.model_dump(),
        "metadata": dict(job.metadata),
        "job_url": job_url,
        "images": rows,
    }


def freeze(event: str, data: Mapping[str, object], moment: datetime) -> bytes:
    """The bytes that are stored, signed and sent."""
    body = {"type": event, "timestamp": rfc3339(moment), "data": data}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def load_images(session: Session, job_id: str, image_ids: Collection[str] | None = None) -> list[ImageFacts]:
    """The facts of a job's images in their order, or of some of them."""
    query = select(Image).where(col(Image.job_id) == job_id).order_by(col(Image.index))
    if image_ids is not None:
        query = query.where(col(Image.image_id).in_(image_ids))
    return [_image_facts(image) for image in session.exec(query.execution_options(populate_existing=True))]


def _image_facts(image: Image) -> ImageFacts:
    error = None
    if image.error_code is not None:
        error = ImageFault(code=image.error_code, message=image.error_message or "", stage=image.error_stage)
    return ImageFacts(
        image_id=image.image_id,
        index=image.index,
        name=image.name,
        status=_WIRE_STATUS.get(image.state, image.state),
        cached=image.cached,
        degraded=image.degraded,
        error=error,
        result_id=image.result_id,
    )


def job_facts(job: Job, sequence: int) -> JobFacts:
    """The facts of a job at its `sequence`-th event."""
    finished = job.completed + job.failed + job.cancelled
    progress = Progress(
        total=job.total,
        completed=job.completed,
        failed=job.failed,
        cancelled=job.cancelled,
        cached=job.cached,
        degraded=job.degraded,
        percent=100 * finished // max(job.total, 1),
    )
    return JobFacts(job.job_id, job.state, sequence, progress, job.labels)


def _image_row(image: ImageFacts, job_url: str) -> dict[str, object]:
    readable = image.status == "completed"
    return {
        "image_id": image.image_id,
        "index": image.index,
        "name": image.name,
        "status": image.status,
        "cached": image.cached,
        "degraded": image.degraded,
        "error": image.error.model_dump() if image.error else None,
        "result_url": f"{job_url}/images/{image.index}/result" if readable else None,
        "result": None,
    }


def load_stored(session: Session, images: Sequence[ImageFacts], limit_bytes: int) -> dict[str, bytes]:
    """The compressed results of these images by id, but for those over `limit_bytes`, which no event holds."""
    ids = {image.result_id for image in images if image.result_id}
    query = select(ImageResult.result_id, ImageResult.body).where(
        col(ImageResult.result_id).in_(ids), func.octet_length(ImageResult.body) <= limit_bytes
    )
    return dict(session.exec(query).all()) if ids else {}


def _load_results(
    session: Session, images: Sequence[ImageFacts], room_bytes: int, stored: Mapping[str, bytes] | None
) -> dict[str, object]:
    """Results by id, if all of them may fit into `room_bytes`; compressed ones that don't aren't even read."""
    ids = {image.result_id for image in images if image.result_id and image.status == "completed"}
    if not ids:
        return {}
    if stored is None:
        stored = _load_if_small(session, ids, room_bytes)
    found: dict[str, object] = {}
    for result_id in ids & stored.keys():
        text = _inflate(stored[result_id], room_bytes)
        if text is None:
            return {}
        room_bytes -= len(text)
        found[result_id] = json.loads(text, parse_constant=lambda _: None)
    return found if found.keys() == ids else {}


def _load_if_small(session: Session, ids: Collection[str], limit_bytes: int) -> dict[str, bytes]:
    """The compressed results by id; none if they are over `limit_bytes` together."""
    chosen = col(ImageResult.result_id).in_(ids)
    size = select(func.sum(func.octet_length(ImageResult.body))).where(chosen).scalar_subquery()
    return dict(session.exec(select(ImageResult.result_id, ImageResult.body).where(chosen, size <= limit_bytes)).all())


def _inflate(body: bytes, limit_bytes: int) -> bytes | None:
    """The decompressed bytes, or None if there are more than `limit_bytes`."""
    if limit_bytes <= 0:
        return None
    inflater = zlib.decompressobj()
    text = inflater.decompress(body, limit_bytes + 1)
    return text if inflater.eof and len(text) <= limit_bytes else None
