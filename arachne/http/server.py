"""The API process: uvicorn around the application, without an access log (that is the usage log's part)."""

import ctypes
from types import FrameType

import uvicorn

from arachne.http.app import App, create_app
from arachne.http.protocol import HttpProtocol
from arachne.settings import Settings

KEEP_ALIVE_S = 75
SHUTDOWN_S = 20
BACKLOG = 1024
M_ARENA_MAX, ARENAS = -8, 2  # malloc.h of glibc
MAX_HEADER_BYTES = 32 * 1024  # besides what a single read of the socket brings


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; requests under way are finished first.

    Raises:
        SystemExit: the address is taken, or a part could not be opened.
    """
    limit_arenas()
    app = create_app(settings)
    DrainingServer(configure(app, settings), app).run()


def limit_arenas() -> None:
    """Few heaps for many threads, where the C library is glibc.

    Threads write the uploads; a heap for each keeps what it once held, and a hundred uploads take twice the memory.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, ARENAS)


class DrainingServer(uvicorn.Server):
    """Ends long polls at once when asked to stop, so that stopping doesn't wait for them."""

    def __init__(self, config: uvicorn.Config, app: App) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop after the requests under way."""
        self._app.drain()
        super().handle_exit(sig, frame)


def configure(app: App, settings: Settings) -> uvicorn.Config:
    """The server's configuration."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=HttpProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=True,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies or None,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
