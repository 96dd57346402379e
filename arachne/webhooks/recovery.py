"""Sending an endpoint what it missed: events it never got, or whose delivery failed or was cancelled."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlmodel import Session

from arachne.errors import Conflict
from arachne.news import news_of
from arachne.schemas.tables import WebhookEndpoint
from arachne.schemas.webhook import MissedView
from arachne.webhooks.endpoints import find_endpoint
from arachne.webhooks.events import EVENT_TYPES, subscribes

MAX_AT_ONCE = 1000

# Tests are sent once, what was said of an endpoint's end isn't told to itself, and nothing is sent of deleted jobs.
_MISSED = text("""
SELECT m.message_id, m.type, m.created_at, d.state
FROM webhook_message m LEFT JOIN webhook_delivery d ON d.message_id = m.message_id AND d.endpoint_id = :endpoint_id
WHERE m.account_id = :account_id AND m.created_at >= :since
  AND m.created_at < coalesce(CAST(:until AS timestamptz), now())
  AND m.type = ANY(:events) AND NOT m.redacted AND (d.state IS NULL OR d.state IN ('failed', 'cancelled'))
  AND (m.job_id IS NOT NULL OR position(convert_to(:endpoint_id, 'UTF8') IN m.body) = 0)
ORDER BY m.created_at, m.message_id LIMIT :limit
""")
_SEND = text("""
INSERT INTO webhook_delivery (message_id, endpoint_id, account_id, state, attempts, cause, next_attempt_at)
SELECT message_id, :endpoint_id, :account_id, 'pending', 0, 'recovery', now()
FROM unnest(CAST(:message_ids AS text[])) AS missed(message_id) ORDER BY message_id
ON CONFLICT (message_id, endpoint_id) DO UPDATE
SET state = 'pending', charged = 0, cause = 'recovery', redelivery = false, next_attempt_at = now(), retry_at = NULL,
    reason = NULL, finished_at = NULL, claim_id = NULL, lease_until = NULL
WHERE webhook_delivery.state IN ('failed', 'cancelled')
""")


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was missed, oldest first, and whether there is more of it than one call takes."""

    missed: list[MissedView]
    more: bool


def recover(
    session: Session,
    account_id: str,
    endpoint_id: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    dry_run: bool = False,
    limit: int = MAX_AT_ONCE,
) -> Recovery:
    """What the endpoint missed from `since`, else since it was made, to before `until`, else to now.

    It is due now, each on a retry schedule begun anew, unless `dry_run`. What is on its way already is not among it, so
    that a second call sends nothing twice.

    Raises:
        NotFound: this account has no such endpoint.
        Conflict: the endpoint is disabled, and this is no `dry_run`.
    """
    endpoint = find_endpoint(session, account_id, endpoint_id, for_change=not dry_run)
    if not endpoint.enabled and not dry_run:
        raise Conflict("The endpoint is disabled; enable it first.")
    rows = _find(session, endpoint, since or endpoint.created_at, until, limit + 1)
    missed = [
        MissedView(message_id=row.message_id, event=row.type, created_at=row.created_at, status=row.state)
        for row in rows[:limit]
    ]
    if missed and not dry_run:
        values = {"endpoint_id": endpoint_id, "account_id": account_id}
        session.connection().execute(_SEND, values | {"message_ids": [one.message_id for one in missed]})
        news_of(session).deliveries = True
    return Recovery(missed, len(rows) > limit)


def _find(
    session: Session, endpoint: WebhookEndpoint, since: datetime, until: datetime | None, limit: int
) -> Sequence[Row[Any]]:
    wanted = [event for event in EVENT_TYPES if event != "webhook.test" and subscribes(endpoint.events, event)]
    values = {"endpoint_id": endpoint.endpoint_id, "account_id": endpoint.account_id, "events": wanted}
    return session.connection().execute(_MISSED, values | {"since": since, "until": until, "limit": limit}).all()
