"""What each account had of the workers: the tag of its last image, by which claims take turns between accounts.

Start-time fair queueing: an image's tag is that of its account's last one and one step of 1/weight more, or, where the
account had nothing to do meanwhile, the tag of whatever was handed out last. The lowest tag goes first.

Source: P. Goyal, H. Vin, H. Cheng, Start-time Fair Queueing, IEEE/ACM Transactions on Networking 5(5), 1997.
"""

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import text

from arachne.database import Transaction

_NOTE = text("""
INSERT INTO served AS mine (account_id, tag)
VALUES (:account_id, CAST(:now AS float8) + (:images - 1) * CAST(:step AS float8))
ON CONFLICT (account_id) DO UPDATE
SET tag = greatest(mine.tag + CAST(:step AS float8), CAST(:now AS float8)) + (:images - 1) * CAST(:step AS float8)
""")


class Serving(NamedTuple):
    """Images handed out to one account just now, of so much weight; `now` is the tag they could begin at."""

    images: int
    weight: float
    now: float


def note_served(transaction: Transaction, servings: Mapping[str, Serving]) -> None:
    """Each account's tag counts these images.

    Claims of one account wait for each other here until they commit, so it comes last in a transaction; in the order
    of the accounts, so that two can't wait for each other.
    """
    rows = [
        {"account_id": account_id, "images": one.images, "step": 1 / one.weight, "now": one.now}
        for account_id, one in sorted(servings.items())
    ]
    if rows:
        transaction.session.connection().execute(_NOTE, rows)
