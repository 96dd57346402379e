"""One try to fetch an image: its bytes kept beside memory as they come, each redirect checked like the URL itself."""

import asyncio
import hashlib
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urldefrag, urljoin

import aiohttp

from arachne.errors import ImageTooLarge
from arachne.fetching.faults import AnswerRejectedError
from arachne.net.client import open_exchange
from arachne.net.policy import EgressPolicy
from arachne.net.urls import check_url
from arachne.spool import Spool

MAX_REDIRECTS = 3
CHUNK_BYTES = 64 * 1024
_REDIRECTS = {301, 302, 303, 307, 308}
_ENCODED = b' "<>^`{|}'
_HEADERS = {"Accept": "image/*"}


@dataclass(frozen=True, slots=True)
class Download:
    """What came: its hash and size. The bytes are in the spool."""

    sha256: str
    size_bytes: int


async def download(
    session: aiohttp.ClientSession, policy: EgressPolicy, url: str, spool: Spool, *, max_bytes: int, timeout_s: float
) -> Download:
    """The image at `url`, in `spool`, after at most three redirects and `timeout_s` in all.

    Raises:
        EgressBlocked, InvalidUrl: the URL or a redirect may not be called.
        AnswerRejectedError: the answer is no image.
        ImageTooLarge: it has more than `max_bytes`.
        aiohttp.ClientError: no or no proper answer.
        TimeoutError: it took too long.
        Unavailable: the bytes can't be kept.
    """
    async with asyncio.timeout(timeout_s):
        for _ in range(MAX_REDIRECTS + 1):
            async with open_exchange(session, "GET", check_url(url, policy), headers=_HEADERS) as exchange:
                response = exchange.response
                if response.status not in _REDIRECTS:
                    return await _receive(response, spool, max_bytes)
                url = _follow(url, response)
    hint = f"the URL redirects more than {MAX_REDIRECTS} times. Give the address it leads to."
    raise AnswerRejectedError("too many redirects", hint)


def _follow(url: str, response: aiohttp.ClientResponse) -> str:
    location = response.headers.get("Location")
    if not location:
        raise _rejected(response, "the URL's server redirects without saying whereto.")
    try:
        return urldefrag(urljoin(url, _as_browsers(location))).url
    except ValueError:
        raise _rejected(response, "the URL's server redirects to something that is no URL.") from None


def _as_browsers(location: str) -> str:
    """The address, percent-encoded where browsers do so: spaces, some marks and raw UTF-8. A host never passes so."""
    raw = location.strip().encode("utf-8", "surrogateescape")
    return "".join(f"%{byte:02X}" if byte >= 0x80 or byte in _ENCODED else chr(byte) for byte in raw)


async def _receive(response: aiohttp.ClientResponse, spool: Spool, max_bytes: int) -> Download:
    if response.status != HTTPStatus.OK:  # others that succeed have a part of it, or nothing
        raise _rejected(response, _hint(response.status))
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in {"", "identity"}:
        hint = "the URL's server sends the image compressed although it was asked not to."
        raise AnswerRejectedError("http", hint, status=response.status)
    if response.content_length is not None and response.content_length > max_bytes:
        raise _too_large(max_bytes)
    digest = hashlib.sha256()
    async for chunk in response.content.iter_chunked(CHUNK_BYTES):
        if spool.size_bytes + len(chunk) > max_bytes:
            raise _too_large(max_bytes)
        digest.update(chunk)
        spool.add(chunk)
    return Download(digest.hexdigest(), spool.size_bytes)


def _hint(status: int) -> str:
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "the URL's server failed. Try again later."
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return "the URL's server doesn't give the image to us. It has to do so without a sign-in."
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return "the URL's server wants fewer requests. Try again later."
    return "the URL's server doesn't give the image. Check the URL."


def _rejected(response: aiohttp.ClientResponse, hint: str) -> AnswerRejectedError:
    after = response.headers.get("Retry-After")
    return AnswerRejectedError(f"http {response.status}", hint, status=response.status, retry_after=after)


def _too_large(max_bytes: int) -> ImageTooLarge:
    return ImageTooLarge(f"The image has more than {max_bytes:,} bytes. Compress or crop it.")
