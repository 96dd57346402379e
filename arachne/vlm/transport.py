"""The HTTP client models are asked through: straight to the server, with bounds on time and size."""

from collections.abc import AsyncIterator
from typing import Final

import httpx

from arachne.errors import VlmAnswerRejected, VlmFailed

MOST_BYTES: Final = 4 * 1024 * 1024  # of one response; 1,500 tokens take about a tenth, each in a line of its own
CONNECT_S: Final = 5.0


def bounded_transport() -> httpx.AsyncBaseTransport:
    """A transport whose responses end with an error once they are too large."""
    return _Bounded(httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=None, max_keepalive_connections=32)))


def timeouts(timeout_s: float) -> httpx.Timeout:
    """Bounds of a single wait; the whole exchange has its own."""
    return httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))


class _Bounded(httpx.AsyncBaseTransport):
    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.headers["Accept-Encoding"] = "identity"
        response = await self._transport.handle_async_request(request)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            await response.aclose()  # a little of it could unpack to any size
            raise VlmFailed("The model server compresses its answers though asked not to. Look at the proxy before it.")
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _BoundedStream(response.stream)
        return response

    async def aclose(self) -> None:
        await self._transport.aclose()


class _BoundedStream(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MOST_BYTES
        async for piece in self._stream:
            left -= len(piece)
            if left < 0:
                raise VlmAnswerRejected(f"the answer is larger than {MOST_BYTES} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
