"""An account's monthly statement, which adds up to the ledger to the coin.

Each entry has its price with six decimals, so lines and their sum are exact; only the sum is rounded, once.
"""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from sqlalchemy import text

from arachne.database import Transaction
from arachne.schemas.money import round_due
from arachne.schemas.usage import Statement, StatementLine
from arachne.usage import midnight, one_currency

# An entry has the time its transaction began; none lasts so long.
SETTLED = timedelta(minutes=5)
_LINES = text("""
SELECT currency, plan_id, unit_price, vlm_price, count(*) AS entries, sum(units) AS images, sum(amount) AS amount,
       CASE WHEN cached THEN 'cached' WHEN degraded THEN 'degraded'
            WHEN model_version = 'none' THEN 'read' ELSE 'described' END AS kind
FROM usage_entry WHERE account_id = :account_id AND at >= :start AND at < :end
GROUP BY currency, plan_id, kind, unit_price, vlm_price ORDER BY min(at), plan_id, kind, unit_price, vlm_price
""")


def make_statement(transaction: Transaction, account_id: str, month: date) -> Statement:
    """What the account owes for the month (UTC) that this day is in. Erased accounts have theirs too.

    Raises:
        Conflict: the ledger has entries in several currencies.
    """
    first = month.replace(day=1)
    end = (first + timedelta(days=31)).replace(day=1)
    values = {"account_id": account_id, "start": midnight(first), "end": midnight(end)}
    rows = [dict(row) for row in transaction.session.execute(_LINES, values).mappings()]
    currency = one_currency(transaction, account_id, {str(row.pop("currency")) for row in rows})
    lines = [StatementLine.model_validate(row) for row in rows]
    subtotal = sum((line.amount for line in lines), Decimal(0))
    return Statement(
        account_id=account_id,
        month=f"{first:%Y-%m}",
        currency=currency,
        final=datetime.now(UTC) >= midnight(end) + SETTLED,
        lines=lines,
        images=sum(line.images for line in lines),
        subtotal=subtotal,
        amount_due=round_due(subtotal, currency),
    )
