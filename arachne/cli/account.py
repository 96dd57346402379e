"""`arachne account …`: who may use this service."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import typer
from sqlmodel import Session

from arachne import accounts
from arachne.cli.options import DataDir, Json, load
from arachne.cli.output import print_record, print_rows, say
from arachne.database import Database
from arachne.embedded.instance import attach
from arachne.settings import Settings

app = typer.Typer(help="Create, list and disable accounts.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Name of the account.")]


@contextmanager
def session_on(settings: Settings) -> Iterator[Session]:
    """A transaction on the schema of record of the running service."""
    url = attach(settings).database_url
    assert url
    database = Database(url, pool_size=1)
    try:
        with database.transaction() as transaction:
            yield transaction.session
    finally:
        database.close()


@app.command()
def create(name: Name, json: Json = False, data_dir: DataDir = None) -> None:
    """Create an account with one client. The secret is shown this once."""
    with session_on(load(data_dir)) as session:
        made = accounts.create_account(session, name)
    print_record(asdict(made), as_json=json)
    say("Keep the client secret: it is not shown again.")


@app.command("list")
def list_all(json: Json = False, data_dir: DataDir = None) -> None:
    """List the accounts."""
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
    with session_on(load(data_dir)) as session:
        accounts.disable_account(session, name)
    say(f"{name} is disabled.")
