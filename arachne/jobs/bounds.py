"""No account has more images in flight than it may, however many claims are made at once."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, text

from arachne.database import Transaction
from arachne.locks import lock_in_flight

# So many other claims of the same moment are reckoned with; an account that is farther from its bound needs no lock.
_CLAIMS_AT_ONCE = 16

_RUNNING = text("""
SELECT account_id, count(*) AS n FROM image WHERE state = 'running' AND account_id = ANY(:account_ids) GROUP BY 1
""")
_PUT_BACK = text("""
UPDATE image SET state = 'queued', claim_id = NULL, worker_id = NULL, started_at = NULL WHERE image_id = ANY(:image_ids)
""")


def keep_within_bounds(transaction: Transaction, rows: Sequence[Row[Any]], limit: int) -> list[Row[Any]]:
    """The images just claimed, without those that are too many beside others' claims; these are queued again.

    A claim doesn't see what another one takes at the same moment. Where that may matter, claims of an account wait for
    each other here, before they have locked anything but images that nobody else waits for.
    """
    taken = Counter(row.account_id for row in rows)
    bounds = {row.account_id: row.max_in_flight for row in rows}
    near = {
        row.account_id for row in rows if row.n + taken[row.account_id] + _CLAIMS_AT_ONCE * limit > row.max_in_flight
    }
    if not near:
        return list(rows)
    lock_in_flight(transaction, near)
    counted = transaction.session.execute(_RUNNING, {"account_ids": sorted(near)})
    over = {row.account_id: row.n - bounds[row.account_id] for row in counted}
    kept, excess = _part(rows, over)
    if excess:
        transaction.session.execute(_PUT_BACK, {"image_ids": [row.image_id for row in excess]})
    return kept


def _part(rows: Sequence[Row[Any]], over: dict[str, int]) -> tuple[list[Row[Any]], list[Row[Any]]]:
    """Those to keep, and of each account the last ones, as many as are over."""
    kept: list[Row[Any]] = []
    excess: list[Row[Any]] = []
    for row in reversed(rows):
        is_over = over.get(row.account_id, 0) > 0
        (excess if is_over else kept).append(row)
        over[row.account_id] = over.get(row.account_id, 0) - is_over
    return kept[::-1], excess
