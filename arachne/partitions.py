"""Daily partitions of the append-only logs: made ahead, dropped whole when their day is past keeping."""

import re
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import text

from arachne.database import Transaction
from arachne.schemas.tables import PARTITIONED_BY_DAY

_NAME = re.compile(r"_(\d{8})$")
_LOCK = 4_202_611_292  # two processes making the same partition would fail on each other


def ensure_partitions(transaction: Transaction, *, today: date | None = None, days_ahead: int = 3) -> int:
    """Number of partitions made so that every log has one for today and `days_ahead` more days."""
    connection = transaction.session.connection()
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    first = today or datetime.now(UTC).date()
    made = 0
    for table in PARTITIONED_BY_DAY:
        existing = set(_partitions(transaction, table))
        for day in (first + timedelta(days=n) for n in range(days_ahead + 1)):
            if day in existing:
                continue
            connection.execute(
                text(
                    f"CREATE TABLE {table}_{day:%Y%m%d} PARTITION OF {table} "
                    f"FOR VALUES FROM ('{day} 00:00Z') TO ('{day + timedelta(days=1)} 00:00Z')"
                )
            )
            made += 1
    return made


def drop_partitions(transaction: Transaction, table: str, *, before: date) -> int:
    """Number of partitions of `table` dropped because their whole day lies before `before`."""
    old = [day for day in _partitions(transaction, table) if day < before]
    for day in old:
        transaction.session.connection().execute(text(f"DROP TABLE {table}_{day:%Y%m%d}"))
    return len(old)


def _partitions(transaction: Transaction, table: str) -> list[date]:
    if table not in PARTITIONED_BY_DAY:
        raise ValueError(f"{table} is not partitioned by day")
    names = transaction.session.connection().scalars(
        text("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = CAST(:table AS regclass)"),
        {"table": table},
    )
    found = (_NAME.search(name) for name in names)
    return [datetime.strptime(match[1], "%Y%m%d").replace(tzinfo=UTC).date() for match in found if match]
