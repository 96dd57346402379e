"""An event loop in a thread of its own, for programs that have none.

anyio's portal would do, but that its thread keeps a program that forgot to close its client from ever ending, and that
a forked process waits for a thread it doesn't have.
"""

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from threading import Event, Lock, Thread, current_thread
from typing import Generic, TypeVar, cast

from arachne.client.connection import CLOSED
from arachne.errors import ClientError

T = TypeVar("T")
_END = object()
_ENDS_S = 10.0  # for which a program's end waits for what is still under way


class _Loop:
    """A running loop. Its thread keeps no program from ending; a process that is forked has none."""

    def __init__(self) -> None:
        self.streams: set[AsyncIterator[object]] = set()
        self.stopping = Event()
        self._ready = Future[asyncio.AbstractEventLoop]()
        self._pid = os.getpid()
        self._thread = Thread(target=self._serve, name="arachne-client", daemon=True)
        self._thread.start()
        self.loop = self._ready.result()

    @property
    def is_here(self) -> bool:
        """Whether this is the process it runs in."""
        return self._pid == os.getpid()

    @property
    def is_mine(self) -> bool:
        """Whether the caller runs on it."""
        return current_thread() is self._thread

    def stop(self) -> None:
        """End it, with the streams that somebody left open; tasks are cancelled."""
        self.stopping.set()
        if self.is_here and self._thread.is_alive():
            self.loop.call_soon_threadsafe(lambda: self.loop.create_task(self._wind_up()))
            if not self.is_mine:
                self._thread.join(_ENDS_S)

    async def close(self, stream: AsyncIterator[object]) -> None:
        """Let go of a stream."""
        self.streams.discard(stream)
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()

    async def _wind_up(self) -> None:
        for stream in list(self.streams):
            with suppress(RuntimeError):  # another thread waits for its next member, and is told
                await self.close(stream)
        self.loop.stop()

    def _serve(self) -> None:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            self._ready.set_result(loop)
            is_stopped = False
            while not is_stopped:
                try:
                    loop.run_forever()
                    is_stopped = True
                except (KeyboardInterrupt, SystemExit):  # asyncio lets them through besides
                    continue  # whoever waits for the task that raised it is told


class _Call(Generic[T]):
    """A coroutine on the loop; `outcome` is known when it has ended, also where it was cancelled."""

    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        self._function = function
        self._task: asyncio.Future[T] | None = None
        self.outcome = Future[T]()

    def begin(self) -> None:
        """Start it; on the loop's thread."""
        self._task = asyncio.ensure_future(self._function())
        self._task.add_done_callback(self._end)

    def cancel(self) -> None:
        """Cancel it, once, as asyncio does; on the loop's thread."""
        if self._task is not None:
            self._task.cancel()

    def _end(self, task: "asyncio.Future[T]") -> None:
        if task.cancelled():
            self.outcome.set_exception(CancelledError())
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())


class Portal:
    """Runs coroutines on the loop, which starts with the first; any thread may call."""

    def __init__(self) -> None:
        self._running: _Loop | None = None
        self._finalizer: weakref.finalize[[], Portal] | None = None
        self._closed = False
        self._lock = Lock()

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """What the coroutine gives; where the caller is interrupted, it is cancelled and has ended.

        Raises:
            ClientError: this client is closed, or of another process, or the caller runs on the loop itself.
        """
        call = _Call(function)
        with self._lock:
            if self._closed:
                raise ClientError(CLOSED)
            running = self._start()
            if running.stopping.is_set():  # as the program does
                raise ClientError(CLOSED)
            if not running.is_here:
                raise ClientError("This client was used before this process was forked. Make another here.")
            if running.is_mine:
                raise ClientError("on_progress can't wait for the client that calls it. Use another thread.")
            running.loop.call_soon_threadsafe(call.begin)
        try:
            return call.outcome.result()
        except BaseException as error:
            if not call.outcome.done():
                running.loop.call_soon_threadsafe(call.cancel)
                wait([call.outcome])
            elif running.stopping.is_set() and isinstance(error, CancelledError):  # by the program's end
                raise ClientError(CLOSED) from None
            raise

    def iterate(self, stream: AsyncIterator[T]) -> Iterator[T]:
        """The stream's members; it is closed when the iterator is, or this is."""
        try:
            while (one := self.run(lambda: self._next(stream))) is not _END:
                yield cast("T", one)
        finally:
            self._let_go(stream)

    def close(self, function: Callable[[], Awaitable[None]]) -> None:
        """Nothing of the loop is left; `function` is the last that ran on it."""
        if self._closed:
            return
        try:
            if self._running is not None and self._running.is_here:
                self.run(function)
        finally:
            with self._lock:
                self._closed = True
            if self._finalizer is not None:
                self._finalizer()

    def _start(self) -> _Loop:
        if self._running is None:
            self._running = _Loop()
            self._finalizer = weakref.finalize(self, self._running.stop)
        return self._running

    async def _next(self, stream: AsyncIterator[T]) -> T | object:
        assert self._running is not None
        self._running.streams.add(stream)
        return await anext(stream, _END)

    def _let_go(self, stream: AsyncIterator[object]) -> None:
        """Close it, where there still is a loop to do that on."""
        running, finalizer = self._running, self._finalizer
        if running is None or finalizer is None or not finalizer.alive or not running.is_here:
            return
        if running.is_mine:  # of a garbage collection there
            running.loop.create_task(running.close(stream))
        else:
            self.run(lambda: running.close(stream))
