"""Each request as operators see it: a log that names it, a count, and a span that its job's work continues."""

import time
from contextlib import ExitStack

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arachne import logs, metrics, tracing
from arachne.http.exchange import exchange_of


class ObservingMiddleware:
    """Counts every request by its route's template, and binds its id to whatever is logged for it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange, status = exchange_of(scope), metrics.CLIENT_LEFT
        given = tracing.accept(Headers(scope=scope).get("traceparent"))

        async def watch(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        with ExitStack() as stack:
            stack.enter_context(logs.bound(request_id=exchange.request_id))
            span = stack.enter_context(tracing.span("request", given, kind="server"))
            exchange.traceparent = span.traceparent or given
            try:
                await self.app(scope, receive, watch)
            except Exception:
                status = 500
                raise
            finally:
                span.note(method=scope["method"], route=exchange.route, status=status)
                seconds = time.perf_counter() - exchange.started_s
                metrics.count_request(scope["method"], exchange.route, status, seconds)
