"""`arachne audit`: what operators and administrators did."""

from datetime import datetime
from typing import Annotated

import typer

from arachne.cli.options import DataDir, Json, load
from arachne.cli.output import print_json, print_rows

_COLUMNS = ["at", "who", "action", "account_id", "target", "request_id", "detail"]


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    app.command("audit")(audit)


def audit(
    account: Annotated[str | None, typer.Option(help="Id of the account it was done to.")] = None,
    action: Annotated[str | None, typer.Option(help="What was done, such as account.disable.")] = None,
    since: Annotated[datetime | None, typer.Option(help="From this moment on, UTC.")] = None,
    *,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many, of the newest.")] = 100,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Show what was done to accounts, clients, plans, tokens and keys, by whom and when; newest first."""
    from datetime import UTC

    from arachne.audit import Wanted, list_acts, view_act
    from arachne.cli.connection import session_on

    moment = None if since is None else since.replace(tzinfo=since.tzinfo or UTC)
    with session_on(load(data_dir)) as session:
        wanted = Wanted(account_id=account, action=action, since=moment)
        acts = [view_act(one) for one in list_acts(session, wanted, limit=limit)]
    if json:
        print_json([one.model_dump(mode="json") for one in acts])
        return
    rows = []
    for one in acts:
        actor = one.actor
        who = " ".join(filter(None, (actor.kind, actor.os_user, actor.command, actor.account_id, actor.subject)))
        detail = " ".join(f"{name}={value}" for name, value in one.detail.items())
        rows.append(one.model_dump() | {"who": who, "detail": detail})
    print_rows(rows, _COLUMNS, as_json=False)
