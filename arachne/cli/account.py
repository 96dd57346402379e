"""`arachne account …`: who may use this service."""

from dataclasses import asdict
from typing import Annotated

import typer

from arachne.cli.options import DataDir, Json, load
from arachne.cli.output import print_record, print_rows, say

app = typer.Typer(help="Create, list, disable and erase accounts.", no_args_is_help=True)
client = typer.Typer(help="Clients of accounts.", no_args_is_help=True)
app.add_typer(client, name="client")
Name = Annotated[str, typer.Argument(help="Name of the account.")]


@app.command()
def create(name: Name, json: Json = False, data_dir: DataDir = None) -> None:
    """Create an account with one client. The secret is shown this once."""
    from arachne import accounts
    from arachne.cli.connection import session_on

    with session_on(load(data_dir)) as session:
        made = accounts.create_account(session, name)
    print_record(asdict(made), as_json=json)
    say("Keep the client secret: it is not shown again.")


@app.command("list")
def list_all(json: Json = False, data_dir: DataDir = None) -> None:
    """List the accounts."""
    from arachne import accounts
    from arachne.cli.connection import session_on

    with session_on(load(data_dir)) as session:
        rows = [
            {
                "account_id": account.account_id,
                "name": account.name,
                "created_at": account.created_at,
                "disabled_at": account.disabled_at,
            }
            for account in accounts.list_accounts(session)
        ]
    print_rows(rows, ["account_id", "name", "created_at", "disabled_at"], as_json=json)


@app.command()
def disable(name: Name, data_dir: DataDir = None) -> None:
    """Disable an account: its tokens stop working at once, its data stays."""
    from arachne import accounts
    from arachne.cli.connection import session_on

    with session_on(load(data_dir)) as session:
        accounts.disable_account(session, name)
    say(f"{name} is disabled.")


@app.command()
def erase(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Erase without asking.")] = False,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Erase an account and all it has: jobs, images, results, events, endpoints, clients, logs. It can't be undone.

    The ledger's amounts stay under the account's id. Run it again if it was interrupted.
    """
    from arachne.cli.connection import database_on
    from arachne.jobs.account_erasure import erase_account
    from arachne.storage import open_storage

    if not yes:
        typer.confirm(f"Erase the account {name} and all it has, for good?", abort=True, err=True)
    settings = load(data_dir)
    with database_on(settings) as database:
        erased = erase_account(database, open_storage(settings), settings, name)
    print_record(asdict(erased), as_json=json)


@client.command()
def rotate(
    client_id: Annotated[str, typer.Argument(help="Id of the client.")],
    grace: Annotated[float, typer.Option(min=0, help="Seconds the old secret goes on working.")] = 86_400,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Give a client a new secret. It is shown this once; the old one works on for a while."""
    from arachne import accounts
    from arachne.cli.connection import session_on

    with session_on(load(data_dir)) as session:
        made = accounts.rotate_client(session, client_id, grace_s=grace)
    print_record(asdict(made), as_json=json)
    say("Keep the client secret: it is not shown again.")
