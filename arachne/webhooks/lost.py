"""Deliveries whose sender is lost: due again at once, for whoever claims them, with the same id and bytes."""

from sqlalchemy import text

from arachne.database import Transaction

_BATCH = 500

_FREE = text("""
WITH lost AS (
    SELECT d.message_id, d.endpoint_id FROM webhook_delivery d
    WHERE d.claim_id IS NOT NULL AND d.state = 'pending' AND d.worker_id IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM worker w WHERE w.worker_id = d.worker_id)
    ORDER BY d.message_id, d.endpoint_id LIMIT :batch FOR UPDATE OF d SKIP LOCKED)
UPDATE webhook_delivery d SET claim_id = NULL, lease_until = NULL, next_attempt_at = now()
FROM lost WHERE d.message_id = lost.message_id AND d.endpoint_id = lost.endpoint_id
""")


def free_lost_deliveries(transaction: Transaction) -> int:
    """Number of deliveries taken back from workers that are gone. What one of them did send may be sent again."""
    return transaction.session.connection().execute(_FREE, {"batch": _BATCH}).rowcount
