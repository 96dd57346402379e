"""The HTTP application: middleware from the outside in, and all routes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from arachne.http.draining import DrainingMiddleware
from arachne.http.exchange import ExchangeMiddleware
from arachne.http.hosts import HostsMiddleware
from arachne.http.observing import ObservingMiddleware
from arachne.http.parts import Parts, open_parts
from arachne.http.problems import ProblemsMiddleware
from arachne.http.routes import all_resources, undescribed_resources
from arachne.http.security import allow_origins, common_headers
from arachne.http.usage_log import UsageLogMiddleware
from arachne.settings import Settings


class App:
    """The API as an ASGI app. Its lifespan opens the parts."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        resources = all_resources()
        served = [*resources, *undescribed_resources()]
        self.starlette = Starlette(routes=[resource.route for resource in served], lifespan=self._lifespan)
        self.starlette.state.resources = resources
        self.starlette.router.redirect_slashes = False  # the redirect would be made from the Host header
        # Starlette's own outermost layer would answer errors in another form than ours, so its router is used alone.
        self._inner: ASGIApp = HostsMiddleware(self.starlette.router, settings.trusted_hosts)
        self._app: ASGIApp = self._inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the lifespan or one request."""
        scope["app"] = self.starlette
        if scope["type"] == "lifespan":
            await self.starlette.router(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def drain(self) -> None:
        """Let everything that only waits end now."""
        parts = getattr(self.starlette.state, "parts", None)
        if isinstance(parts, Parts):
            parts.watcher.drain()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """The app ready to serve, its parts closed at the end."""
        async with self._lifespan(self.starlette):
            yield

    @asynccontextmanager
    async def _lifespan(self, starlette: Starlette) -> AsyncIterator[None]:
        async with open_parts(self.settings) as parts:
            starlette.state.parts = parts
            logged = UsageLogMiddleware(ProblemsMiddleware(self._inner), parts.usage_log)
            open_to = allow_origins(logged, self.settings)
            self._app = DrainingMiddleware(
                ExchangeMiddleware(ObservingMiddleware(open_to), common_headers(self.settings))
            )
            yield


def create_app(settings: Settings) -> App:
    """The application for these settings; nothing is opened before its lifespan starts."""
    return App(settings)
