"""What accounts used, summed over the ledger: the same entries that are billed."""

from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

from sqlalchemy import text

from arachne.accounts import find_account
from arachne.database import Transaction
from arachne.errors import Conflict, NotFound
from arachne.schemas.usage import AccountUsage, Grouping, Usage, UsageGroup, UsageReport

_KEYS: dict[Grouping, str] = {
    "day": "to_char(entry.at AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
    "model": "entry.model_version",
}
_SUMS = """
SELECT entry.account_id, account.name AS account, entry.currency, {key} AS key, sum(units) AS images,
       coalesce(sum(units) FILTER (WHERE cached), 0) AS cached,
       coalesce(sum(units) FILTER (WHERE degraded), 0) AS degraded,
       round(sum(gpu_s)::numeric, 3) AS gpu_seconds, round(sum(cpu_s)::numeric, 3) AS cpu_seconds,
       sum(size_bytes) AS bytes, sum(amount) AS amount_due
FROM usage_entry entry LEFT JOIN account USING (account_id)
WHERE entry.at >= :start AND entry.at < :end AND {whose} GROUP BY 1, 2, 3, 4 ORDER BY 2 NULLS LAST, 1, 3, 4
"""
_ONE, _ALL = "entry.account_id = :account_id", "CAST(:account_id AS text) IS NULL"
_CURRENCY = text("""
SELECT coalesce((SELECT currency FROM usage_entry WHERE account_id = :account_id ORDER BY at DESC LIMIT 1),
                (SELECT currency FROM account JOIN plan USING (plan_id) WHERE account_id = :account_id), 'USD')
""")

_KNOWN = text("SELECT EXISTS (SELECT 1 FROM usage_entry WHERE account_id = :account_id)")


def report_usage(
    transaction: Transaction,
    account_id: str,
    *,
    start: date | None = None,
    end: date | None = None,
    group: Grouping = "day",
) -> UsageReport:
    """The account's use from `start` to before `end`; by default this month so far, today included.

    Raises:
        Conflict: the ledger has entries in several currencies.
    """
    first, last = span(start, end)
    rows = _sum(transaction, account_id, first, last, group)
    groups = [UsageGroup(**row.model_dump(include=set(UsageGroup.model_fields))) for row in rows]
    return UsageReport(
        start=first,
        end=last,
        currency=one_currency(transaction, account_id, {row.currency for row in rows}),
        group=group,
        total=_total(groups),
        data=groups,
    )


def list_usage(
    transaction: Transaction,
    account_id: str | None = None,
    *,
    start: date | None = None,
    end: date | None = None,
    group: Grouping = "day",
) -> list[AccountUsage]:
    """The use of this account, or of every one by name, erased ones last. The span is as for `report_usage`."""
    return _sum(transaction, account_id, *span(start, end), group)


def find_owner(transaction: Transaction, name: str) -> str:
    """Id of the account of that name or id; of an erased one, whose entries stay, only by its id.

    Raises:
        NotFound: there is none, and never was.
    """
    try:
        return find_account(transaction.session, name).account_id
    except NotFound:
        if transaction.session.scalar(_KNOWN, {"account_id": name}):
            return name
        raise


def span(start: date | None, end: date | None) -> tuple[date, date]:
    """The first day, and the day after the last one."""
    today = datetime.now(UTC).date()
    last = end or today + timedelta(days=1)
    return start or min(today, last - timedelta(days=1)).replace(day=1), last


def one_currency(transaction: Transaction, account_id: str, found: AbstractSet[str]) -> str:
    """The currency of sums over entries in these; before the account is charged anything, that of its plan.

    Raises:
        Conflict: they are several. No command makes it so.
    """
    if len(found) > 1:
        raise Conflict(f"The ledger is in {', '.join(sorted(found))} there, and has no one sum. Ask the operator.")
    return next(iter(found), None) or str(transaction.session.scalar(_CURRENCY, {"account_id": account_id}))


def midnight(day: date) -> datetime:
    """The day's first moment, UTC."""
    return datetime.combine(day, time.min, UTC)


def _sum(
    transaction: Transaction, account_id: str | None, first: date, last: date, group: Grouping
) -> list[AccountUsage]:
    statement = text(_SUMS.format(key=_KEYS[group], whose=_ONE if account_id else _ALL))
    values = {"account_id": account_id, "start": midnight(first), "end": midnight(last)}
    rows = transaction.session.execute(statement, values).mappings()
    return [AccountUsage.model_validate(dict(row)) for row in rows]


def _total(groups: list[UsageGroup]) -> Usage:
    return Usage(
        images=sum(one.images for one in groups),
        cached=sum(one.cached for one in groups),
        degraded=sum(one.degraded for one in groups),
        gpu_seconds=round(sum(one.gpu_seconds for one in groups), 3),
        cpu_seconds=round(sum(one.cpu_seconds for one in groups), 3),
        bytes=sum(one.bytes for one in groups),
        amount_due=sum((one.amount_due for one in groups), Decimal(0)),
    )
