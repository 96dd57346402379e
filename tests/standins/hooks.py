"""Webhook receivers on loopback: healthy ones, ones that hang until released, and ones that fail half the time."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from tests.standins.served import Served

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


class Hooks(Served):
    """Answers at `/healthy/…`, `/hanging/…` and `/failing/…`, and keeps every request in `arrivals`."""

    def __init__(self) -> None:
        super().__init__()
        self.arrivals: list[Arrival] = []
        self._released = asyncio.Event()
        self._asked: Counter[str] = Counter()

    def url(self, path: str) -> str:
        """Where to send to, such as `healthy/3`."""
        return f"http://127.0.0.1:{self.port}/{path}"

    def release(self) -> None:
        """What hangs answers from now on."""
        self.soon(self._released.set)

    def hold(self) -> None:
        """What hangs hangs again."""
        self.soon(self._released.clear)

    def received(self, behaviour: str) -> set[tuple[str, str]]:
        """Path and event of all that has come to receivers of this behaviour."""
        found = list(self.arrivals)
        return {(one.path, one.message_id) for one in found if one.path.startswith(f"/{behaviour}/")}

    def __exit__(self, *_: object) -> None:
        self.release()
        super().__exit__()

    async def answer(self, request: web.Request) -> web.Response:
        """As the path says."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = await request.read()
        self.arrivals.append(Arrival(request.path, headers, body, time.time()))
        behaviour = request.path.split("/")[1]
        if behaviour == HANGING:
            await self._released.wait()
        self._asked[request.path] += 1
        failed = behaviour == FAILING and self._asked[request.path] % 2 == 1
        return web.Response(status=500 if failed else 204)
