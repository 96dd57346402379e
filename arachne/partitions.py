"""Daily partitions of the append-only logs: made ahead, dropped whole when their day is past keeping.

Each table and day stands on its own, in a savepoint: what fails is logged and left to the next run.
"""

import logging
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from arachne.database import Transaction
from arachne.locks import Lock, lock
from arachne.schemas.tables import PARTITIONED_BY_DAY

log = logging.getLogger(__name__)

REST_BATCH = 50_000  # rows of `_rest` dropped in one run
_NAME = re.compile(r"_(\d{8})$")
# Logging must not queue up behind a partition that waits for a long read of its table.
_GIVE_WAY = text("SET LOCAL lock_timeout = '2s'")
_WAIT_AGAIN = text("SET LOCAL lock_timeout = DEFAULT")


def ensure_partitions(transaction: Transaction, *, today: date | None = None, days_ahead: int = 3) -> int:
    """Number of partitions made so that every log has one for today and `days_ahead` more days."""
    lock(transaction, Lock.PARTITIONS)
    first = today or datetime.now(UTC).date()
    made = 0
    for table in PARTITIONED_BY_DAY:
        existing = set(_partitions(transaction, table))
        for day in (first + timedelta(days=n) for n in range(days_ahead + 1)):
            if day not in existing:
                made += _attempt(transaction, table, day, _make)
    return made


def drop_partitions(transaction: Transaction, table: str, *, before: date) -> int:
    """Number of partitions of `table` dropped because their whole day lies before `before`; so old rows of `_rest` go.

    At most `REST_BATCH` of those rows.
    """
    old = [day for day in _partitions(transaction, table) if day < before]
    dropped = sum(_attempt(transaction, table, day, _drop) for day in old)
    transaction.session.connection().execute(
        text(
            f"DELETE FROM {table}_rest WHERE ctid = ANY(ARRAY("  # noqa: S608  # the table's name is one of ours
            f"SELECT ctid FROM {table}_rest WHERE at < :before LIMIT :batch))"
        ),
        {"before": datetime(before.year, before.month, before.day, tzinfo=UTC), "batch": REST_BATCH},
    )
    return dropped


def _attempt(transaction: Transaction, table: str, day: date, change: Callable[[Transaction, str, date], None]) -> bool:
    """Whether the change was made; if not, the transaction goes on without it."""
    try:
        with transaction.session.begin_nested():
            transaction.session.execute(_GIVE_WAY)
            change(transaction, table, day)
            transaction.session.execute(_WAIT_AGAIN)
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        log.warning("the partition of %s for %s has to wait: %s", table, day, str(error.orig).split("\n")[0])
        return False
    return True


def _make(transaction: Transaction, table: str, day: date) -> None:
    """The partition, with the rows of its day that came before it and lie in the default partition."""
    name, span = f"{table}_{day:%Y%m%d}", (f"{day} 00:00Z", f"{day + timedelta(days=1)} 00:00Z")
    run = transaction.session.connection().execute
    run(text(f"LOCK TABLE {table}_rest IN ACCESS EXCLUSIVE MODE"))
    run(text(f"CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"))
    run(
        text(
            f"WITH early AS (DELETE FROM {table}_rest WHERE at >= :start AND at < :until RETURNING *) "  # noqa: S608
            f"INSERT INTO {name} SELECT * FROM early"
        ),
        dict(zip(("start", "until"), span, strict=True)),
    )
    run(text(f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{span[0]}') TO ('{span[1]}')"))


def _drop(transaction: Transaction, table: str, day: date) -> None:
    transaction.session.connection().execute(text(f"DROP TABLE {table}_{day:%Y%m%d}"))


def _partitions(transaction: Transaction, table: str) -> list[date]:
    if table not in PARTITIONED_BY_DAY:
        raise ValueError(f"{table} is not partitioned by day")
    names = transaction.session.connection().scalars(
        text("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = CAST(:table AS regclass)"),
        {"table": table},
    )
    found = (_NAME.search(name) for name in names)
    return [datetime.strptime(match[1], "%Y%m%d").replace(tzinfo=UTC).date() for match in found if match]
