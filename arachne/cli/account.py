"""`arachne account …`: who may use this service."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from arachne.cli.options import DataDir, Json, load
from arachne.cli.output import print_record, print_rows, say
from arachne.schemas.token import CLIENT_SCOPES, SCOPES, Scope
from arachne.settings import Settings

if TYPE_CHECKING:
    from arachne.accounts import NewAccount

app = typer.Typer(help="Create, list, disable and erase accounts.", no_args_is_help=True)
client = typer.Typer(help="Clients of accounts.", no_args_is_help=True)
app.add_typer(client, name="client")
Name = Annotated[str, typer.Argument(help="Name of the account.")]
Scopes = Annotated[
    list[str] | None, typer.Option("--scope", help="A scope; may be repeated. All but `admin` if none is given.")
]
Shell = Annotated[
    bool, typer.Option("--shell", help="Print lines for a shell to eval: ARACHNE_CLIENT_ID, _CLIENT_SECRET and _URL.")
]
ClientId = Annotated[str, typer.Argument(help="Id of the client.")]
Issuer = Annotated[str | None, typer.Option(help="Issuer of ARACHNE_TRUSTED_ISSUERS whose tokens speak for it.")]
Claim = Annotated[str | None, typer.Option(help="What the issuer's account claim says in them.")]


@app.command()
def create(
    name: Name,
    plan: Annotated[str, typer.Option(help="Its plan; `arachne plan list` shows all.")] = "default",
    *,
    issuer: Issuer = None,
    claim: Claim = None,
    scope: Scopes = None,
    json: Json = False,
    shell: Shell = False,
    data_dir: DataDir = None,
) -> None:
    """Create an account with one client. The secret is shown this once."""
    from arachne import accounts
    from arachne.cli.connection import session_on
    from arachne.embedded.instance import public_url

    settings, scopes = load(data_dir), _scopes(scope)
    url = public_url(settings)
    with session_on(settings) as session:
        made = accounts.create_account(session, name, plan_id=plan, scopes=scopes)
        if issuer is not None or claim is not None:
            accounts.bind_account(session, made.account_id, issuer, claim)
    _warn_of_stranger(settings, issuer)
    _show(made, url, as_json=json, for_shell=shell)


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
                "plan_id": account.plan_id,
                "issuer": account.issuer,
                "claim": account.claim,
                "created_at": account.created_at,
                "disabled_at": account.disabled_at,
            }
            for account in accounts.list_accounts(session)
        ]
    print_rows(rows, ["account_id", "name", "plan_id", "issuer", "claim", "created_at", "disabled_at"], as_json=json)


@app.command()
def disable(name: Name, data_dir: DataDir = None) -> None:
    """Disable an account: its tokens stop working at once, its data stays."""
    from arachne import accounts
    from arachne.cli.connection import session_on

    with session_on(load(data_dir)) as session:
        accounts.disable_account(session, name)
    say(f"{name} is disabled.")


@app.command()
def plan(
    name: Name,
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="Name of the plan; `arachne plan list` shows all.")],
    data_dir: DataDir = None,
) -> None:
    """Give an account another plan, for images finished from now on. What it owes already stays."""
    from arachne import plans
    from arachne.cli.connection import session_on

    with session_on(load(data_dir)) as session:
        plans.assign_plan(session, name, plan)
    say(f"{name} has the plan {plan}.")


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
    from arachne.cli.connection import database_on, operator
    from arachne.jobs.account_erasure import erase_account
    from arachne.storage import open_storage

    if not yes:
        say(f"This erases the account {name} and all it has, for good. Type yes to go on (or pass --yes):")
        if sys.stdin.readline().strip() != "yes":
            say("Nothing was erased.")
            raise typer.Exit(1)
    settings = load(data_dir)
    with database_on(settings) as database:
        erased = erase_account(database, open_storage(settings), settings, name, actor=operator())
    print_record(asdict(erased), as_json=json)


@app.command()
def enable(name: Name, data_dir: DataDir = None) -> None:
    """Let a disabled account in again."""
    from arachne import accounts
    from arachne.cli.connection import session_on

    with session_on(load(data_dir)) as session:
        accounts.disable_account(session, name, enable=True)
    say(f"{name} is enabled.")


@app.command()
def bind(name: Name, issuer: Issuer = None, claim: Claim = None, data_dir: DataDir = None) -> None:
    """Let another issuer's tokens speak for an account; without --issuer and --claim, none any more."""
    from arachne import accounts
    from arachne.cli.connection import session_on

    settings = load(data_dir)
    with session_on(settings) as session:
        accounts.bind_account(session, name, issuer, claim)
    _warn_of_stranger(settings, issuer)
    say(f"{name} is bound to {claim!r} of {issuer}." if issuer else f"{name} is bound to no other issuer.")


