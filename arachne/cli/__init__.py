"""The command `arachne`. Its parts are imported when they run, so that `--help` answers at once.

Exit codes: 0 done · 1 refused or failed, the reason on stderr · 2 wrong usage · 3 this machine, its settings or the way
to the service need mending, how on stderr · 130 interrupted. Nothing but data goes to stdout.
"""

import sys

import typer

from arachne import __version__
from arachne.cli import (
    account,
    audit,
    cache,
    doctor,
    extract,
    migrate,
    parts,
    plan,
    stdout,
    tokens,
    up,
    usage,
    webhooks,
)
from arachne.cli.output import complain
from arachne.errors import ArachneError, OutputLost, SetupError

FAILED, USAGE, SETUP, INTERRUPTED = 1, 2, 3, 130

app = typer.Typer(
    name="arachne",
    help="Reads screenshots: text, structure and descriptions over HTTP, with signed webhooks.",
    epilog="Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 set-up needs mending, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
up.register(app)
parts.register(app)
migrate.register(app)
tokens.register(app)
audit.register(app)
extract.register(app)
doctor.register(app)
app.add_typer(account.app, name="account")
app.add_typer(cache.app, name="cache")
app.add_typer(plan.app, name="plan")
app.add_typer(usage.app, name="usage")
app.add_typer(webhooks.app, name="webhooks")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Print the version."),
) -> None:
    """Options of the command itself."""


def main() -> None:
    """Run the command line; errors of ours become a line on stderr and an exit code."""
    try:
        with stdout.checked():
            app(prog_name="arachne")  # also where it runs as `python -m arachne`
    except SetupError as error:
        complain(error)
        sys.exit(SETUP)
    except OutputLost as error:
        if not error.is_closed:
            complain(error)
        sys.exit(FAILED)
    except ArachneError as error:
        complain(error)
        sys.exit(FAILED)
    except UnicodeEncodeError as error:
        complain(_not_text(error))
        sys.exit(USAGE)
    except ModuleNotFoundError as error:
        complain(_lacking(error))
        sys.exit(SETUP)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _not_text(error: UnicodeEncodeError) -> SetupError:
    """Which word of the command has bytes that are no text: files may be called so, and nothing else.

    Raises:
        UnicodeEncodeError: none has, and it is a fault of ours.
    """
    for word in sys.argv[1:]:
        try:
            word.encode()
        except UnicodeEncodeError:
            return SetupError(f"{word!r} is no text, as only names of files may be.")
    raise error


def _lacking(error: ModuleNotFoundError) -> SetupError:
    """What to install, where the command was installed for clients alone.

    Raises:
        ModuleNotFoundError: the module is one of ours, and lacks for another reason.
    """
    if error.name is None or error.name.partition(".")[0] == "arachne":
        raise error
    return SetupError(
        f"The service's packages are not installed, {error.name} among them. Install them with "
        "`pip install 'arachne-vision[server]'`, or [server,embedded] to have PostgreSQL and Redis come too."
    )
