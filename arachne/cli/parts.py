"""`arachne api`, `arachne worker gpu`, `arachne worker io`, `arachne scheduler`: one part, one process."""

from typing import Annotated

import typer

from arachne import logs
from arachne.cli.options import DataDir, load
from arachne.settings import Settings

worker = typer.Typer(help="Run a worker in this process.", no_args_is_help=True)
Host = Annotated[str | None, typer.Option(help="Address to listen on; ARACHNE_HOST when not given.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on; ARACHNE_PORT when not given.")]


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    app.command("api")(api)
    app.command("scheduler")(scheduler)
    app.add_typer(worker, name="worker")


def _prepare(settings: Settings) -> Settings:
    from arachne.embedded.instance import attach

    logs.configure(settings.log_level)
    return attach(settings).require_base_url()


def api(host: Host = None, port: Port = None, data_dir: DataDir = None) -> None:
    """Serve the HTTP API in this process."""
    from arachne.http import server

    server.serve(_prepare(load(data_dir, host=host, port=port)))


@worker.command("gpu")
def worker_gpu(data_dir: DataDir = None) -> None:
    """Read images in this process and its subprocesses."""
    from arachne.actors import gpu

    gpu.run(_prepare(load(data_dir)))


@worker.command("io")
def worker_io(data_dir: DataDir = None) -> None:
    """Deliver webhooks and do maintenance in this process."""
    from arachne.actors import io

    io.run(_prepare(load(data_dir)))


def scheduler(data_dir: DataDir = None) -> None:
    """Send the periodic wake-ups from this process."""
    from arachne.actors import schedule

    schedule.run(_prepare(load(data_dir)))
