"""Which originals an account may have again: those of its own jobs that are still promised to be kept.

The store alone doesn't decide. The same bytes may be there because another account has sent them, and telling so
would tell one account what another one has.
"""

from datetime import UTC, datetime, timedelta

from arachne.errors import DeadlineExceeded, Gone, NotFinished, WorkerLost
from arachne.schemas.tables import Image, Job
from arachne.settings import Settings

_ACCEPTED = {DeadlineExceeded.code, WorkerLost.code}  # of images that failed although nobody has tried to read them


def was_refused(image: Image) -> bool:
    """Whether the image was refused when it came in, so that nothing of it was kept."""
    return image.state == "failed" and image.attempts == 0 and image.error_code not in _ACCEPTED


def require_original(job: Job, image: Image, settings: Settings) -> str:
    """The SHA-256 of the image's original.

    Raises:
        NotFinished: it has not been fetched yet.
        Gone: it was never stored, or its time is over.
    """
    if image.state == "fetching":
        raise NotFinished("The image has not been fetched yet.", retry_after_s=1)
    if image.source_url is not None and image.format is None:
        raise Gone("The original was never kept: its URL gave no acceptable image.")
    if image.sha256 is None or image.format is None or was_refused(image):
        raise Gone(f"The original was not kept: the image was refused at once ({image.error_code}).")
    kept_until = None if job.finished_at is None else job.finished_at + timedelta(seconds=settings.original_retention_s)
    if kept_until is not None and kept_until <= datetime.now(UTC):
        raise Gone("The original is no longer kept.")
    return image.sha256
