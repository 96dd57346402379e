"""`arachne api`, `arachne worker gpu`, `arachne worker io`, `arachne scheduler`: one part, one process."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from arachne.cli.options import DataDir, load
from arachne.settings import Settings

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from arachne.jobs.gauges import QueueGauges

worker = typer.Typer(help="Run a worker in this process.", no_args_is_help=True)
Host = Annotated[str | None, typer.Option(help="Address to listen on; ARACHNE_HOST when not given.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on; ARACHNE_PORT when not given.")]


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    app.command("api")(api)
    app.command("scheduler")(scheduler)
    app.add_typer(worker, name="worker")


@contextmanager
def _observed(settings: Settings, part: str) -> Iterator[Settings]:
    """The settings in force, for a part whose log, metrics and spans go where they say until the block ends."""
    from arachne import logs
    from arachne.embedded.instance import attach
    from arachne.exposition import OFFSETS, Disk, exposed
    from arachne.tracing import traced

    logs.configure(settings.log_level, settings.log_format)
    settings = attach(settings).require_base_url()
    with ExitStack() as stack:
        collectors: list[Collector] = [Disk(settings.data_dir)]
        if part == "scheduler":  # there is one
            collectors.append(stack.enter_context(closing(_queue_gauges(settings))))
        port = settings.metrics_port and settings.metrics_port + OFFSETS[part]
        stack.enter_context(exposed(settings.metrics_host, port, *collectors))
        stack.enter_context(traced(part))
        yield settings


def _queue_gauges(settings: Settings) -> "QueueGauges":
    from arachne.jobs.gauges import QueueGauges

    assert settings.database_url
    return QueueGauges(settings.database_url, settings.lease_s)


def api(host: Host = None, port: Port = None, data_dir: DataDir = None) -> None:
    """Serve the HTTP API in this process."""
    from arachne.http import server

    with _observed(load(data_dir, host=host, port=port), "api") as settings:
        server.serve(settings)


@worker.command("gpu")
def worker_gpu(data_dir: DataDir = None) -> None:
    """Read images in this process and its subprocesses."""
    from arachne.actors import gpu

    with _observed(load(data_dir), "worker gpu") as settings:
        gpu.run(settings)


@worker.command("io")
def worker_io(data_dir: DataDir = None) -> None:
    """Deliver webhooks and do maintenance in this process."""
    from arachne.actors import io

    with _observed(load(data_dir), "worker io") as settings:
        io.run(settings)


def scheduler(data_dir: DataDir = None) -> None:
    """Send the periodic wake-ups from this process."""
    from arachne.actors import schedule

    with _observed(load(data_dir), "scheduler") as settings:
        schedule.run(settings)
