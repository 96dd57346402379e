"""The job resource and its images, as they go over the wire."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, PlainSerializer, RootModel

from arachne.schemas.result import Result
from arachne.schemas.wire import WireModel

JobStatus = Literal["queued", "processing", "completed", "partial", "failed", "cancelled"]
ImageStatus = Literal["queued", "fetching", "processing", "completed", "failed", "cancelled"]
TERMINAL: frozenset[JobStatus] = frozenset({"completed", "partial", "failed", "cancelled"})


def rfc3339(moment: datetime) -> str:
    """`2026-01-31T12:00:00.123Z`: UTC to the millisecond."""
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


Moment = Annotated[datetime, PlainSerializer(rfc3339, return_type=str, when_used="json")]


class ImageFault(WireModel):
    """Why an image failed; `stage` names the stage, where one raised it."""

    code: str
    message: str
    stage: str | None


class Progress(WireModel):
    """Counts of a job's images; `percent` of them are in a terminal state."""

    total: int
    completed: int
    failed: int
    cancelled: int
    cached: int
    degraded: int
    percent: Annotated[int, Field(ge=0, le=100)]


class QueueView(WireModel):
    """How many images, other accounts' turns among them, are begun before this job's next one, if no more come.

    `eta_seconds` is until the job's last waiting image will have been read, at the pace of the last images; what
    fetching images by their URL takes is not in it. None while no image was read lately.
    """

    position: int
    eta_seconds: float | None


class ImageView(WireModel):
    """One image of a job."""

    image_id: str
    index: int
    name: str | None
    source_url: str | None
    sha256: str | None
    status: ImageStatus
    cached: bool
    degraded: bool
    error: ImageFault | None
    attempts: int
    model_version: str | None
    result_url: str | None
    result: Result | None


class JobSummary(WireModel):
    """A job without its images, as in lists."""

    job_id: str
    status: JobStatus
    finished: bool
    cached: bool
    progress: Progress
    queue: QueueView | None
    options: dict[str, object]
    metadata: dict[str, str]
    model_version: str | None
    retry_of: str | None
    created_at: Moment
    started_at: Moment | None
    finished_at: Moment | None
    expires_at: Moment | None


class JobView(JobSummary):
    """A job as clients see it."""

    images: list[ImageView]
    images_next_cursor: str | None


class SingleJobView(JobView):
    """A single-image job: its result and error stand at the top as well."""

    result: Result | None
    error: ImageFault | None


class AnyJobView(RootModel[SingleJobView | JobView]):
    """A job: of a single image, with its result and error at the top, or of a batch."""
