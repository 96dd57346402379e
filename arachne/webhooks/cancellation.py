"""Deliveries that are no longer to be made."""

from sqlalchemy import text
from sqlmodel import Session

_CANCEL = """
UPDATE webhook_delivery SET state = 'cancelled', reason = :reason, finished_at = now(), next_attempt_at = NULL,
    claim_id = NULL, lease_until = NULL
WHERE state = 'pending'"""


def cancel_pending(session: Session, endpoint_id: str, reason: str) -> int:
    """Number of an endpoint's pending deliveries cancelled; one being sent now still is a success if it arrives."""
    return _count(session, f"{_CANCEL} AND endpoint_id = :endpoint_id", reason=reason, endpoint_id=endpoint_id)


def cancel_orphans(session: Session) -> int:
    """Number of deliveries cancelled that were written while their endpoint was being disabled or deleted."""
    closed = "SELECT endpoint_id FROM webhook_endpoint WHERE NOT enabled AND endpoint_id = webhook_delivery.endpoint_id"
    idle = "(lease_until IS NULL OR lease_until <= now())"
    return _count(session, f"{_CANCEL} AND {idle} AND EXISTS ({closed})", reason="the endpoint was disabled")


def _count(session: Session, statement: str, **values: object) -> int:
    return session.connection().execute(text(statement), values).rowcount
