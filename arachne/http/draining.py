"""Refusals reach clients that are still sending: what is left of a body is read and thrown away, within bounds.

A server that closes with unread bytes resets the connection, and the client never sees why it was refused.
"""

import asyncio
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BYTES = 32 * 1024 * 1024
MAX_S = 5.0
IDLE_S = 1.0


class DrainingMiddleware:
    """Holds back the end of an answer until the request's body is over."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not _has_body(Headers(scope=scope)):
            await self.app(scope, receive, send)
            return
        body = _Body(receive)

        async def send_after_draining(message: Message) -> None:
            if body.over or message["type"] != "http.response.body" or message.get("more_body", False):
                await send(message)
                return
            await send({**message, "more_body": True})
            await body.drain()
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        await self.app(scope, body.receive, send_after_draining)


class _Body:
    """A request's body and whether all of it has come."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.over = False

    async def receive(self) -> Message:
        """The next message."""
        message = await self._receive()
        self.over = self.over or message["type"] != "http.request" or not message.get("more_body", False)
        return message

    async def drain(self) -> None:
        """Throw away what is left, as far as it goes."""
        left = MAX_BYTES
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_S):
                while not self.over and left > 0:
                    async with asyncio.timeout(IDLE_S):
                        left -= len((await self.receive()).get("body", b""))


def _has_body(headers: Headers) -> bool:
    """Whether a body is on its way; a client that waits for `100 Continue` sends none after a refusal."""
    if "expect" in headers:
        return False
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
