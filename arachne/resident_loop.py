"""The loop of an engine that stays in a process: it takes up what is due, woken or by its own tick, and ends tidily."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress

from arachne.complaints import Complaints
from arachne.errors import Unavailable

PLACES = 256
LAST_PLACES = 64  # of these, kept for those who have hardly anything under way
TICK_S = 2.0
_REFILL_S = 0.01
_STOP_GRACE_S = 5.0


class ResidentLoop:
    """Bounds what is under way and looks for more at every tick, when something ends, and when woken."""

    def __init__(self, log: logging.Logger, waits: str, *, at_once: int, tick_s: float = TICK_S) -> None:
        """`waits` is what the log says while the database is away; `at_once` bounds one claim."""
        self._log = log
        self._complaints = Complaints(log)
        self._waits = waits
        self._at_once = at_once
        self._tick_s = tick_s
        self._under_way: set[asyncio.Task[object]] = set()
        self._signal = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def wake(self) -> None:
        """Look now; from any thread, at any time."""
        self.call(self._signal.set)

    def call(self, work: Callable[[], object]) -> None:
        """`work` done on the loop while it runs; from any thread, at any time."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has just been closed: nothing is left to do
                loop.call_soon_threadsafe(work)

    def start(self, work: Coroutine[object, object, object]) -> "asyncio.Task[object]":
        """A task that takes a place until it ends, upon which the loop looks for more."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._end)
        return task

    async def run(self, stop: asyncio.Event, look: Callable[[], Awaitable[object]]) -> None:
        """`look` over and over until `stop` is set; what is under way then, or at any other end, has seconds to end."""
        self._loop = asyncio.get_running_loop()
        stopping = asyncio.create_task(stop.wait())
        stopping.add_done_callback(lambda _: self._signal.set())
        try:
            while not stop.is_set():
                self._signal.clear()
                await look()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._signal.wait(), self._tick_s)
                await asyncio.sleep(_REFILL_S)  # one claim serves the wake-ups of these milliseconds
        finally:
            self._loop = None
            stopping.cancel()
            await self._drain()

    async def settle(self, look: Callable[[], Awaitable[object]]) -> None:
        """Nothing more is due and nothing is under way."""
        try:
            self._signal.set()
            while self._under_way or self._signal.is_set():
                await self._signal.wait()  # what ends while a claim is made leaves room that it didn't count
                self._signal.clear()
                await look()
        finally:
            await self._drain()

    async def fill(self, claim: Callable[[int, bool], Awaitable[tuple[int, bool]]], *, at_start: bool) -> None:
        """Claim into the free places, going once round all who have something due.

        `claim` takes a limit and whether only the last places are left, starts what it claims and returns its number
        and whether it came to the end of the round; `at_start` tells whether the next one begins a round.
        """
        ends_reached = 0
        while (free := PLACES - len(self._under_way)) > 0 and ends_reached < 2:
            nearly_full = free <= LAST_PLACES
            limit = min(free if nearly_full else free - LAST_PLACES, self._at_once)
            claimed, at_end = await claim(limit, nearly_full)
            if claimed < limit and at_end:
                ends_reached += 2 if at_start else 1
            at_start = at_end

    async def survive(self, work: Awaitable[object]) -> None:
        """`work` is done or its fault is logged: the next look tries again, and the engine stays."""
        try:
            await work
        except Unavailable as error:
            self._complaints.tell(self._waits, error)
        except Exception:
            self._log.exception("failed here, and is tried again")

    def _end(self, task: "asyncio.Task[object]") -> None:
        self._under_way.discard(task)
        self._signal.set()

    async def _drain(self) -> None:
        if self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=_STOP_GRACE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
