"""Deliveries that are no longer to be made."""

from sqlalchemy import text
from sqlmodel import Session

REDACTED = b'{"type":"redacted"}'
_CANCEL = """
UPDATE webhook_delivery SET state = 'cancelled', reason = :reason, finished_at = now(), next_attempt_at = NULL,
    claim_id = NULL, lease_until = NULL
WHERE state = 'pending'"""


def cancel_pending(session: Session, endpoint_id: str, reason: str) -> int:
    """Number of an endpoint's pending deliveries cancelled; one being sent now is logged but changes nothing more."""
    return _count(session, f"{_CANCEL} AND endpoint_id = :endpoint_id", reason=reason, endpoint_id=endpoint_id)


def cancel_orphans(session: Session) -> int:
    """Number of deliveries cancelled that were written while their endpoint was being disabled or deleted."""
    closed = "SELECT endpoint_id FROM webhook_endpoint WHERE NOT enabled AND endpoint_id = webhook_delivery.endpoint_id"
    idle = "(lease_until IS NULL OR lease_until <= now())"
    return _count(session, f"{_CANCEL} AND {idle} AND EXISTS ({closed})", reason="the endpoint was disabled")


def forget_job_events(session: Session, job_id: str) -> int:
    """Number of the job's events whose body was redacted, their pending deliveries cancelled."""
    mine = "SELECT message_id FROM webhook_message WHERE job_id = :job_id"
    _count(session, f"{_CANCEL} AND message_id IN ({mine})", reason="the job was deleted", job_id=job_id)
    redact = "UPDATE webhook_message SET body = :body WHERE job_id = :job_id AND body <> :body"
    return _count(session, redact, body=REDACTED, job_id=job_id)


def _count(session: Session, statement: str, **values: object) -> int:
    return session.connection().execute(text(statement), values).rowcount
