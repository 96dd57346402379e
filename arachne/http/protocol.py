"""Bytes to requests: uvicorn's HTTP/1.1 protocol, with bounds on who holds a connection and for how long."""

import asyncio
from collections.abc import Mapping
from typing import ClassVar

import h11
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from arachne.http.exchange import Exchange
from arachne.http.problems import render
from arachne.http.security import HEADERS
from arachne.ids import new_id

HEAD_TIMEOUT_S = 30.0
READER_TIMEOUT_S = 60.0
RETRY_S = 5
SPARE_CONNECTIONS = 256  # beyond the limit, for being told so; further ones are dropped without a word
ABORT = "arachne.abort"  # among the scope's extensions: drops the connection with whatever waits to be sent


class HttpProtocol(H11Protocol):
    """One connection. Half-sent heads and answers that nobody takes need no token and hold a socket: they end it."""

    head_timeout_s: ClassVar[float] = HEAD_TIMEOUT_S
    reader_timeout_s: ClassVar[float] = READER_TIMEOUT_S
    max_connections: ClassVar[int] = 2000
    common_headers: ClassVar[Mapping[str, str]] = HEADERS
    _head_timer: asyncio.TimerHandle | None = None
    _reader_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base
        """Wait for the first head."""
        super().connection_made(transport)
        others = len(self.connections) - 1
        if others >= self.max_connections + SPARE_CONNECTIONS:
            transport.abort()
            return
        app = self.app if others < self.max_connections else self._refuse

        async def with_abort(scope: Scope, receive: Receive, send: Send) -> None:
            served = app if _is_understood(scope) else self._refuse_as_malformed
            await served({**scope, "extensions": {ABORT: transport.abort}}, receive, send)

        self.app = with_abort
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take in bytes; the clock runs from the first byte of a head to its last."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_head_timer()
        elif self._head_timer is None:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the clocks."""
        self._stop_head_timer()
        self._stop_reader_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Much waits to be sent: its reader has to take some of it."""
        super().pause_writing()
        self._await_reader()

    def send_400_response(self, msg: str) -> None:  # which rule was broken, h11 doesn't tell
        """Answer what is no HTTP/1.1, in the form of every other error, and close."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            problem = self._malformed()
            answer = h11.Response(status_code=400, headers=problem.raw_headers, reason=b"Bad Request")
            for event in (answer, h11.Data(data=bytes(problem.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def on_response_complete(self) -> None:
        """The answer may wait to be read, also where the connection is closed then; another head may have begun."""
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self._await_reader()
        if not self.transport.is_closing() and self.conn.trailing_data[0] and self.conn.their_state is h11.IDLE:
            self._await_head()

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        detail = "Too many connections are open here; try again in a moment."
        problem = self._problem(503, "unavailable", "Unavailable", detail)
        problem.headers["Retry-After"] = str(RETRY_S)
        await problem(scope, receive, send)

    async def _refuse_as_malformed(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._malformed()(scope, receive, send)

    def _malformed(self) -> Response:
        detail = "The request is no valid HTTP/1.1. Check its framing: Host, Content-Length, Transfer-Encoding."
        return self._problem(400, "malformed_request", "Malformed request", detail)

    def _problem(self, status: int, code: str, title: str, detail: str) -> Response:
        """A problem that no request has come to the application for, and that ends the connection."""
        exchange = Exchange(new_id("req"))
        problem = render(exchange, status, code, title, detail)
        problem.headers.update({**self.common_headers, "X-Request-Id": exchange.request_id, "Connection": "close"})
        return problem

    def _await_head(self) -> None:
        self._stop_head_timer()
        self._head_timer = self.loop.call_later(self.head_timeout_s, self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _await_reader(self) -> None:
        self._stop_reader_timer()
        left_bytes = self.transport.get_write_buffer_size()
        self._reader_timer = self.loop.call_later(self.reader_timeout_s, self._check_reader, left_bytes)

    def _check_reader(self, left_bytes: int) -> None:
        """Go on waiting for a reader that is slow; let go of one that took nothing."""
        now_bytes = self.transport.get_write_buffer_size()
        if now_bytes >= left_bytes > 0:
            self.transport.abort()
        elif now_bytes:
            self._await_reader()

    def _stop_reader_timer(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None


def _is_understood(scope: Scope) -> bool:
    """Whether this is HTTP/1, and every proxy in front sees the end of the request where we see it.

    Source: RFC 9110, section 2.5: another major version means another protocol. RFC 9112, section 6.1:
    Transfer-Encoding beside Content-Length, or of a client that knows only HTTP/1.0, may end elsewhere for others.
    """
    version, names = scope["http_version"], {name for name, _ in scope["headers"]}
    is_ambiguous = b"transfer-encoding" in names and (b"content-length" in names or version == "1.0")
    return version.startswith("1.") and not is_ambiguous


def bounded_protocol(common_headers: Mapping[str, str], max_connections: int) -> type[HttpProtocol]:
    """The protocol of one server."""

    class BoundedProtocol(HttpProtocol):
        """One of its connections."""

    BoundedProtocol.common_headers = common_headers
    BoundedProtocol.max_connections = max_connections
    return BoundedProtocol
