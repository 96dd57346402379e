"""Phase four of a delivery: the attempt is logged and its consequences written, in one short transaction.

Rows are locked in one order, endpoint before delivery, so that recording and disabling never wait for each other.
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

_RECOVERED = text("""
UPDATE webhook_endpoint SET first_failure_at = NULL WHERE endpoint_id = :endpoint_id AND first_failure_at IS NOT NULL
""")
_FAILING = text("""
UPDATE webhook_endpoint SET first_failure_at = now()
WHERE endpoint_id = :endpoint_id AND first_failure_at IS NULL AND enabled
""")
_OVERDUE = text("""
SELECT first_failure_at FROM webhook_endpoint
WHERE endpoint_id = :endpoint_id AND enabled AND NOT hidden
  AND (:gone OR first_failure_at <= now() - make_interval(secs => :disable_after_s))
FOR NO KEY UPDATE
""")
_DISABLE = text("""
UPDATE webhook_endpoint SET enabled = false, disabled_at = now(), disabled_reason = :reason, first_failure_at = NULL
WHERE endpoint_id = :endpoint_id
""")
_FINISH = text("""
UPDATE webhook_delivery SET state = CAST(:state AS text), reason = :reason, attempts = attempts + :charged,
    claim_id = NULL, lease_until = NULL,
    next_attempt_at = now() + make_interval(secs => CAST(:delay_s AS float8)),
    finished_at = CASE WHEN CAST(:state AS text) = 'pending' THEN NULL ELSE now() END
WHERE message_id = :message_id AND endpoint_id = :endpoint_id AND claim_id = :claim_id AND state = 'pending'
""")


def record(
    session: Session, claim: Claim, outcome: Outcome, decision: Decision, *, disable_after_s: float
) -> AttemptView:
    """The attempt as logged. If the claim was lost meanwhile, nothing but the log is written."""
    reason = _note_health(session, claim, outcome, decision, disable_after_s)
    _finish(session, claim, decision)
    if reason is not None:
        session.connection().execute(_DISABLE, {"endpoint_id": claim.endpoint_id, "reason": reason})
        cancel_pending(session, claim.endpoint_id, "the endpoint was disabled")
        emit_endpoint_disabled(session, claim.account_id, claim.endpoint_id, reason)
    return _log(session, claim, outcome)


def _note_health(
    session: Session, claim: Claim, outcome: Outcome, decision: Decision, disable_after_s: float
) -> str | None:
    """The reason to disable the endpoint now, if there is one."""
    connection, endpoint = session.connection(), {"endpoint_id": claim.endpoint_id}
    if claim.is_test or not decision.charged:
        return None
    if outcome.failure is None:
        connection.execute(_RECOVERED, endpoint)
        return None
    connection.execute(_FAILING, endpoint)
    overdue = {"gone": decision.gone, "disable_after_s": disable_after_s}
    first: list[datetime | None] = list(connection.execute(_OVERDUE, endpoint | overdue).scalars())
    if not first:
        return None
    if decision.gone:
        return "The receiver answered 410 Gone."
    return f"Every delivery failed since {first[0]:%Y-%m-%d %H:%M} UTC."


def _finish(session: Session, claim: Claim, decision: Decision) -> None:
    values = {
        "state": decision.state,
        "reason": decision.reason,
        "charged": int(decision.charged),
        "delay_s": decision.delay_s,
        "message_id": claim.message_id,
        "endpoint_id": claim.endpoint_id,
        "claim_id": claim.claim_id,
    }
    session.connection().execute(_FINISH, values)


def _log(session: Session, claim: Claim, outcome: Outcome) -> AttemptView:
    row = WebhookAttempt(
        at=outcome.at,
        attempt_id=new_id("att"),
        message_id=claim.message_id,
        endpoint_id=claim.endpoint_id,
        account_id=claim.account_id,
        number=claim.attempts + 1,
        status_code=outcome.status_code,
        ms=outcome.ms,
        failure=outcome.failure,
        response=outcome.response,
    )
    session.add(row)
    session.flush()
    return view_attempt(row)


def view_attempt(row: WebhookAttempt) -> AttemptView:
    """An attempt as its account sees it."""
    return AttemptView.model_validate(row.model_dump(include=set(AttemptView.model_fields)))
