"""Bodies of events: JSON bytes that are frozen when the event happens."""

import json
import zlib
from collections.abc import Mapping, Sequence
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
    session: Session, event: str, job: JobFacts, images: Sequence[ImageFacts], *, base_url: str, limit_bytes: int
) -> bytes:
    """The body of an event: all results inlined if it stays within `limit_bytes`, else none, else not even the rows."""
    job_url = f"{base_url}/api/extract/image-jobs/{job.job_id}"
    rows = [_image_row(image, job_url) for image in images]
    data: dict[str, object] = {
        "job_id": job.job_id,
        "sequence": job.sequence,
        "status": job.status,
        "progress": job.progress.model_dump(),
        "metadata": dict(job.metadata),
        "job_url": job_url,
        "images": rows,
    }
    moment = datetime.now(UTC)
    bare = freeze(event, data, moment)
    if len(bare) > limit_bytes:
        return freeze(event, data | {"images": None, "images_omitted": True}, moment)
    results = _load_results(session, images, limit_bytes - len(bare))
    if not results:
        return bare
    inlined = [row | {"result": results.get(image.result_id or "")} for row, image in zip(rows, images, strict=True)]
    full = freeze(event, data | {"images": inlined}, moment)
    return full if len(full) <= limit_bytes else bare


def freeze(event: str, data: Mapping[str, object], moment: datetime) -> bytes:
    """The bytes that are stored, signed and sent."""
    body = {"type": event, "timestamp": rfc3339(moment), "data": data}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def load_images(session: Session, job_id: str, image_id: str | None = None) -> list[ImageFacts]:
    """The facts of a job's images in their order, or of one of them."""
    query = select(Image).where(col(Image.job_id) == job_id).order_by(col(Image.index))
    if image_id is not None:
        query = query.where(col(Image.image_id) == image_id)
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


def _load_results(session: Session, images: Sequence[ImageFacts], room_bytes: int) -> dict[str, object]:
    """Results by id, if all of them may fit into `room_bytes`; compressed ones that don't aren't even read."""
    ids = {image.result_id for image in images if image.result_id and image.status == "completed"}
    if not ids:
        return {}
    chosen = col(ImageResult.result_id).in_(ids)
    stored = session.exec(select(func.sum(func.octet_length(ImageResult.body))).where(chosen)).one()
    if stored is None or stored > room_bytes:
        return {}
    found: dict[str, object] = {}
    for result_id, body in session.exec(select(ImageResult.result_id, ImageResult.body).where(chosen)):
        text = _inflate(body, room_bytes)
        if text is None:
            return {}
        room_bytes -= len(text)
        found[result_id] = json.loads(text, parse_constant=lambda _: None)
    return found if found.keys() == ids else {}


def _inflate(body: bytes, limit_bytes: int) -> bytes | None:
    """The decompressed bytes, or None if there are more than `limit_bytes`."""
    if limit_bytes <= 0:
        return None
    inflater = zlib.decompressobj()
    text = inflater.decompress(body, limit_bytes + 1)
    return text if inflater.eof and len(text) <= limit_bytes else None
