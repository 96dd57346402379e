"""The one way out: an aiohttp session that checks each URL by form and each socket by its final address."""

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial

import aiohttp
from yarl import URL

from arachne import __version__
from arachne.errors import EgressBlocked
from arachne.net.addresses import is_public, parse_address
from arachne.net.connection import Connector
from arachne.net.policy import EgressPolicy
from arachne.net.resolver import GuardedResolver, Lookup, look_up
from arachne.net.urls import CheckedUrl, check_url

USER_AGENT = f"Arachne/{__version__}"
_AddrInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[object, ...]]


@dataclass(slots=True)
class _Call:
    """The host being called, and whether a socket for it was opened to an address that isn't public."""

    host: str | None = None
    reached_private: bool = False


_call: ContextVar[_Call | None] = ContextVar("call", default=None)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A response whose body is unread. What an address that isn't public answered is shown to nobody."""

    response: aiohttp.ClientResponse
    from_private: bool


class _AddressRefusedError(EgressBlocked, OSError):
    """A refusal inside the connector, which carries only OSErrors out through its race of addresses."""


def guarded_session(
    policy: EgressPolicy,
    timeout_s: float,
    *,
    connect_timeout_s: float | None = None,
    max_connections: int = 100,
    lookup: Lookup = look_up,
) -> aiohttp.ClientSession:
    """A session that reaches only what `policy` allows; `timeout_s` is for a whole exchange.

    No proxies, cookies, DNS cache or decompression, and no kept connection: each request has its address checked.
    """
    return aiohttp.ClientSession(
        connector=Connector(
            resolver=GuardedResolver(policy, lookup),
            socket_factory=partial(_open_socket, policy),
            use_dns_cache=False,
            force_close=True,
            limit=max_connections,
        ),
        middlewares=(partial(_guard, policy),),
        timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=connect_timeout_s),
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
    )


def _open_socket(policy: EgressPolicy, info: _AddrInfo) -> socket.socket:
    """A socket for the final address, whatever the URL and the resolver said."""
    family, kind, protocol, _, sockaddr = info
    call = _call.get() or _Call()
    address, port = str(sockaddr[0]), int(str(sockaddr[1]))
    try:
        policy.require(call.host, address, port)
    except EgressBlocked as error:
        raise _AddressRefusedError(error.message) from None
    call.reached_private |= not is_public(parse_address(address))
    return socket.socket(family, kind, protocol)


async def _guard(
    policy: EgressPolicy, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """The check of the URL, for every request and redirect of the session."""
    checked = check_url(str(request.url), policy)
    call = _call.get() or _Call()
    call.host = None if checked.is_address else checked.host
    token = _call.set(call)
    try:
        return await send(request)
    except aiohttp.ClientConnectorError as error:
        if isinstance(error.os_error, _AddressRefusedError):
            raise EgressBlocked(error.os_error.message) from None
        raise
    finally:
        _call.reset(token)


@asynccontextmanager
async def open_exchange(
    session: aiohttp.ClientSession,
    method: str,
    checked: CheckedUrl,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> AsyncIterator[Exchange]:
    """One request and its answer, a redirect being an answer like any other.

    Raises:
        EgressBlocked: the address may not be called.
        aiohttp.ClientError: no or no proper answer.
        TimeoutError: the session's time ran out.
    """
    call = _Call()
    token = _call.set(call)
    try:
        url = URL(checked.url, encoded=True)
        response = await session.request(method, url, data=body, headers=headers, allow_redirects=False)
    finally:
        _call.reset(token)
    async with response:
        yield Exchange(response, call.reached_private)


async def read_bounded(response: aiohttp.ClientResponse, limit_bytes: int) -> tuple[bytes, bool]:
    """At most `limit_bytes` of the body as sent, and whether there was more."""
    chunks: list[bytes] = []
    missing = limit_bytes + 1
    while missing > 0 and (chunk := await response.content.read(missing)):
        chunks.append(chunk)
        missing -= len(chunk)
    body = b"".join(chunks)
    return body[:limit_bytes], len(body) > limit_bytes
