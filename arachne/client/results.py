"""What a call gives back: each image with its result or why there is none."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from arachne.client.refusals import read_image_fault
from arachne.client.sources import Item
from arachne.errors import ArachneError, ImageCancelled
from arachne.schemas.job import ImageView, JobView
from arachne.schemas.result import Result


@dataclass(frozen=True)
class Extracted:
    """One image of a call, or of a job: `result` where it was read, `error` where it was not.

    `index` is its place in the call, `image_index` in its job; an image that was never sent has no job.
    """

    index: int
    name: str
    result: Result | None = None
    error: ArachneError | None = None
    job_id: str | None = None
    image_index: int | None = None
    image: ImageView | None = None

    @property
    def cached(self) -> bool:
        """Whether nothing had to be computed for it."""
        return self.image is not None and self.image.cached

    @property
    def degraded(self) -> bool:
        """Whether a stage that only adds to the reading failed."""
        return self.image is not None and self.image.degraded


@dataclass(frozen=True)
class Submission:
    """A job as it was accepted. `indexes` are the places of its images in the call; `replayed`: it was there before."""

    job: JobView
    indexes: tuple[int, ...]
    replayed: bool

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.job.job_id


@dataclass(frozen=True)
class Progress:
    """How far a call is: of `total` images, how many were accepted by the service, and what became of those done."""

    total: int
    sent: int = 0
    completed: int = 0
    failed: int = 0
    cached: int = 0

    @property
    def done(self) -> int:
        """Images of which it is known what became of them."""
        return self.completed + self.failed

    def with_sent(self, images: int) -> "Progress":
        """The same with so many more accepted."""
        return replace(self, sent=self.sent + images)

    def after(self, one: Extracted) -> "Progress":
        """The same with one more done."""
        if one.error is not None:
            return replace(self, failed=self.failed + 1)
        return replace(self, completed=self.completed + 1, cached=self.cached + one.cached)


ProgressListener = Callable[[Progress], None]


def make_extracted(index: int, name: str, job_id: str, image: ImageView) -> Extracted:
    """An image as its job tells of it."""
    error: ArachneError | None = None
    if image.error is not None:
        error = read_image_fault(image.error)
    elif image.status == "cancelled":
        error = ImageCancelled(f"The job {job_id} was cancelled before this image was read.")
    return Extracted(index, name, image.result, error, job_id, image.index, image)


def make_failed(item: Item, error: ArachneError) -> Extracted:
    """An image that came into no job."""
    return Extracted(item.index, item.name, error=error)
