"""A server of the tests' own on loopback, in a thread of its own."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

from aiohttp import web

MAX_BODY_BYTES = 32 * 1024 * 1024


class Served(ABC):
    """Answers every request by `answer` at a free `port`, from `with` to its end."""

    def __init__(self) -> None:
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loopback")

    @abstractmethod
    async def answer(self, request: web.Request) -> web.StreamResponse:
        """What the server says."""

    def soon(self, call: Callable[[], object]) -> None:
        """Call it in the server's thread."""
        self._loop.call_soon_threadsafe(call)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.soon(self._stop.set)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        application.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
        await site.start()
        self.port = int(runner.addresses[0][1])
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()
