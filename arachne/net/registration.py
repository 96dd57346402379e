"""The check of a URL when it is given to us. Another one follows at each connect, so this one may be lenient on DNS."""

import asyncio

from arachne.net.policy import EgressPolicy
from arachne.net.resolver import GuardedResolver, Lookup, look_up
from arachne.net.urls import CheckedUrl, check_url

RESOLVE_TIMEOUT_S = 3.0


async def check_destination(
    url: str, policy: EgressPolicy, *, lookup: Lookup = look_up, timeout_s: float = RESOLVE_TIMEOUT_S
) -> CheckedUrl:
    """`url` taken apart, if its form and all addresses it has now may be called.

    A name that doesn't resolve just now passes: a receiver may be set up later, and a hiccup of DNS is no fault of its.

    Raises:
        InvalidUrl: the form.
        EgressBlocked: the host, its port or one of its addresses.
    """
    checked = check_url(url, policy)
    if checked.is_address:
        return checked
    try:
        async with asyncio.timeout(timeout_s):
            await GuardedResolver(policy, lookup).resolve(checked.host, checked.port)
    except OSError:  # TimeoutError is one
        return checked
    return checked
