"""The world outside the product, on loopback: webhook receivers that verify what they get, and a host of pictures.

Receivers are as receivers are: now and then one fails, and now and then one takes long.
"""

import asyncio
import json
from dataclasses import dataclass

from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError

from tests.standins.served import Served

FAILS_EVERY, LINGERS_EVERY = 7, 11  # requests
LINGERS_S = 2.0


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


class Outside(Served):
    """`secrets` are those of the receivers, by path; `pages` what the host shows."""

    def __init__(self) -> None:
        super().__init__()
        self.secrets: dict[str, str] = {}
        self.pages: dict[str, bytes] = {}
        self.arrivals: list[Arrival] = []
        self._asked = 0

    def url(self, path: str) -> str:
        """The URL of a path."""
        return f"http://127.0.0.1:{self.port}{path}"

    async def answer(self, request: web.Request) -> web.Response:
        """A page, or what a receiver says of a webhook."""
        if request.method == "POST":
            return await self._receive(request)
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
