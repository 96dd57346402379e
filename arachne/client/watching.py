"""Waiting for jobs: by their event stream, else by long polls, else by polls; each only where the one before fails.

The stream is left where it is refused, where it is no stream, where it breaks again and again before it says anything,
and where something on the way holds it back: the job has moved on, or the service's regular sign of life is due, and
nothing has come. Long polls are left where they fail one after the other, as behind a proxy that waits less long.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import IntEnum

from arachne.client.connection import Call, Connection
from arachne.client.paths import job_path
from arachne.client.refusals import read_model, read_retry_after
from arachne.client.stream import EventReader, StreamUnfitError
from arachne.errors import ArachneError, MalformedRequest, RequestError, Unavailable, Unreachable
from arachne.schemas.job import JobView

LONG_POLL_S = 30
_MAX_FAILED_POLLS = 2
_POLL_S, _MAX_POLL_S = 1.0, 30.0
DONE = frozenset({"completed", "failed", "cancelled"})


class Way(IntEnum):
    """How jobs are waited for."""

    STREAM = 0
    LONG_POLL = 1
    POLL = 2


@dataclass(frozen=True)
class Sight:
    """What is known of a job: places in it of images that are done, and whether all are."""

    done: frozenset[int]
    finished: bool


@dataclass
class Watched:
    """A job that is waited for, and what was seen of it."""

    job_id: str
    done: set[int] = field(default_factory=set)
    etag: str | None = None
    last_event: str | None = None

    def take(self, job: JobView) -> Sight:
        """Note what the job's resource says."""
        self.done.update(image.index for image in job.images if image.status in DONE)
        return Sight(frozenset(self.done), job.finished)


_SILENCE_S = 20.0  # the service says every 15 s that it lives


class Watcher:
    """Waits for jobs of one client; what the way to the service is fit for is learnt once."""

    def __init__(self, connection: Connection, *, quiet_s: float = 5.0) -> None:
        self._connection = connection
        self._quiet_s = quiet_s
        self.way = Way.STREAM

    async def follow(self, job: JobView) -> AsyncGenerator[Sight, None]:
        """What is known of the job, whenever that is more than before, to its end.

        Raises:
            ArachneError: it can't be seen any more.
        """
        watched = Watched(job.job_id)
        sight = watched.take(job)
        yield sight
        while not sight.finished:
            sights = self._stream(watched) if self.way is Way.STREAM else self._poll(watched)
            async with aclosing(sights):
                async for sight in sights:
                    yield sight
                    if sight.finished:
                        return

    async def look(self, watched: Watched, wait_s: int = 0, *, insist: bool = True) -> tuple[Sight | None, float]:
        """What the job's resource says, None where that is nothing new; and when to ask again, seconds."""
        call = Call(
            "GET",
            job_path(watched.job_id),
            params={"wait": wait_s} if wait_s else None,
            headers={"If-None-Match": watched.etag} if watched.etag else {},
            idle_s=wait_s + 30.0,
            insist=insist,
        )
        response = await self._connection.send(call)
        again_s = min(max(read_retry_after(response) or _POLL_S, 0.1), _MAX_POLL_S)
        if response.status_code == 304:
            return None, again_s
        watched.etag = response.headers.get("ETag")
        return watched.take(read_model(JobView, response)), again_s

    async def _stream(self, watched: Watched) -> AsyncGenerator[Sight, None]:
        reader = EventReader(self._connection, f"{job_path(watched.job_id)}/events", silence_s=_SILENCE_S)
        reader.last_event = watched.last_event
        seen = 0  # images the resource told of before the stream did
        async with reader:
            while True:
                try:
                    async with asyncio.timeout(self._quiet_s):
                        event = await reader.get()
                except TimeoutError:
                    if seen > len(reader.images):
                        self.way = max(self.way, Way.LONG_POLL)
                        return
                    sight, _ = await self.look(watched)
                    seen = len(watched.done)
                    if sight is not None:
                        yield sight
                    continue
                except StreamUnfitError:
                    self.way = max(self.way, Way.LONG_POLL)
                    return
                watched.last_event = reader.last_event
                watched.done |= reader.images
                yield Sight(frozenset(watched.done), event.finished)

    async def _poll(self, watched: Watched) -> AsyncGenerator[Sight, None]:
        failed = 0
        while True:
            long = self.way is Way.LONG_POLL
            try:
                sight, again_s = await self.look(watched, LONG_POLL_S if long else 0, insist=not long)
            except (Unreachable, Unavailable, RequestError) as fault:
                if not long or _is_final(fault):
                    raise
                failed += 1
                if failed == _MAX_FAILED_POLLS:
                    self.way = Way.POLL
                await asyncio.sleep(min(fault.retry_after_s or 0.0, _MAX_POLL_S))
                continue
            failed = 0
            if sight is not None:
                yield sight
            if not long or sight is None:  # something on the way may answer at once that nothing is new
                await asyncio.sleep(again_s)


def _is_final(fault: ArachneError) -> bool:
    """Whether another way of asking would be told the same."""
    return isinstance(fault, RequestError) and not fault.retryable and not isinstance(fault, MalformedRequest)
