"""`arachne token`: an access token for the operator. `revoke`: it is refused. `rotate-keys`: a new key signs."""

from typing import Annotated

import typer

from arachne.cli.options import DataDir, load
from arachne.cli.output import say


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    app.command("token")(token)
    app.command("revoke")(revoke)
    app.command("rotate-keys")(rotate_keys)


def token(
    name: Annotated[str, typer.Argument(help="Name of the account.")],
    scope: Annotated[list[str] | None, typer.Option(help="A scope; may be repeated. All but `admin` if none.")] = None,
    ttl: Annotated[float, typer.Option(min=1, max=86_400, help="Lifetime, seconds.")] = 3600,
    data_dir: DataDir = None,
) -> None:
    """Print an access token for an account."""
    from arachne.cli.connection import session_on
    from arachne.embedded.instance import attach
    from arachne.schemas.token import CLIENT_SCOPES
    from arachne.secretbox import open_secret_box
    from arachne.tokens import issue_operator_token

    settings = attach(load(data_dir), needs=["database_url"]).require_base_url()
    with session_on(settings) as session:
        box = open_secret_box(settings)
        issued = issue_operator_token(session, box, settings, name, scope or CLIENT_SCOPES, ttl)
    typer.echo(issued)


def revoke(
    token: Annotated[str, typer.Argument(help="The token, or its id (`jti`).")],
    issuer: Annotated[str | None, typer.Option(help="Who issued it; this service, if only an id is given.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Refuse one token from now on, in every process."""
    from arachne.cli.connection import session_on
    from arachne.embedded.instance import attach
    from arachne.standing import revoke_token
    from arachne.tokens import read_token

    settings = attach(load(data_dir), needs=["database_url"])
    jti = token
    if token.count(".") == 2:
        read = read_token(token)
        jti, issuer = read.jti or "", issuer or read.issuer
    with session_on(settings) as session:
        revoke_token(session, issuer or settings.require_base_url().base_url, jti)
    say(f"{jti} is revoked.")


def rotate_keys(
    withdraw: Annotated[bool, typer.Option(help="Refuse all tokens of the former keys, as after a leak.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Sign tokens with a new key from now on; those of the old one stay valid until they expire. Prints its id."""
    from arachne import signing_keys
    from arachne.cli.connection import session_on
    from arachne.embedded.instance import attach
    from arachne.secretbox import open_secret_box

    settings = attach(load(data_dir), needs=["database_url"])
    box = open_secret_box(settings)
    with session_on(settings) as session:
        kid = signing_keys.rotate_keys(session, box, withdraw=withdraw)
    typer.echo(kid)