def _show(made: "NewAccount", url: str | None, *, as_json: bool, for_shell: bool) -> None:
    if for_shell:
        lines = {"CLIENT_ID": made.client_id, "CLIENT_SECRET": made.client_secret} | ({"URL": url} if url else {})
        for name, value in lines.items():
            sys.stdout.write(f"export ARACHNE_{name}={shlex.quote(value)}\n")
    else:
        print_record(asdict(made), as_json=as_json)
    say("Keep the client secret: it is not shown again.")


def _warn_of_stranger(settings: Settings, issuer: str | None) -> None:
    if issuer is not None and issuer not in {one.issuer for one in settings.trusted_issuers}:
        say(f"ARACHNE_TRUSTED_ISSUERS, as read here, has no issuer {issuer!r}: its tokens are refused until it does.")


def _scopes(given: list[str] | None) -> Sequence[Scope]:
    """The scopes a client is to have.

    Raises:
        typer.BadParameter: one of them doesn't exist.
    """
    unknown = sorted(set(given or ()) - set(SCOPES))
    if unknown:
        raise typer.BadParameter(
            f"There is no scope {unknown[0]!r}. Scopes: {', '.join(SCOPES)}.", param_hint="--scope"
        )
    return [scope for scope in SCOPES if scope in given] if given else CLIENT_SCOPES


@client.command("create")
def create_client(
    name: Name,
    client_name: Annotated[str, typer.Option("--name", help="What the client is for.")] = "default",
    *,
    scope: Scopes = None,
    json: Json = False,
    shell: Shell = False,
    data_dir: DataDir = None,
) -> None:
    """Give an account a further client. The secret is shown this once."""
    from arachne import accounts
    from arachne.cli.connection import session_on
    from arachne.embedded.instance import public_url

    settings, scopes = load(data_dir), _scopes(scope)
    url = public_url(settings)
    with session_on(settings) as session:
        made = accounts.create_client(session, name, client_name, scopes=scopes)
    _show(made, url, as_json=json, for_shell=shell)


@client.command("list")
def list_clients(name: Name, json: Json = False, data_dir: DataDir = None) -> None:
    """List an account's clients."""
    from arachne import accounts
    from arachne.cli.connection import session_on

    columns = ["client_id", "name", "scopes", "created_at", "disabled_at", "secret_old_until"]
    with session_on(load(data_dir)) as session:
        account_id = accounts.find_account(session, name).account_id
        rows = [one.model_dump(include=set(columns)) for one in accounts.list_clients(session, account_id)]
    if not json:
        rows = [row | {"scopes": " ".join(row["scopes"])} for row in rows]
    print_rows([{name: row[name] for name in columns} for row in rows], columns, as_json=json)


@client.command("disable")
def disable_client(client_id: ClientId, data_dir: DataDir = None) -> None:
    """Disable a client: its tokens stop working at once."""
    from arachne import accounts
    from arachne.cli.connection import session_on

    with session_on(load(data_dir)) as session:
        accounts.disable_client(session, client_id)
    say(f"{client_id} is disabled.")


@client.command("enable")
def enable_client(client_id: ClientId, data_dir: DataDir = None) -> None:
    """Let a disabled client in again."""
    from arachne import accounts
    from arachne.cli.connection import session_on

    with session_on(load(data_dir)) as session:
        accounts.disable_client(session, client_id, enable=True)
    say(f"{client_id} is enabled.")


@client.command()
def rotate(
    client_id: ClientId,
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
