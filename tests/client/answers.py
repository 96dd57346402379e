"""What a service answers of a job, for tests that play it."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from arachne.schemas.job import ImageView, JobView, Progress
from arachne.schemas.result import Result
from tests.http.worker import result_json

_NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def make_job(job_id: str, names: Sequence[str], *, finished: bool = True) -> dict[str, object]:
    """The job of these images, all of them read or none."""
    total = len(names)
    done = total if finished else 0
    progress = Progress(
        total=total, completed=done, failed=0, cancelled=0, cached=0, degraded=0, percent=100 if finished else 0
    )
    job = JobView(
        job_id=job_id,
        status="completed" if finished else "processing",
        finished=finished,
        cached=False,
        progress=progress,
        queue=None,
        options={},
        metadata={},
        model_version=None,
        retry_of=None,
        created_at=_NOON,
        started_at=_NOON,
        finished_at=_NOON if finished else None,
        expires_at=None,
        images=[_make_image(index, name, finished=finished) for index, name in enumerate(names)],
        images_next_cursor=None,
    )
    found: dict[str, object] = json.loads(job.model_dump_json())
    return found


def _make_image(index: int, name: str, *, finished: bool) -> ImageView:
    return ImageView(
        image_id=f"img_{index}",
        index=index,
        name=name,
        source_url=None,
        sha256=None,
        status="completed" if finished else "processing",
        cached=False,
        degraded=False,
        error=None,
        attempts=1,
        model_version=None,
        result_url=None,
        result=Result.model_validate_json(result_json("0" * 64)) if finished else None,
    )
