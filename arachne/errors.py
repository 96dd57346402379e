"""Every error Arachne raises on purpose: `code` is the stable word clients branch on, `message` says what to do.

ArachneError                       code · http_status · retryable
├── RequestError                   what the caller sent can't be served (4xx)
│   ├── MalformedRequest           malformed_request 400
│   ├── InvalidToken               invalid_token 401
│   ├── InsufficientScope          insufficient_scope 403
│   ├── AccountUnknown             account_unknown 403
│   ├── QuotaExceeded              quota_exceeded 403
│   ├── NotFound                   not_found 404
│   ├── MethodNotAllowed           method_not_allowed 405
│   ├── NotFinished                not_finished 409, later
│   ├── Conflict                   conflict 409, later
│   ├── IdempotencyKeyInUse        idempotency_key_in_use 409, later
│   ├── Gone                       gone 410
│   ├── RequestTooLarge            request_too_large 413
│   ├── TooManyImages              too_many_images 413
│   ├── UnsupportedMediaType       unsupported_media_type 415
│   ├── InvalidOptions             invalid_options 422
│   ├── OptionsConflict            options_conflict 422
│   ├── InvalidUrl                 invalid_url 422
│   ├── EgressBlocked              egress_blocked 422
│   ├── LanguageMissing            language_missing 422
│   ├── IdempotencyKeyReused       idempotency_key_reused 422
│   ├── RateLimited                rate_limited 429, after Retry-After
│   └── AccountQueueFull           account_queue_full 429, after Retry-After
├── Unavailable                    unavailable 503, after Retry-After
│   └── QueueFull                  queue_full 503, after Retry-After
├── ImageError                     one image can't be read; the rest of its job goes on
│   ├── ImageTooLarge              image_too_large 413
│   ├── TooManyFrames              too_many_frames 413
│   ├── UnsupportedImage           unsupported_image 415
│   ├── DecodeFailed               decode_failed
│   ├── FetchFailed                fetch_failed
│   ├── ReadFailed                 read_failed
│   ├── TimedOut                   timeout
│   ├── WorkerCrashed              worker_crashed
│   ├── OutOfMemory                out_of_memory
│   ├── WorkerLost                 worker_lost
│   └── DeadlineExceeded           deadline_exceeded
├── VlmError                       no description; the image completes without one, and degraded
│   ├── VlmUnreachable             vlm_unreachable, again
│   ├── VlmTimedOut                vlm_timeout, again
│   ├── VlmBusy                    vlm_busy, again after retry_after_s
│   ├── VlmFailed                  vlm_failed, again
│   ├── VlmRefused                 vlm_refused
│   ├── VlmModelMissing            vlm_model_missing
│   └── VlmAnswerRejected          vlm_answer_rejected
├── FileRejected                   a file given to a command is damaged or foreign; nothing of it was taken
└── SetupError                     this machine or its settings need mending; says how
"""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, TypedDict


class FieldError(TypedDict):
    """One fault of a request: where it is and what is wrong with it."""

    loc: list[str | int]
    msg: str


class ArachneError(Exception):
    """An error with a stable code, a status for HTTP and a message that says what to do."""

    code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_after_s: float | None = None, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s
        self.errors = tuple(errors)


class RequestError(ArachneError):
    """The caller's request can't be served as it is."""

    code, http_status, title = "malformed_request", 400, "Malformed request"


class MalformedRequest(RequestError):
    """The request can't be parsed."""


class InvalidToken(RequestError):
    """The bearer token is missing or not acceptable."""

    code, http_status, title = "invalid_token", 401, "Invalid token"


class InsufficientScope(RequestError):
    """The token lacks the scope this route needs."""

    code, http_status, title = "insufficient_scope", 403, "Insufficient scope"


class AccountUnknown(RequestError):
    """The token is right but its account is unknown or disabled here."""

    code, http_status, title = "account_unknown", 403, "Account unknown"


class QuotaExceeded(RequestError):
    """The plan's monthly images are used up."""

    code, http_status, title = "quota_exceeded", 403, "Quota exceeded"


class NotFound(RequestError):
    """No such object, or another account's."""

    code, http_status, title = "not_found", 404, "Not found"


