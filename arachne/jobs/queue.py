"""How much waits, and whether more may come in."""

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import text

from arachne.database import Transaction
from arachne.errors import AccountQueueFull, QueueFull, QuotaExceeded, TooManyImages
from arachne.jobs.estimates import drain_s
from arachne.jobs.scans import accounts_with
from arachne.locks import Lock, lock, lock_account
from arachne.settings import Settings

ACCOUNT_SHARE = 4  # one account may fill a quarter of the queue

# Counting stops one past the limit: a full queue is no slower to look at than an empty one.
# Parked images and those still to be fetched wait too; each state has an index of its own.
_DEPTH = text("""
SELECT count(*) FROM (
    SELECT 1 FROM image WHERE state = 'queued'
    UNION ALL SELECT 1 FROM image WHERE state = 'fetching'
    UNION ALL SELECT 1 FROM image WHERE state = 'parked' LIMIT :limit) AS waiting
""")
_ACCOUNT_DEPTH = text("""
SELECT count(*) FROM (
    SELECT 1 FROM image WHERE state = 'queued' AND account_id = :account_id
    UNION ALL SELECT 1 FROM image WHERE state = 'fetching' AND account_id = :account_id
    UNION ALL SELECT 1 FROM image WHERE state = 'parked' AND account_id = :account_id LIMIT :limit) AS waiting
""")
_ACCOUNTS_WAITING = text(f"""
WITH RECURSIVE {accounts_with("queued")}, {accounts_with("fetching")}
SELECT count(account_id) FROM (SELECT account_id FROM queued UNION SELECT account_id FROM fetching) AS accounts
""")  # noqa: S608  # the states are ours
_QUOTA = text("""
SELECT plan.monthly_images FROM account JOIN plan USING (plan_id) WHERE account.account_id = :account_id
""")
_USED = text("""
SELECT coalesce(sum(units), 0) FROM usage_entry WHERE account_id = :account_id AND at >= :since
""")
_OPEN = text("""
SELECT coalesce(sum(units), 0) FROM (
    SELECT units FROM image WHERE state = 'queued' AND account_id = :account_id
    UNION ALL SELECT units FROM image WHERE state = 'fetching' AND account_id = :account_id
    UNION ALL SELECT units FROM image WHERE state = 'parked' AND account_id = :account_id
    UNION ALL SELECT units FROM image WHERE state = 'running' AND account_id = :account_id) AS open
""")


@dataclass(frozen=True)
class Room:
    """How many images an account is about to add: those to be read, and all that count for its quota."""

    waiting: int
    counted: int


def check_room(transaction: Transaction, account_id: str, room: Room, settings: Settings) -> None:
    """Nothing, where the images may come in.

    The account's other submissions wait for this transaction, and those of others too once half the queue is taken,
    so that what comes at once is counted together.

    Raises:
        TooManyImages: more than the queue holds.
        QuotaExceeded: the plan's images of this month are used up.
        AccountQueueFull: the account's own share of the queue is full.
        QueueFull: the queue is full, and the account has its fair part of it already.
    """
    check_quota(transaction, account_id, room.counted)
    if not room.waiting:
        return
    limit = settings.max_queue_depth
    if room.waiting > limit:
        raise TooManyImages(f"{room.waiting:,} images can never wait at once, {limit:,} can. Split them.")
    lock_account(transaction, account_id)
    mine = _scalar(transaction, _ACCOUNT_DEPTH, account_id=account_id, limit=limit + 1)
    if mine and mine + room.waiting > max(1, limit // ACCOUNT_SHARE):
        raise AccountQueueFull(
            f"{mine:,} images of this account wait already. Send more when some are done.",
            retry_after_s=drain_s(transaction, mine + room.waiting - limit // ACCOUNT_SHARE, account_id=account_id),
        )
    _check_depth(transaction, mine, room.waiting, limit)


def _check_depth(transaction: Transaction, mine: int, more: int, limit: int) -> None:
    """Nothing, where `more` images find room beside all that wait, `mine` of them the account's own.

    Raises:
        QueueFull: they don't, and the account has its fair part of the queue already.
    """
    depth = _scalar(transaction, _DEPTH, limit=limit + 1)
    if depth + more > limit // 2:
        lock(transaction, Lock.ADMISSION)
        depth = _scalar(transaction, _DEPTH, limit=limit + 1)
    if depth + more <= limit:
        return
    accounts = _scalar(transaction, _ACCOUNTS_WAITING) + (0 if mine else 1)
    if mine + more > limit // max(1, accounts):
        raise QueueFull(
            "The queue is full. Send this again later.", retry_after_s=drain_s(transaction, depth + more - limit)
        )


def check_quota(transaction: Transaction, account_id: str, images: int) -> None:
    """Nothing, where the plan has so many images left this month, beyond those used and those accepted and not read.

    The account's other submissions wait for this transaction, so that two can't both take the last ones.

    Raises:
        QuotaExceeded: it hasn't.
    """
    quota = transaction.session.scalar(_QUOTA, {"account_id": account_id})
    if quota is None:
        return
    lock_account(transaction, account_id)
    since = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    used = _scalar(transaction, _USED, account_id=account_id, since=since)
    under_way = _scalar(transaction, _OPEN, account_id=account_id)
    if used + under_way + images > quota:
        raise QuotaExceeded(
            f"The plan has {quota:,} images a month; {used:,} are used and {under_way:,} accepted before this."
        )


def _scalar(transaction: Transaction, statement: object, **values: object) -> int:
    return int(transaction.session.scalar(statement, values) or 0)  # type: ignore[call-overload]
