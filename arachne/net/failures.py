"""Why an outgoing request came to nothing, in the classes that logs and clients are told."""

import aiohttp

from arachne.complaints import is_lack
from arachne.errors import EgressBlocked, InvalidUrl
from arachne.schemas.webhook import Failure

# The first class that fits; ClientOSError is what is left of it: refused, reset, unreachable. An address without a
# route is its receiver's fault, who names it.
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