class MethodNotAllowed(RequestError):
    """The route exists, but not for this method."""

    code, http_status, title = "method_not_allowed", 405, "Method not allowed"


class NotFinished(RequestError):
    """The result is not there yet."""

    code, http_status, title, retryable = "not_finished", 409, "Not finished", True


class Conflict(RequestError):
    """The object's state doesn't allow this now."""

    code, http_status, title, retryable = "conflict", 409, "Conflict", True


class IdempotencyKeyInUse(RequestError):
    """The first request with this key is still being accepted."""

    code, http_status, title, retryable = "idempotency_key_in_use", 409, "Idempotency key in use", True


class Gone(RequestError):
    """The object was there and is no longer kept."""

    code, http_status, title = "gone", 410, "Gone"


class RequestTooLarge(RequestError):
    """The body is over the limit."""

    code, http_status, title = "request_too_large", 413, "Request too large"


class TooManyImages(RequestError):
    """More images than one job, or one rate window, can hold."""

    code, http_status, title = "too_many_images", 413, "Too many images"


class UnsupportedMediaType(RequestError):
    """The body's Content-Type is none this route reads."""

    code, http_status, title = "unsupported_media_type", 415, "Unsupported media type"


class InvalidOptions(RequestError):
    """The request parses but breaks a rule; `errors` says where."""

    code, http_status, title = "invalid_options", 422, "Invalid options"


class OptionsConflict(RequestError):
    """Two options exclude each other."""

    code, http_status, title = "options_conflict", 422, "Options conflict"


class InvalidUrl(RequestError):
    """The URL has a form that is never called."""

    code, http_status, title = "invalid_url", 422, "Invalid URL"


class EgressBlocked(RequestError):
    """The URL leads to an address that may not be called."""

    code, http_status, title = "egress_blocked", 422, "Egress blocked"


class LanguageMissing(RequestError):
    """A requested language's data is not installed."""

    code, http_status, title = "language_missing", 422, "Language missing"


class IdempotencyKeyReused(RequestError):
    """The key belongs to a different request."""

    code, http_status, title = "idempotency_key_reused", 422, "Idempotency key reused"


class RateLimited(RequestError):
    """Over the rate limit; `retry_after_s` says when it will pass."""

    code, http_status, title, retryable = "rate_limited", 429, "Rate limited", True


class AccountQueueFull(RequestError):
    """The account's share of the queue is full."""

    code, http_status, title, retryable = "account_queue_full", 429, "Account queue full", True


class Unavailable(ArachneError):
    """A part this request needs is down; nothing was written."""

    code, http_status, title, retryable = "unavailable", 503, "Unavailable", True


class QueueFull(Unavailable):
    """The queue is full; nothing was written."""

    code, title = "queue_full", "Queue full"


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


class VlmError(ArachneError):
    """A vision-language model gave no description. `server_at_fault` tells whether its server seems to be ill."""

    code, http_status, title = "vlm_failed", 502, "No description"
    server_at_fault: ClassVar[bool] = False


class VlmUnreachable(VlmError):
    """Nothing answers at VLM_URL, or the connection broke."""

    code, retryable, server_at_fault = "vlm_unreachable", True, True


class VlmTimedOut(VlmError):
    """No whole answer came in time."""

    code, retryable, server_at_fault = "vlm_timeout", True, True


class VlmBusy(VlmError):
    """The server's own queue is full; it is well otherwise."""

    code, retryable = "vlm_busy", True


class VlmFailed(VlmError):
    """The server failed, or answered with what is not its protocol."""

    retryable, server_at_fault = True, True


class VlmRefused(VlmError):
    """The server won't take this request, however often it is sent."""

    code = "vlm_refused"


class VlmModelMissing(VlmError):
    """The server doesn't have the model."""

    code = "vlm_model_missing"


class VlmAnswerRejected(VlmError):
    """The model's answer can't be used; the message is the stage's reason."""

    code = "vlm_answer_rejected"


class FileRejected(ArachneError):
    """A file given to a command is damaged or foreign; nothing of it was taken."""

    code, title = "file_rejected", "File rejected"


class SetupError(ArachneError):
    """This machine or its settings need mending; the message says how."""

    code, title = "setup", "Set-up error"
