"""Webhook receivers on loopback: healthy ones, ones that hang until released, and ones that fail half the time."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from aiohttp import web

HEALTHY, HANGING, FAILING = "healthy", "hanging", "failing"


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request, with header names in lower case and when its body had been read."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    at_s: float

    @property
    def message_id(self) -> str:
        """The event's id."""
        return self.headers["webhook-id"]


@dataclass
class Hooks:
    """Answers at `/healthy/…`, `/hanging/…` and `/failing/…`, and keeps every request in `arrivals`."""

    arrivals: list[Arrival] = field(default_factory=list)
    port: int = 0
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _ready: threading.Event = field(default_factory=threading.Event)
    _released: asyncio.Event = field(default_factory=asyncio.Event)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _asked: Counter[str] = field(default_factory=Counter)

    def url(self, path: str) -> str:
        """Where to send to, such as `healthy/3`."""
        return f"http://127.0.0.1:{self.port}/{path}"

    def release(self) -> None:
        """What hangs answers from now on."""
        self._loop.call_soon_threadsafe(self._released.set)

    def hold(self) -> None:
        """What hangs hangs again."""
        self._loop.call_soon_threadsafe(self._released.clear)

    def received(self, behaviour: str) -> set[tuple[str, str]]:
        """Path and event of all that has come to receivers of this behaviour."""
        found = list(self.arrivals)
        return {(one.path, one.message_id) for one in found if one.path.startswith(f"/{behaviour}/")}

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        application = web.Application()
        application.router.add_post("/{path:.*}", self._answer)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
        await site.start()
        self.port = int(runner.addresses[0][1])
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = await request.read()
        self.arrivals.append(Arrival(request.path, headers, body, time.time()))
        behaviour = request.path.split("/")[1]
        if behaviour == HANGING:
            await self._released.wait()
        self._asked[request.path] += 1
        failed = behaviour == FAILING and self._asked[request.path] % 2 == 1
        return web.Response(status=500 if failed else 204)
