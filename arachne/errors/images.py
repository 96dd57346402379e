"""Why one image can't be read; the rest of its job goes on."""

from functools import partial

from arachne.errors.root import ArachneError


class ImageError(ArachneError):
    """One image can't be read. `stage` names where, when a stage raised it."""

    code, http_status, title = "read_failed", 422, "Read failed"

    def __init__(self, message: str, *, stage: str | None = None) -> None:
        super().__init__(message)
        self.stage = stage

    def __reduce__(self) -> tuple[object, ...]:
        """Cross process borders with the stage kept."""
        return partial(type(self), self.message, stage=self.stage), ()


class ImageTooLarge(ImageError):
    """Too many bytes or pixels."""

    code, http_status, title = "image_too_large", 413, "Image too large"


class TooManyFrames(ImageError):
    """More frames than allowed."""

    code, http_status, title = "too_many_frames", 413, "Too many frames"


class UnsupportedImage(ImageError):
    """The bytes are no image of a supported type."""

    code, http_status, title = "unsupported_image", 415, "Unsupported image"


class DecodeFailed(ImageError):
    """The type is supported but not one row could be decoded."""

    code, title = "decode_failed", "Decode failed"


class FetchFailed(ImageError):
    """The image's URL could not be fetched."""

    code, title = "fetch_failed", "Fetch failed"


class ReadFailed(ImageError):
    """The reader failed on this image."""


class TimedOut(ImageError):
    """A stage ran over its hard time limit."""

    code, title = "timeout", "Timed out"


class WorkerCrashed(ImageError):
    """This image's own subprocess died in each of its attempts."""

    code, title = "worker_crashed", "Worker crashed"


class OutOfMemory(ImageError):
    """This image needs more memory than a stage may take."""

    code, title = "out_of_memory", "Out of memory"


class WorkerLost(ImageError):
    """Workers were lost while holding this image, too often to try again."""

    code, title = "worker_lost", "Worker lost"


class DeadlineExceeded(ImageError):
    """The job's deadline passed before this image was read."""

    code, title = "deadline_exceeded", "Deadline exceeded"
