"""Events are written in the transaction that makes them happen: a message, and a delivery per endpoint that wants it.

Every event is kept, whether or not an endpoint wants it: the feed and the jobs' streams show them all. The session's
news say what was written, so that streams and the delivery engine hear of it after the commit.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm.attributes import set_committed_value
from sqlmodel import Session, col, select

from arachne.ids import new_id
from arachne.news import news_of
from arachne.schemas.job import TERMINAL
from arachne.schemas.tables import Job, WebhookEndpoint, WebhookMessage
from arachne.settings import Settings
from arachne.webhooks.body import build_job_body, freeze, job_facts, load_images, load_stored
from arachne.webhooks.events import DEFAULT_EVENTS, subscribes

_NEXT_SEQUENCE = text("UPDATE job SET sequence = sequence + :events WHERE job_id = :job_id RETURNING sequence")
_DELIVER = text("""
INSERT INTO webhook_delivery (message_id, endpoint_id, account_id, state, attempts, next_attempt_at)
SELECT message_id, endpoint_id, :account_id, 'pending', 0, now()
FROM unnest(CAST(:message_ids AS text[]), CAST(:endpoint_ids AS text[])) AS wanted(message_id, endpoint_id)
ON CONFLICT DO NOTHING RETURNING endpoint_id
""")
Enabled = Sequence[tuple[str, str, Sequence[str]]]
"""Endpoints by id, with their URL and their filters."""
TERMINAL_EVENTS = frozenset(f"job.{status}" for status in TERMINAL)


def emit_job_event(session: Session, settings: Settings, job: Job, event: str) -> int:
    """Number of deliveries written for an event of `job`, which is locked and was read after its last change."""
    endpoint_ids = _job_listeners(session, job, event, _open_endpoints(session, job.account_id))
    sequence = _take_sequence(session, job, 1)
    body = build_job_body(
        session,
        event,
        job_facts(job, sequence),
        load_images(session, job.job_id),
        base_url=settings.base_url,
        limit_bytes=settings.webhook_inline_bytes,
    )
    message_id = write_message(session, job.account_id, event, body, job_id=job.job_id, sequence=sequence)
    return write_deliveries(session, message_id, job.account_id, endpoint_ids) if message_id else 0


def emit_image_events(session: Session, settings: Settings, job: Job, events: Sequence[tuple[str, str]]) -> int:
    """Number of deliveries written for (event, image id) of `job`, which is locked and was read as above.

    A handful of statements, however many images there are.
    """
    if not events:
        return 0
    enabled = _open_endpoints(session, job.account_id)
    listeners = {event: _job_listeners(session, job, event, enabled) for event in {event for event, _ in events}}
    images = {one.image_id: one for one in load_images(session, job.job_id, [image_id for _, image_id in events])}
    limit_bytes = settings.webhook_inline_bytes
    stored = load_stored(session, list(images.values()), limit_bytes)
    first = _take_sequence(session, job, len(events)) - len(events) + 1
    messages: list[dict[str, object]] = []
    deliveries: list[tuple[str, str]] = []
    for sequence, (event, image_id) in enumerate(events, first):
        body = build_job_body(
            session, event, job_facts(job, sequence), [images[image_id]],
            base_url=settings.base_url, limit_bytes=limit_bytes, stored=stored,
        )  # fmt: skip
        message_id, job_id, account_id = new_id("msg"), job.job_id, job.account_id
        told = {"message_id": message_id, "account_id": account_id, "job_id": job_id, "type": event}
        messages.append(told | {"sequence": sequence, "body": body})
        deliveries += [(message_id, endpoint_id) for endpoint_id in listeners[event]]
    session.connection().execute(insert(WebhookMessage), messages)
    news_of(session).job_ids.add(job.job_id)
    return _write_deliveries(session, job.account_id, deliveries)


def _take_sequence(session: Session, job: Job, events: int) -> int:
    """The number of the last of so many events of the job that come next."""
    last = session.connection().execute(_NEXT_SEQUENCE, {"job_id": job.job_id, "events": events}).scalar_one()
    set_committed_value(job, "sequence", last)  # as the row now has it, so that nobody writes it back
    return int(last)


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
    if job_id is not None:
        news_of(session).job_ids.add(job_id)
    return session.connection().execute(once).scalar_one_or_none()


def write_deliveries(session: Session, message_id: str, account_id: str, endpoint_ids: Sequence[str]) -> int:
    """Number of deliveries written, due now; an endpoint gets an event once."""
    return _write_deliveries(session, account_id, [(message_id, endpoint_id) for endpoint_id in endpoint_ids])


def _write_deliveries(session: Session, account_id: str, wanted: Sequence[tuple[str, str]]) -> int:
    """Number of deliveries written for these pairs of event and endpoint."""
    values = {
        "account_id": account_id,
        "message_ids": [message_id for message_id, _ in wanted],
        "endpoint_ids": [endpoint_id for _, endpoint_id in wanted],
    }
    written = len(session.connection().execute(_DELIVER, values).all()) if wanted else 0
    news_of(session).deliveries |= written > 0
    return written


def _listeners(session: Session, account_id: str, event: str) -> list[str]:
    return [endpoint_id for endpoint_id, _, events in _open_endpoints(session, account_id) if subscribes(events, event)]


def _job_listeners(session: Session, job: Job, event: str, enabled: Enabled) -> list[str]:
    """The account's endpoints that want the event, and the job's own unless an enabled endpoint has the same URL."""
    found = [endpoint_id for endpoint_id, _, events in enabled if subscribes(events, event)]
    if job.webhook_endpoint_id is None or not subscribes(job.webhook_events or DEFAULT_EVENTS, event):
        return found
    own = session.get(WebhookEndpoint, job.webhook_endpoint_id)
    if own is not None and own.url not in {url for _, url, _ in enabled}:
        found.append(own.endpoint_id)
    return found


def _open_endpoints(session: Session, account_id: str) -> Enabled:
    query = select(WebhookEndpoint.endpoint_id, WebhookEndpoint.url, WebhookEndpoint.events).where(
        col(WebhookEndpoint.account_id) == account_id,
        col(WebhookEndpoint.enabled),
        col(WebhookEndpoint.hidden).is_(False),
        col(WebhookEndpoint.deleted_at).is_(None),
    )
    return session.exec(query).all()
