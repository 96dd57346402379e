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
│   ├── OriginalsErased            unavailable 503, after Retry-After; within, the originals are stored again
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
├── ClientError                    a client's call could not be done
│   ├── Unreachable                unreachable, again
│   ├── UnexpectedAnswer           unexpected_answer
│   ├── Unfinished                 unfinished, later
│   ├── SourceUnreadable           source_unreadable
│   │   └── SourceChanged          while it was sent
│   ├── ImageCancelled             cancelled
│   └── SignatureRejected          signature_rejected
├── FileRejected                   a file given to a command is damaged or foreign; nothing of it was taken
├── OutputLost                     what a command prints can't be written
└── SetupError                     this machine or its settings need mending; says how
"""

from arachne.errors.client import (
    ClientError,
    ImageCancelled,
    SignatureRejected,
    SourceChanged,
    SourceUnreadable,
    UnexpectedAnswer,
    Unfinished,
    Unreachable,
)
from arachne.errors.commands import FileRejected, OutputLost, SetupError
from arachne.errors.images import (
    DeadlineExceeded,
    DecodeFailed,
    FetchFailed,
    ImageError,
    ImageTooLarge,
    OutOfMemory,
    ReadFailed,
    TimedOut,
    TooManyFrames,
    UnsupportedImage,
    WorkerCrashed,
    WorkerLost,
)
from arachne.errors.requests import (
    AccountQueueFull,
    AccountUnknown,
    Conflict,
    EgressBlocked,
    Gone,
    IdempotencyKeyInUse,
    IdempotencyKeyReused,
    InsufficientScope,
    InvalidOptions,
    InvalidToken,
    InvalidUrl,
    LanguageMissing,
    MalformedRequest,
    MethodNotAllowed,
    NotFinished,
    NotFound,
    OptionsConflict,
    OriginalsErased,
    QueueFull,
    QuotaExceeded,
    RateLimited,
    RequestError,
    RequestTooLarge,
    TooManyImages,
    Unavailable,
    UnsupportedMediaType,
)
from arachne.errors.root import ArachneError, FieldError
from arachne.errors.vlm import (
    VlmAnswerRejected,
    VlmBusy,
    VlmError,
    VlmFailed,
    VlmModelMissing,
    VlmRefused,
    VlmTimedOut,
    VlmUnreachable,
)

__all__ = [
    "AccountQueueFull",
    "AccountUnknown",
    "ArachneError",
    "ClientError",
    "Conflict",
    "DeadlineExceeded",
    "DecodeFailed",
    "EgressBlocked",
    "FetchFailed",
    "FieldError",
    "FileRejected",
    "Gone",
    "IdempotencyKeyInUse",
    "IdempotencyKeyReused",
    "ImageCancelled",
    "ImageError",
    "ImageTooLarge",
    "InsufficientScope",
    "InvalidOptions",
    "InvalidToken",
    "InvalidUrl",
    "LanguageMissing",
    "MalformedRequest",
    "MethodNotAllowed",
    "NotFinished",
    "NotFound",
    "OptionsConflict",
    "OriginalsErased",
    "OutOfMemory",
    "OutputLost",
    "QueueFull",
    "QuotaExceeded",
    "RateLimited",
    "ReadFailed",
    "RequestError",
    "RequestTooLarge",
    "SetupError",
    "SignatureRejected",
    "SourceChanged",
    "SourceUnreadable",
    "TimedOut",
    "TooManyFrames",
    "TooManyImages",
    "Unavailable",
    "UnexpectedAnswer",
    "Unfinished",
    "Unreachable",
    "UnsupportedImage",
    "UnsupportedMediaType",
    "VlmAnswerRejected",
    "VlmBusy",
    "VlmError",
    "VlmFailed",
    "VlmModelMissing",
    "VlmRefused",
    "VlmTimedOut",
    "VlmUnreachable",
    "WorkerCrashed",
    "WorkerLost",
]
