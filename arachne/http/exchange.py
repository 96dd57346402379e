"""One request and its answer: the request's id, who asks, and the headers every answer to it carries."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arachne.http.limiter import Verdict
from arachne.ids import new_id
from arachne.standing import Credential

_KEPT_ID = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)


@dataclass(frozen=True)
class Caller:
    """Who asks, by a verified token. A user is (account, subject)."""

    account_id: str
    subject: str
    client_id: str
    scopes: frozenset[str]
    expires_at: datetime
    rates: Mapping[str, str]
    credential: Credential


@dataclass
class Exchange:
    """What becomes known of a request while it is answered."""

    request_id: str
    started_s: float = field(default_factory=time.perf_counter)
    headers: dict[str, str] = field(default_factory=dict)
    extra: dict[str, object] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    caller: Caller | None = None
    route: str = ""
    traceparent: str | None = None


def exchange_of(scope: Scope) -> Exchange:
    """The exchange this scope belongs to."""
    found = scope["state"]["exchange"]
    assert isinstance(found, Exchange)
    return found


def caller_of(connection: HTTPConnection) -> Caller:
    """Who asks; there is one on every route that needs a scope."""
    caller = exchange_of(connection.scope).caller
    assert caller is not None
    return caller


class ExchangeMiddleware:
    """Gives each request its id (an incoming one of acceptable form is kept) and each answer its common headers."""

    def __init__(self, app: ASGIApp, common_headers: Mapping[str, str]) -> None:
        self.app = app
        self.common_headers = common_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        incoming = Headers(scope=scope).get("x-request-id", "")
        exchange = Exchange(incoming if _KEPT_ID.fullmatch(incoming) else new_id("req"))
        scope.setdefault("state", {})["exchange"] = exchange

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = exchange.request_id
                for name, value in self.common_headers.items():
                    headers.setdefault(name, value)
                for name, value in exchange.headers.items():
                    headers[name] = value
            await send(message)

        await self.app(scope, receive, send_with_headers)
