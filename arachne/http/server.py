"""The API process: uvicorn around the application, without an access log (that is the usage log's part)."""

import uvicorn

from arachne.http.app import create_app
from arachne.settings import Settings

KEEP_ALIVE_S = 75
SHUTDOWN_S = 20
BACKLOG = 1024
MAX_HEADER_BYTES = 64 * 1024


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; requests under way are finished first.

    Raises:
        SystemExit: the address is taken, or a part could not be opened.
    """
    uvicorn.Server(configure(settings)).run()


def configure(settings: Settings) -> uvicorn.Config:
    """The server's configuration."""
    return uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http="h11",
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
