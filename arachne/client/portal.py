"""An event loop in a thread of its own, for programs that have none."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from threading import Lock
from typing import TypeVar, cast

from anyio.from_thread import BlockingPortal, start_blocking_portal

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
        """What the coroutine gives; where the caller is interrupted, the coroutine is cancelled."""
        if self._closed:
            raise ClientError("This client is closed. Make another.")
        with self._starting:
            if self._running is None:
                self._running = self._stack.enter_context(start_blocking_portal("asyncio", name="arachne-client"))
        future = self._running.start_task_soon(function)
        try:
            return future.result()
        except BaseException:
            future.cancel()
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


async def _next(stream: AsyncIterator[T]) -> T | object:
    return await anext(stream, _END)
