"""A job's server-sent events, read on through cuts."""

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import httpx2

from arachne.client.connection import Call, Connection
from arachne.client.patience import Patience
from arachne.client.refusals import read_mapping
from arachne.errors import ArachneError, Unavailable, UnexpectedAnswer, Unreachable
from arachne.strict_json import parse

MEDIA_TYPE = "text/event-stream"
_MAX_CUTS = 3  # in a row, each before anything came
_WAIT_S = 30.0
_IMAGE_EVENTS = frozenset({"image.completed", "image.failed"})
_TERMINAL_EVENTS = frozenset({"job.completed", "job.partial", "job.failed", "job.cancelled"})


class StreamUnfitError(Exception):
    """The events don't come this way."""


@dataclass(frozen=True)
class Event:
    """Something happened to the job; `finished`: it was the last."""

    finished: bool


class EventReader:
    """Reads a job's events in a task of its own, and again from after the last one where the connection is cut.

    `images` are the places in the job of the images that the events told are done.
    """

    def __init__(self, connection: Connection, path: str, *, silence_s: float) -> None:
        self._connection = connection
        self._path = path
        self._silence_s = silence_s
        self._events: asyncio.Queue[Event | StreamUnfitError] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self.last_event: str | None = None
        self.images: set[int] = set()

    async def __aenter__(self) -> Self:
        self._task = self._connection.start(self._read_on())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def get(self) -> Event:
        """The next event.

        Raises:
            StreamUnfitError: none will come this way.
        """
        got = await self._events.get()
        if isinstance(got, StreamUnfitError):
            raise got
        return got

    async def _read_on(self) -> None:
        try:
            cuts, patience = 0, Patience(_WAIT_S)
            while True:
                try:
                    heard = await self._read()
                except (Unreachable, Unavailable) as fault:
                    heard, reason = False, fault
                else:
                    reason = Unreachable("The stream of events was cut.")
                if heard:
                    cuts, patience = 0, Patience(_WAIT_S)
                    continue
                cuts += 1
                await patience.wait(reason, last=cuts == _MAX_CUTS)
        except (StreamUnfitError, ArachneError) as error:
            self._events.put_nowait(StreamUnfitError(str(error)))

    async def _read(self) -> bool:
        """Whether anything came before the stream ended."""
        heard = False
        headers = {"Accept": MEDIA_TYPE, "Cache-Control": "no-cache"}
        if self.last_event is not None:
            headers["Last-Event-ID"] = self.last_event
        call = Call("GET", self._path, headers=headers, idle_s=self._silence_s, insist=False)
        async with self._connection.open(call, streamed=True) as response:
            if response.status_code == 204:
                self._events.put_nowait(Event(finished=True))
                await asyncio.Event().wait()  # nothing more comes; whoever waits for it ends this task
            try:
                async for event in httpx2.EventSource(response):
                    heard = True
                    self._take(event)
            except httpx2.SSEError as error:
                raise StreamUnfitError(str(error)) from error
            except httpx2.ReadTimeout as error:
                raise StreamUnfitError("Not even a sign of life comes.") from error
            except httpx2.HTTPError:
                return heard
        return heard

    def _take(self, event: "httpx2.ServerSentEvent") -> None:
        self.last_event = event.id or self.last_event
        try:
            data = read_mapping(read_mapping(parse(event.data)).get("data"))
        except ValueError as error:
            raise UnexpectedAnswer("An event of the stream is no JSON.") from error
        rows = data.get("images")
        if event.event in _IMAGE_EVENTS and isinstance(rows, list):
            self.images |= {row["index"] for row in rows if isinstance(row, dict) and isinstance(row.get("index"), int)}
        self._events.put_nowait(Event(event.event in _TERMINAL_EVENTS))
