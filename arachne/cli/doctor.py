"""`arachne doctor`: what this machine has, what it lacks, and how to mend that."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from arachne.cli.options import DataDir, Json, load
from arachne.cli.output import print_json

if TYPE_CHECKING:
    from arachne.cli.finding import Check
    from arachne.settings import Settings

_EPILOG = "Exit codes: 0 nothing failed, warnings or not, 1 a check failed, 2 wrong usage, 3 a setting can't be read."
_MARKS = {"ok": "ok     ", "warning": "warning", "failed": "FAILED "}


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    app.command("doctor", epilog=_EPILOG)(doctor)


def doctor(json: Json = False, data_dir: DataDir = None) -> None:
    """Check every dependency, language and connection, and the way to the service; says how to mend what is missing."""
    found = []
    for check in _examine(data_dir):
        found.append(check)
        if not json:
            typer.echo(f"{_MARKS[check.state]}  {check.name:<18} {check.found}")
            if check.mend:
                typer.echo(f"{'':<28} {check.mend}")
    if json:
        print_json([asdict(check) for check in found])
    if any(check.state == "failed" for check in found):
        raise typer.Exit(1)


def _examine(data_dir: Path | None) -> "Iterator[Check]":
    """What a service needs, where its packages are installed, then what a client needs."""
    from arachne.cli.client_checks import examine_client
    from arachne.cli.finding import Check
    from arachne.client import ClientSettings

    settings = load(data_dir)
    try:
        from arachne.cli.checks import examine
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "arachne":
            raise
        mend = "Clients need no more; where a service is to run: pip install 'arachne-vision[server,embedded]'."
        yield Check("server packages", "warning", f"not installed, {error.name} among them", mend)
        running_here = None
    else:
        yield from examine(settings)
        running_here = _find_running(settings)
    yield from examine_client(ClientSettings.load(), running_here)


def _find_running(settings: "Settings") -> str | None:
    """The URL of the service that runs on this data folder."""
    from arachne.embedded.instance import find
    from arachne.errors import SetupError

    try:
        return find(settings.data_dir).public_url
    except SetupError:  # none does, which the check `service` says
        return None
