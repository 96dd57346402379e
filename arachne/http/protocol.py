"""Bytes to requests: uvicorn's HTTP/1.1 protocol, with a time limit for heads and our form for what is no HTTP."""

import asyncio

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from arachne.http.exchange import Exchange
from arachne.http.problems import render
from arachne.ids import new_id

HEAD_TIMEOUT_S = 30.0
ABORT = "arachne.abort"  # among the scope's extensions: drops the connection with whatever waits to be sent


class HttpProtocol(H11Protocol):
    """One connection. A head that doesn't arrive in time ends it: half-sent heads need no token and hold a socket."""

    head_timeout_s = HEAD_TIMEOUT_S
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base
        """Wait for the first head."""
        super().connection_made(transport)
        app = self.app

        async def with_abort(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "extensions": {ABORT: transport.abort}}, receive, send)

        self.app = with_abort
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take in bytes; the clock runs from the first byte of a head to its last."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._head_timer is None:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the clock."""
        self._stop_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:  # which rule was broken, h11 doesn't tell
        """Answer what is no HTTP/1.1, in the form of every other error, and close."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            exchange = Exchange(new_id("req"))
            detail = "The request is no valid HTTP/1.1. Check its framing: Host, Content-Length, Transfer-Encoding."
            problem = render(exchange, 400, "malformed_request", "Malformed request", detail)
            headers = [*problem.raw_headers, (b"x-request-id", exchange.request_id.encode()), (b"connection", b"close")]
            answer = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
            for event in (answer, h11.Data(data=bytes(problem.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def on_response_complete(self) -> None:
        """A pipelined head may have begun already."""
        super().on_response_complete()
        if not self.transport.is_closing() and self.conn.trailing_data[0] and self.conn.their_state is h11.IDLE:
            self._await_head()

    def _await_head(self) -> None:
        self._stop_timer()
        self._head_timer = self.loop.call_later(self.head_timeout_s, self.transport.close)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
