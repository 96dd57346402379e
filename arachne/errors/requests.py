"""Why a request isn't served: for what was sent, or because a part is down."""

from arachne.errors.root import ArachneError


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


class OriginalsErased(Unavailable):
    """Originals that a submission builds on were erased while it came in."""


class QueueFull(Unavailable):
    """The queue is full; nothing was written."""

    code, title = "queue_full", "Queue full"
