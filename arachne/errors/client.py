"""What a client of the service meets besides the service's own refusals."""

from arachne.errors.root import ArachneError


class ClientError(ArachneError):
    """A call could not be done, for what lies between this client and the service or with what it was given."""

    code, title = "client", "Client error"


class Unreachable(ClientError):
    """Nothing answers at the service's URL, or the connection broke."""

    code, http_status, title, retryable = "unreachable", 503, "Unreachable", True


class UnexpectedAnswer(ClientError):
    """What answers is not this service, or not in a form that this client reads."""

    code, http_status, title = "unexpected_answer", 502, "Unexpected answer"


class Unfinished(ClientError):
    """The job was not finished within the time given; it goes on."""

    code, title, retryable = "unfinished", "Unfinished", True


class SourceUnreadable(ClientError):
    """A file that is to be sent can't be read, or changed while it was sent; it was not read by the service."""

    code, title = "source_unreadable", "Source unreadable"


class SourceChanged(SourceUnreadable):
    """A file grew, shrank or went away while it was sent. `index` is its place in the call."""

    def __init__(self, message: str, *, index: int) -> None:
        super().__init__(message)
        self.index = index


class ImageCancelled(ClientError):
    """The image's job was cancelled before the image was read."""

    code, title = "cancelled", "Cancelled"


class SignatureRejected(ClientError):
    """A webhook's signature is not right; nothing of its body may be believed. `reason` is a stable word."""

    code, http_status, title = "signature_rejected", 400, "Signature rejected"

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason
