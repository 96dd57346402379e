"""Events are written in the transaction that makes them happen: a message, and a delivery per endpoint that wants it.

After the commit, wake the delivery engine; a lost wake-up costs one tick.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import func, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm.attributes import set_committed_value
from sqlmodel import Session, col, select

from arachne.ids import new_id
from arachne.schemas.job import TERMINAL
from arachne.schemas.tables import Job, WebhookDelivery, WebhookEndpoint, WebhookMessage
from arachne.settings import Settings
from arachne.webhooks.body import build_job_body, freeze, job_facts, load_images
from arachne.webhooks.events import DEFAULT_EVENTS, subscribes

_NEXT_SEQUENCE = text("UPDATE job SET sequence = sequence + 1 WHERE job_id = :job_id RETURNING sequence")
TERMINAL_EVENTS = frozenset(f"job.{status}" for status in TERMINAL)


def emit_job_event(session: Session, settings: Settings, job: Job, event: str, *, image_id: str | None = None) -> int:
    """Number of deliveries written for an event of `job`, which the caller has locked and read since its last change.

    Terminal events are kept for the feed whoever listens; others only if somebody does. `image_id` goes with `image.*`.
    """
    endpoint_ids = _job_listeners(session, job, event)
    if not endpoint_ids and event not in TERMINAL_EVENTS:
        return 0
    sequence = session.connection().execute(_NEXT_SEQUENCE, {"job_id": job.job_id}).scalar_one()
    body = build_job_body(
        session,
        event,
        job_facts(job, sequence),
        load_images(session, job.job_id, image_id),
        base_url=settings.base_url,
        limit_bytes=settings.webhook_inline_bytes,
    )
    set_committed_value(job, "sequence", sequence)  # as the row now has it, so that nobody writes it back
    message_id = write_message(session, job.account_id, event, body, job_id=job.job_id, sequence=sequence)
    return write_deliveries(session, message_id, job.account_id, endpoint_ids) if message_id else 0


def emit_endpoint_disabled(session: Session, account_id: str, endpoint_id: str, reason: str) -> int:
    """Number of deliveries written to tell the account's other endpoints that this one was disabled."""
    event = "webhook.endpoint.disabled"
    body = freeze(event, {"endpoint_id": endpoint_id, "reason": reason}, datetime.now(UTC))
    message_id = write_message(session, account_id, event, body)
    others = [other for other in _listeners(session, account_id, event) if other != endpoint_id]
    return write_deliveries(session, message_id, account_id, others) if message_id else 0


def write_message(
    session: Session,
    account_id: str,
    event: str,
    body: bytes,
    *,
    job_id: str | None = None,
    sequence: int | None = None,
) -> str | None:
    """Id of the event; None if it is a job's terminal event and that exists already."""
    row = insert(WebhookMessage).values(
        message_id=new_id("msg"), account_id=account_id, job_id=job_id, type=event, sequence=sequence, body=body
    )
    once = row.on_conflict_do_nothing().returning(col(WebhookMessage.message_id))
    return session.connection().execute(once).scalar_one_or_none()


def write_deliveries(session: Session, message_id: str, account_id: str, endpoint_ids: Sequence[str]) -> int:
    """Number of deliveries written, due now; an endpoint gets an event once."""
    if not endpoint_ids:
        return 0
    rows = [
        {
            "message_id": message_id,
            "endpoint_id": endpoint_id,
            "account_id": account_id,
            "state": "pending",
            "attempts": 0,
        }
        for endpoint_id in endpoint_ids
    ]
    statement = insert(WebhookDelivery).values([row | {"next_attempt_at": func.now()} for row in rows])
    written = statement.on_conflict_do_nothing().returning(col(WebhookDelivery.endpoint_id))
    return len(session.connection().execute(written).all())


def _listeners(session: Session, account_id: str, event: str) -> list[str]:
    return [endpoint_id for endpoint_id, _, events in _open_endpoints(session, account_id) if subscribes(events, event)]


def _job_listeners(session: Session, job: Job, event: str) -> list[str]:
    """The account's endpoints that want the event, and the job's own unless an enabled endpoint has the same URL."""
    enabled = _open_endpoints(session, job.account_id)
    found = [endpoint_id for endpoint_id, _, events in enabled if subscribes(events, event)]
    if job.webhook_endpoint_id is None or not subscribes(job.webhook_events or DEFAULT_EVENTS, event):
        return found
    own = session.get(WebhookEndpoint, job.webhook_endpoint_id)
    if own is not None and own.url not in {url for _, url, _ in enabled}:
        found.append(own.endpoint_id)
    return found


def _open_endpoints(session: Session, account_id: str) -> Sequence[tuple[str, str, Sequence[str]]]:
    query = select(WebhookEndpoint.endpoint_id, WebhookEndpoint.url, WebhookEndpoint.events).where(
        col(WebhookEndpoint.account_id) == account_id,
        col(WebhookEndpoint.enabled),
        col(WebhookEndpoint.hidden).is_(False),
        col(WebhookEndpoint.deleted_at).is_(None),
    )
    return session.exec(query).all()
