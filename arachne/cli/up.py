"""`arachne up`: everything on one machine, in one terminal."""

from typing import Annotated

import typer

from arachne.cli.options import DataDir, load


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    app.command("up")(up)


def up(
    host: Annotated[str | None, typer.Option(help="Address to listen on; ARACHNE_HOST when not given.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of the API; 0 takes a free one.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Run everything here: PostgreSQL and Redis unless their URLs are set, API, workers, scheduler.

    Prints `ready http://127.0.0.1:PORT` once requests are served. Ctrl-C or SIGTERM stops all of it.
    """
    from arachne.cli.house import keep_house

    keep_house(load(data_dir, host=host, port=port))
