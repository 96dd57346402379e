"""The world outside the product, on loopback: webhook receivers that verify what they get, and a host of pictures.

Receivers are as receivers are: now and then one fails, and now and then one takes long.
"""

import asyncio
import json
import threading
from dataclasses import dataclass, field
from typing import Self

from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError

FAILS_EVERY, LINGERS_EVERY = 7, 11  # requests
LINGERS_S = 2.0
MAX_BODY_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Arrival:
    """One webhook as it came; `genuine` by the public library, at that moment."""

    path: str
    message_id: str
    body: bytes
    genuine: bool

    @property
    def about(self) -> tuple[str, str, str | None]:
        """What happened: the type, the job and, where it is about one, the image."""
        event = json.loads(self.body)
        data, kind = event["data"], event["type"]
        image_id = data["images"][0]["image_id"] if kind.startswith("image.") else None
        return kind, data["job_id"], image_id


@dataclass
class Outside:
    """Serves from `with` to its end. `secrets` are those of the receivers, by path; `pages` what the host shows."""

    secrets: dict[str, str] = field(default_factory=dict)
    pages: dict[str, bytes] = field(default_factory=dict)
    arrivals: list[Arrival] = field(default_factory=list)
    port: int = 0
    _asked: int = 0
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _ready: threading.Event = field(default_factory=threading.Event)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    def url(self, path: str) -> str:
        """The URL of a path."""
        return f"http://127.0.0.1:{self.port}{path}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        application.router.add_post("/{path:.*}", self._receive)
        application.router.add_get("/{path:.*}", self._show)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
        await site.start()
        self.port = int(runner.addresses[0][1])
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _show(self, request: web.Request) -> web.Response:
        page = self.pages.get(request.path)
        return web.Response(status=404) if page is None else web.Response(body=page, content_type="image/png")

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        secret = self.secrets.get(request.path)
        self._asked += 1
        number = self._asked
        if secret is None or number % FAILS_EVERY == 0:
            return web.Response(status=500)
        genuine = is_genuine(secret, request, body)
        self.arrivals.append(Arrival(request.path, request.headers["webhook-id"], body, genuine))
        if number % LINGERS_EVERY == 0:
            await asyncio.sleep(LINGERS_S)
        return web.Response(status=204)


def is_genuine(secret: str, request: web.Request, body: bytes) -> bool:
    """Whether the request is signed with this secret, and fresh."""
    try:
        Webhook(secret).verify(body, {name.lower(): value for name, value in request.headers.items()})
    except WebhookVerificationError:
        return False
    return True
