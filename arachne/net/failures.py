"""Why an outgoing request came to nothing, in the classes that logs and clients are told."""

import errno

import aiohttp

from arachne.errors import EgressBlocked, InvalidUrl
from arachne.schemas.webhook import Failure

# What our own machine lacks, and no receiver can mend.
_OUR_ERRNOS = {
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOBUFS,
    errno.ENOMEM,
    errno.EADDRNOTAVAIL,
    errno.ENETDOWN,
    errno.ENETUNREACH,
}

# The first class that fits; ClientOSError is what is left of it: refused, reset, unreachable.
_CLASSES: tuple[tuple[type[Exception] | tuple[type[Exception], ...], Failure], ...] = (
    ((EgressBlocked, InvalidUrl), "blocked"),
    (aiohttp.ClientConnectorDNSError, "dns"),
    (aiohttp.ClientSSLError, "tls"),
    (TimeoutError, "timeout"),
    ((aiohttp.ClientOSError, aiohttp.ServerDisconnectedError), "refused"),
    (aiohttp.ClientError, "http"),
)


def classify(error: Exception) -> Failure:
    """The class of a failed exchange."""
    if isinstance(error, aiohttp.ClientOSError) and error.errno in _OUR_ERRNOS:
        return "ours"
    return next((failure for kinds, failure in _CLASSES if isinstance(error, kinds)), "ours")
