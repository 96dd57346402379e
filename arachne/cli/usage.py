"""`arachne usage`: what was used, and what is due for a month; of one's own account, or for the operator of all."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arachne.cli.options import DataDir, Json, load, validate
from arachne.cli.output import print_csv, print_json, print_record, print_rows

if TYPE_CHECKING:
    from arachne.cli.clients import Answer

_EPILOG = """With ARACHNE_TOKEN, or ARACHNE_CLIENT_ID and ARACHNE_CLIENT_SECRET, the service at ARACHNE_URL is asked for
one's own account. Without them, or with --account or --data-dir, the operator sees any account in the database."""

app = typer.Typer(help="Show what was used, by day or model, and monthly statements.", epilog=_EPILOG)
Account = Annotated[str | None, typer.Option("--account", metavar="NAME", help="An account by name or id (operator).")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")]
_USED = ["images", "cached", "degraded", "gpu_seconds", "cpu_seconds", "bytes", "amount_due", "currency"]
_OWNER = ["account_id", "account"]
_LINE = ["plan_id", "kind", "unit_price", "vlm_price", "entries", "images", "amount"]


class Group(StrEnum):
    """What the sums are made by."""

    day = "day"
    model = "model"


@app.callback(invoke_without_command=True)
def usage(
    context: typer.Context,
    *,
    start: Annotated[str | None, typer.Option("--from", metavar="DATE", help="First day, UTC; the month's.")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="DATE", help="Day after the last one; tomorrow.")] = None,
    group: Annotated[Group, typer.Option(help="A row a day, or a row a model.")] = Group.day,
    account: Account = None,
    csv: Csv = False,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Show what was used from one day to before another, this month so far by default."""
    if context.invoked_subcommand is not None:
        return
    _check_form(csv=csv, json=json)
    query = {name: value for name, value in (("from", start), ("to", end), ("group", group.value)) if value}
    is_ours = _is_operator(account, data_dir)
    found = _sum_up(query, account, data_dir) if is_ours else _ask_sums(query)
    columns = [*(_OWNER if is_ours else ()), group.value, *_USED]
    rows = [{name: row["key" if name == group.value else name] for name in columns} for row in found]
    if csv:
        print_csv(rows, columns)
    else:
        print_rows(rows, columns, as_json=json)


@app.command()
def statement(
    *,
    month: Annotated[str | None, typer.Option(metavar="YYYY-MM", help="The month, UTC; this one if none.")] = None,
    account: Account = None,
    csv: Csv = False,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Show what is due for a month: a line for each kind of image and price, summed and rounded once."""
    _check_form(csv=csv, json=json)
    month = month or f"{datetime.now(UTC):%Y-%m}"
    told = _state(month, account, data_dir) if _is_operator(account, data_dir) else _ask_statement(month)
    lines = told.rows("lines")
    if json:
        print_json(told)
    elif csv:
        own = {name: told[name] for name in ("account_id", "month", "currency")}
        total = {"kind": "total", "images": told["images"], "amount": told["amount_due"]}
        listed = [{name: line[name] for name in _LINE} for line in lines]
        print_csv([own | line for line in [*listed, total]], [*own, *_LINE])
    else:
        print_rows(lines, _LINE, as_json=False)
        print_record({name: value for name, value in told.items() if name != "lines"}, as_json=False)


def _check_form(*, csv: bool, json: bool) -> None:
    if csv and json:
        raise typer.BadParameter("Either --csv or --json: one output has one form.")


def _is_operator(account: str | None, data_dir: Path | None) -> bool:
    from arachne.client import ClientSettings

    return account is not None or data_dir is not None or not ClientSettings.load().has_credentials


def _ask_sums(query: Mapping[str, str]) -> Sequence[Mapping[str, object]]:
    from arachne.cli.clients import open_client

    with open_client() as remote:
        report = remote.call("GET", "/api/usage", params=query)
    rows = report.rows("data")
    for row in rows:
        row["currency"] = report["currency"]
    return rows


def _sum_up(query: Mapping[str, str], account: str | None, data_dir: Path | None) -> Sequence[Mapping[str, object]]:
    from arachne.cli.connection import database_on
    from arachne.schemas.queries import UsageQuery
    from arachne.usage import find_owner, list_usage

    wanted = validate(UsageQuery, query)
    with database_on(load(data_dir)) as database:
        account_id = None if account is None else database.run(find_owner, account)
        rows = database.run(list_usage, account_id, start=wanted.start, end=wanted.end, group=wanted.group)
    return [row.model_dump(mode="json") for row in rows]


def _ask_statement(month: str) -> "Answer":
    from arachne.cli.clients import open_client

    with open_client() as remote:
        return remote.call("GET", "/api/usage/statement", params={"month": month})


def _state(month: str, account: str | None, data_dir: Path | None) -> "Answer":
    from arachne.cli.clients import Answer
    from arachne.cli.connection import database_on
    from arachne.schemas.queries import StatementQuery
    from arachne.statement import make_statement
    from arachne.usage import find_owner

    validate(StatementQuery, {"month": month})
    if account is None:
        raise typer.BadParameter("Name the account, or set ARACHNE_TOKEN for your own.", param_hint="--account")
    with database_on(load(data_dir)) as database:
        owner = database.run(find_owner, account)
        statement = database.run(make_statement, owner, date.fromisoformat(f"{month}-01"))
        return Answer(statement.model_dump(mode="json"))
