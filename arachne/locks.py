"""The keys of PostgreSQL's advisory locks, all in one place so that no two uses share one."""

from collections.abc import Collection
from enum import IntEnum

from sqlalchemy import text

from arachne.database import Transaction

_EXCLUSIVE = text("SELECT pg_advisory_xact_lock(:key)")
_AT_ONCE = text("SELECT pg_try_advisory_xact_lock(:key)")
_FOR_ACCOUNT = text("SELECT pg_advisory_xact_lock(:key, hashtext(:account_id))")
_FOR_ACCOUNTS = text("""
SELECT pg_advisory_xact_lock(:key, account) FROM (
    SELECT DISTINCT hashtext(account_id) AS account FROM unnest(CAST(:account_ids AS text[])) AS given(account_id)
    ORDER BY account) AS accounts
""")


class Lock(IntEnum):
    """What is done by one process at a time. The numbers are arbitrary and the same in every process."""

    MIGRATION = 4_202_611_291
    PARTITIONS = 4_202_611_292
    RECONCILE = 4_202_611_293
    SIGNING_KEY = 4_202_611_294
    DELIVERIES = 4_202_611_295
    FETCHES = 4_202_611_296
    ADMISSION = 4_202_611_297


# The classes of the locks per account: two 32-bit numbers, a key space of their own.
SUBMISSION = 420_261
IN_FLIGHT = 420_262


def lock(transaction: Transaction, key: Lock) -> None:
    """Nobody else has the lock until the transaction ends; waits for whoever has it."""
    transaction.session.execute(_EXCLUSIVE, {"key": int(key)})


def try_lock(transaction: Transaction, key: Lock) -> bool:
    """Whether the lock is ours until the transaction ends."""
    return bool(transaction.session.scalar(_AT_ONCE, {"key": int(key)}))


def lock_account(transaction: Transaction, account_id: str) -> None:
    """Submissions of the account are counted one after the other until the transaction ends."""
    transaction.session.execute(_FOR_ACCOUNT, {"key": SUBMISSION, "account_id": account_id})


def lock_in_flight(transaction: Transaction, account_ids: Collection[str]) -> None:
    """What these accounts have in flight is counted by one claim after the other until the transaction ends."""
    transaction.session.execute(_FOR_ACCOUNTS, {"key": IN_FLIGHT, "account_ids": list(account_ids)})
