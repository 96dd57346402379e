"""What an account used, summed over the ledger: the same entries that are billed."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

from sqlalchemy import text

from arachne.database import Transaction
from arachne.schemas.usage import Grouping, Usage, UsageGroup, UsageReport

_KEYS: dict[Grouping, str] = {
    "day": "to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
    "model": "model_version",
}
_SUMS = """
SELECT {key} AS key, sum(units) AS images, coalesce(sum(units) FILTER (WHERE cached), 0) AS cached,
       coalesce(sum(units) FILTER (WHERE degraded), 0) AS degraded,
       round(coalesce(sum(gpu_s), 0)::numeric, 3) AS gpu_seconds,
       round(coalesce(sum(cpu_s), 0)::numeric, 3) AS cpu_seconds,
       coalesce(sum(size_bytes), 0) AS bytes, coalesce(sum(amount), 0) AS amount
FROM usage_entry WHERE account_id = :account_id AND at >= :start AND at < :end GROUP BY 1 ORDER BY 1
"""
_CURRENCY = text("SELECT plan.currency FROM account JOIN plan USING (plan_id) WHERE account_id = :account_id")


def report_usage(
    transaction: Transaction,
    account_id: str,
    *,
    start: date | None = None,
    end: date | None = None,
    group: Grouping = "day",
) -> UsageReport:
    """The account's use from `start` to before `end`; by default this month so far, today included."""
    today = datetime.now(UTC).date()
    last = end or today + timedelta(days=1)
    first = start or min(today, last - timedelta(days=1)).replace(day=1)
    statement = text(_SUMS.format(key=_KEYS[group]))
    values = {"account_id": account_id, "start": _midnight(first), "end": _midnight(last)}
    rows = transaction.session.execute(statement, values).mappings()
    groups = [UsageGroup.model_validate(dict(row)) for row in rows]
    return UsageReport(
        start=first,
        end=last,
        currency=transaction.session.scalar(_CURRENCY, {"account_id": account_id}) or "USD",
        group=group,
        total=_total(groups),
        data=groups,
    )


def _total(groups: list[UsageGroup]) -> Usage:
    return Usage(
        images=sum(one.images for one in groups),
        cached=sum(one.cached for one in groups),
        degraded=sum(one.degraded for one in groups),
        gpu_seconds=round(sum(one.gpu_seconds for one in groups), 3),
        cpu_seconds=round(sum(one.cpu_seconds for one in groups), 3),
        bytes=sum(one.bytes for one in groups),
        amount=sum((one.amount for one in groups), Decimal(0)),
    )


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)
