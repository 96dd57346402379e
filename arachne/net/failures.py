"""Why an outgoing request came to nothing, in the classes that logs and clients are told."""

import errno

import aiohttp

from arachne.errors import EgressBlocked, InvalidUrl
from arachne.schemas.webhook import Failure

# What our own machine lacks, and no receiver can mend. An address without a route is its receiver's, who names it.
_OUR_ERRNOS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENETDOWN}

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
    if is_lack(error):
        return "ours"
    return next((failure for kinds, failure in _CLASSES if isinstance(error, kinds)), "ours")


def is_lack(error: Exception) -> bool:
    """Whether this machine lacks something that the request needs."""
    return isinstance(error, OSError) and error.errno in _OUR_ERRNOS
