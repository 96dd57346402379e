"""An event loop in a thread of its own, for programs that have none."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from threading import Event, Lock
from typing import TypeVar, cast

from anyio import CancelScope
from anyio.from_thread import BlockingPortal, start_blocking_portal

from arachne.client.connection import CLOSED
from arachne.errors import ClientError

T = TypeVar("T")
_END = object()


class Portal:
    """Runs coroutines on the loop, which starts with the first; any thread may call."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._running: BlockingPortal | None = None
        self._closed = False
        self._starting = Lock()

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """What the coroutine gives; where the caller is interrupted, it is cancelled and has ended."""
        if self._closed:
            raise ClientError(CLOSED)
        with self._starting:
            if self._running is None:
                self._running = self._stack.enter_context(start_blocking_portal("asyncio", name="arachne-client"))
        ended = Event()
        future = self._running.start_task_soon(_attend, function, ended)
        try:
            return future.result()
        except BaseException:
            if future.cancel():
                ended.wait()
            raise

    def iterate(self, stream: AsyncIterator[T]) -> Iterator[T]:
        """The stream's members; it is closed when the iterator is."""
        try:
            while (one := self.run(lambda: _next(stream))) is not _END:
                yield cast("T", one)
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None and not self._closed:
                self.run(close)

    def close(self, function: Callable[[], Awaitable[None]]) -> None:
        """Nothing of the loop is left; `function` is the last that ran on it."""
        if self._closed:
            return
        try:
            if self._running is not None:
                self.run(function)
        finally:
            self._closed = True
            self._stack.close()


async def _attend(function: Callable[[], Awaitable[T]], ended: Event) -> T:
    """Its task is cancelled once, as asyncio does it; a portal cancels whatever cleans up as well."""
    task = asyncio.ensure_future(function())
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        with CancelScope(shield=True):
            await asyncio.wait({task})
        raise
    finally:
        ended.set()
    return task.result()


async def _next(stream: AsyncIterator[T]) -> T | object:
    return await anext(stream, _END)
