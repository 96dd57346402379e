"""A webhook receiver on loopback that keeps what it gets."""

import queue
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from standardwebhooks import Webhook

from tests.standins.served import Served


@dataclass(frozen=True)
class Delivery:
    """One request."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    def verified(self, secret: str) -> dict[str, Any]:
        """The event, if the signature is right by another implementation."""
        event: dict[str, Any] = Webhook(secret).verify(self.body, dict(self.headers))
        return event


class Receiver(Served):
    """Answers 204 to every POST."""

    def __init__(self) -> None:
        super().__init__()
        self._queues: dict[str, queue.Queue[Delivery]] = {}

    def url(self, name: str) -> str:
        """A URL of its own for one test."""
        self._queues[f"/{name}"] = queue.Queue()
        return f"http://127.0.0.1:{self.port}/{name}"

    def next(self, name: str, timeout_s: float = 60) -> Delivery:
        """The next delivery at that URL."""
        return self._queues[f"/{name}"].get(timeout=timeout_s)

    def taken(self, name: str) -> list[Delivery]:
        """All deliveries at that URL that nobody has asked for yet."""
        waiting = self._queues[f"/{name}"]
        return [waiting.get_nowait() for _ in range(waiting.qsize())]

    async def answer(self, request: web.Request) -> web.Response:
        """204, once it is kept."""
        body = await request.read()
        if waiting := self._queues.get(request.path_qs):
            headers = {name.lower(): value for name, value in request.headers.items()}
            waiting.put(Delivery(request.path_qs, headers, body))
        return web.Response(status=204)
