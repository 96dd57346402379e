"""The API process: uvicorn around the application, without an access log (that is the usage log's part)."""

import asyncio
import ctypes
import logging
import resource
from socket import socket
from types import FrameType

import uvicorn

from arachne import tracing
from arachne.http.app import App, create_app
from arachne.http.protocol import SPARE_CONNECTIONS, bounded_protocol
from arachne.http.security import common_headers
from arachne.settings import Settings

log = logging.getLogger(__name__)
KEEP_ALIVE_S = 75
OTHER_FILES = 512  # databases, uploads on disk, libraries
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
    allow_files(settings.max_connections + SPARE_CONNECTIONS + OTHER_FILES)
    app = create_app(settings)
    DrainingServer(configure(app, settings), app).run()


def limit_arenas() -> None:
    """Few heaps for many threads, where the C library is glibc.

    Threads write the uploads; a heap for each keeps what it once held, and a hundred uploads take twice the memory.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, ARENAS)


def allow_files(number: int) -> None:
    """As many open files as that, or as the system lets us: connections are files, and few are allowed by default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < number:
        log.warning(
            "%d files may be open here, %d are needed for ARACHNE_MAX_CONNECTIONS: lower it or raise the limit",
            hard, number,
        )  # fmt: skip
        number = hard
    if soft != resource.RLIM_INFINITY and soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))


class DrainingServer(uvicorn.Server):
    """Ends long polls at once when asked to stop, so that stopping doesn't wait for them."""

    def __init__(self, config: uvicorn.Config, app: App) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop after the requests under way."""
        self._app.drain()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Finish the requests under way; uvicorn ends the process by the signal itself, so this is the last chance."""
        await super().shutdown(sockets)
        await asyncio.to_thread(tracing.flush)


def configure(app: App, settings: Settings) -> uvicorn.Config:
    """The server's configuration."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=bounded_protocol(common_headers(settings), settings.max_connections),
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
