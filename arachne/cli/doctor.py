"""`arachne doctor`: what this machine has, what it lacks, and how to mend that."""

from dataclasses import asdict

import typer

from arachne.cli.options import DataDir, Json, load
from arachne.cli.output import print_json

_MARKS = {"ok": "ok     ", "warning": "warning", "failed": "FAILED "}


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    app.command("doctor")(doctor)


def doctor(json: Json = False, data_dir: DataDir = None) -> None:
    """Check every dependency, language and connection. Exits with 1 if one fails."""
    from arachne.cli.checks import examine

    found = []
    for check in examine(load(data_dir)):
        found.append(check)
        if not json:
            typer.echo(f"{_MARKS[check.state]}  {check.name:<18} {check.found}")
            if check.mend:
                typer.echo(f"{'':<28} {check.mend}")
    if json:
        print_json([asdict(check) for check in found])
    if any(check.state == "failed" for check in found):
        raise typer.Exit(1)
