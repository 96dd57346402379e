"""Phase four of a delivery: the attempt is logged and its consequences written, in one short transaction.

Rows are locked in one order, endpoint before delivery, so that recording and disabling never wait for each other; and
what an attempt says of the endpoint counts only while its claim holds.
"""

from datetime import datetime

from sqlalchemy import text
from sqlmodel import Session

from arachne.ids import new_id
from arachne.schemas.tables import WebhookAttempt
from arachne.schemas.webhook import AttemptView
from arachne.webhooks.cancellation import cancel_pending
from arachne.webhooks.claim import Claim
from arachne.webhooks.outbox import emit_endpoint_disabled
from arachne.webhooks.schedule import Decision
from arachne.webhooks.sending import Outcome

_LOCK = text("SELECT 1 FROM webhook_endpoint WHERE endpoint_id = :endpoint_id FOR NO KEY UPDATE")
_RECOVERED = text("""
UPDATE webhook_endpoint SET first_failure_at = NULL, half_open = false
WHERE endpoint_id = :endpoint_id AND (first_failure_at IS NOT NULL OR half_open)
""")
_FAILING = text("""
UPDATE webhook_endpoint SET first_failure_at = now()
WHERE endpoint_id = :endpoint_id AND first_failure_at IS NULL AND enabled
""")
_OVERDUE = text("""
SELECT first_failure_at FROM webhook_endpoint
WHERE endpoint_id = :endpoint_id AND enabled AND NOT hidden
  AND (:gone OR first_failure_at <= now() - make_interval(secs => :disable_after_s))
""")
_DISABLE = text("""
UPDATE webhook_endpoint SET enabled = false, disabled_at = now(), disabled_reason = :reason, first_failure_at = NULL
WHERE endpoint_id = :endpoint_id
""")
_FINISH = text("""
UPDATE webhook_delivery SET state = CAST(:state AS text), reason = :reason, charged = charged + :on_schedule,
    claim_id = NULL, lease_until = NULL, redelivery = redelivery AND NOT :resumes,
    next_attempt_at = CASE WHEN :resumes AND retry_at IS NOT NULL THEN greatest(retry_at, now())
                           ELSE now() + make_interval(secs => CAST(:delay_s AS float8)) END,
    retry_at = CASE WHEN CAST(:state AS text) = 'pending' AND NOT :resumes THEN retry_at END,
    finished_at = CASE WHEN CAST(:state AS text) = 'pending' THEN NULL ELSE now() END
WHERE message_id = :message_id AND endpoint_id = :endpoint_id AND claim_id = :claim_id AND state = 'pending'
""")
# It was cancelled while it was being sent there, and has arrived all the same.
_ARRIVED = text("""
UPDATE webhook_delivery d SET state = 'succeeded', reason = NULL, finished_at = now()
FROM webhook_endpoint e WHERE e.endpoint_id = d.endpoint_id AND e.url = :url
  AND d.message_id = :message_id AND d.endpoint_id = :endpoint_id AND d.state = 'cancelled'
""")
_COUNT = text("""
UPDATE webhook_delivery SET attempts = attempts + 1
WHERE message_id = :message_id AND endpoint_id = :endpoint_id RETURNING attempts
""")
# Held against erasing: an answer is on record before it is forgotten, or is not put on record any more.
_REDACTED = text("SELECT redacted FROM webhook_message WHERE message_id = :message_id FOR SHARE")


def record(
    session: Session, claim: Claim, outcome: Outcome, decision: Decision, *, disable_after_s: float
) -> AttemptView:
    """The attempt as logged. If the claim was lost meanwhile, nothing more is written, but that it arrived if it did.

    Of an event whose job was erased the receiver's answer isn't logged; of one that is gone, nothing.
    """
    session.connection().execute(_LOCK, {"endpoint_id": claim.endpoint_id})
    if _finish(session, claim, decision):
        _note_health(session, claim, outcome, decision, disable_after_s)
    elif decision.state == "succeeded":
        arrived = {"url": claim.url, "message_id": claim.message_id, "endpoint_id": claim.endpoint_id}
        session.connection().execute(_ARRIVED, arrived)
    return _log(session, claim, outcome)


def _note_health(session: Session, claim: Claim, outcome: Outcome, decision: Decision, disable_after_s: float) -> None:
    """The endpoint is known to work, or to fail, or is disabled."""
    connection, endpoint = session.connection(), {"endpoint_id": claim.endpoint_id}
    if claim.is_test or not decision.charged:
        return
    if outcome.failure is None:
        connection.execute(_RECOVERED, endpoint)
        return
    connection.execute(_FAILING, endpoint)
    overdue = {"gone": decision.gone, "disable_after_s": disable_after_s}
    since: list[datetime | None] = list(connection.execute(_OVERDUE, endpoint | overdue).scalars())
    if since and decision.gone:
        _disable(session, claim, "The receiver answered 410 Gone.")
    elif since:
        _disable(session, claim, f"Every delivery failed since {since[0]:%Y-%m-%d %H:%M} UTC.")


def _disable(session: Session, claim: Claim, reason: str) -> None:
    session.connection().execute(_DISABLE, {"endpoint_id": claim.endpoint_id, "reason": reason})
    cancel_pending(session, claim.endpoint_id, "the endpoint was disabled")
    emit_endpoint_disabled(session, claim.account_id, claim.endpoint_id, reason)


def _finish(session: Session, claim: Claim, decision: Decision) -> bool:
    """Whether the claim still held. After an attempt beside the schedule, the schedule goes on where it was."""
    resumes = decision.charged and claim.is_redelivery and decision.state == "pending"
    values = {
        "state": decision.state,
        "reason": decision.reason,
        "on_schedule": int(decision.charged and not claim.is_redelivery),
        "resumes": resumes,
        "delay_s": decision.delay_s,
        "message_id": claim.message_id,
        "endpoint_id": claim.endpoint_id,
        "claim_id": claim.claim_id,
    }
    return session.connection().execute(_FINISH, values).rowcount == 1


def _log(session: Session, claim: Claim, outcome: Outcome) -> AttemptView:
    delivery = {"message_id": claim.message_id, "endpoint_id": claim.endpoint_id}
    redacted = list(session.connection().execute(_REDACTED, {"message_id": claim.message_id}).scalars())
    number = session.connection().execute(_COUNT, delivery).scalar()
    row = WebhookAttempt(
        at=outcome.at,
        attempt_id=new_id("att"),
        **delivery,
        account_id=claim.account_id,
        number=number or 1,
        cause=claim.cause,
        status_code=outcome.status_code,
        ms=outcome.ms,
        failure=outcome.failure,
        response=None if True in redacted else outcome.response,
    )
    if redacted:
        session.add(row)
        session.flush()
    return view_attempt(row)


def view_attempt(row: WebhookAttempt) -> AttemptView:
    """An attempt as its account sees it."""
    return AttemptView.model_validate(row.model_dump(include=set(AttemptView.model_fields)))
