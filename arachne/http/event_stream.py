"""A job's events as they happen, in the form of server-sent events.

Source: WHATWG HTML, section 9.2, server-sent events.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from arachne.http.departure import stay
from arachne.http.exchange import Caller
from arachne.http.protocol import ABORT
from arachne.http.standing_watch import StandingWatch
from arachne.http.waiting import JobWatcher, Sight, Subscription
from arachne.webhooks.history import JobEvent
from arachne.webhooks.outbox import TERMINAL_EVENTS

MEDIA_TYPE = "text/event-stream"
COMMENT_S = 15.0
SEND_S = 30.0  # a reader that takes nothing for so long is let go; it may resume
_COMMENT = b":\n\n"


class _StuckReaderError(Exception):
    """The client reads nothing."""


class EventStream(Response):
    """The events of a job after one, to its terminal one or for as long as the caller's token is good.

    A comment where there is none for long.
    """

    media_type = MEDIA_TYPE

    def __init__(
        self, watcher: JobWatcher, standing: StandingWatch, caller: Caller, job_id: str, *, after: int
    ) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})  # proxies are not to hold events back
        del self.headers["content-length"]
        self._watcher = watcher
        self._standing = standing
        self._caller = caller
        self._job_id = job_id
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        with self._watcher.subscribe(self._job_id, self._after) as subscription:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                there = scope["method"] == "HEAD" or await stay(receive, self._send_until_end(subscription, send))
            except _StuckReaderError:
                abort: Callable[[], None] | None = scope.get("extensions", {}).get(ABORT)
                if abort is not None:
                    abort()
                    await asyncio.sleep(0)  # the server learns of it before we return, and expects no end of the answer
                return
        if there:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_until_end(self, subscription: Subscription, send: Send) -> None:
        left_s = (self._caller.expires_at - datetime.now(UTC)).total_seconds()
        try:
            async with asyncio.timeout(left_s) as limit:

                def end() -> None:
                    if not limit.expired():
                        limit.reschedule(asyncio.get_running_loop().time())

                with self._standing.watch(self._caller.credential, end):
                    await self._send_all(subscription, send)
        except TimeoutError:
            if not limit.expired():
                raise

    async def _send_all(self, subscription: Subscription, send: Send) -> None:
        clock = asyncio.get_running_loop().time
        quiet_until_s = clock() + COMMENT_S
        while True:
            sight = await self._watcher.next_sight(subscription, max(quiet_until_s - clock(), 0))
            if self._watcher.draining or (sight is not None and _is_over(sight)):
                return
            events = sight.events if sight is not None else ()
            for event in events:
                await _send(send, render(event))
                subscription.after = event.sequence
                if event.type in TERMINAL_EVENTS:
                    return
            if events:
                subscription.missed = True  # there may be more than a look brings
            elif clock() < quiet_until_s:
                continue
            else:
                await _send(send, _COMMENT)
            quiet_until_s = clock() + COMMENT_S


def render(event: JobEvent) -> bytes:
    """The event as a client's parser takes it; a body is JSON and has no line breaks."""
    return f"event: {event.type}\nid: {event.sequence}\ndata: ".encode() + event.body + b"\n\n"


def _is_over(sight: Sight) -> bool:
    """Whether nothing more comes: the job is gone, or finished with all its events told or past their keeping."""
    return sight.stand is None or (sight.stand.finished and not sight.events)


async def _send(send: Send, part: bytes) -> None:
    """Nothing, once the client has taken most of what came before.

    Raises:
        _StuckReaderError: it hasn't, for long.
    """
    try:
        async with asyncio.timeout(SEND_S) as limit:
            await send({"type": "http.response.body", "body": part, "more_body": True})
    except TimeoutError:
        if limit.expired():
            raise _StuckReaderError from None
        raise
