"""The log of deliveries: what was sent where, every attempt, and sending again."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func
from sqlmodel import Session, col, select

from arachne.errors import Conflict, Gone, NotFound
from arachne.news import news_of
from arachne.schemas.tables import WebhookAttempt, WebhookDelivery, WebhookMessage
from arachne.schemas.webhook import DeliveryDetailView, DeliveryStatus, DeliveryView
from arachne.webhooks.endpoints import find_endpoint
from arachne.webhooks.record import view_attempt

MAX_ATTEMPTS_SHOWN = 200


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """Some deliveries, and the cursor that continues them."""

    data: list[DeliveryView]
    next_cursor: str | None


def list_deliveries(
    session: Session,
    account_id: str,
    endpoint_id: str,
    *,
    status: DeliveryStatus | None = None,
    event: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> DeliveryPage:
    """An endpoint's deliveries, newest first, from before `cursor`.

    Raises:
        NotFound: this account has no such endpoint.
    """
    find_endpoint(session, account_id, endpoint_id)
    query = (
        select(WebhookDelivery, WebhookMessage.type)
        .join(WebhookMessage, col(WebhookMessage.message_id) == col(WebhookDelivery.message_id))
        .where(col(WebhookDelivery.endpoint_id) == endpoint_id)
    )
    if status is not None:
        query = query.where(col(WebhookDelivery.state) == status)
    if event is not None:
        query = query.where(col(WebhookMessage.type) == event)
    if cursor is not None:
        query = query.where(col(WebhookDelivery.message_id) < cursor)
    rows = session.exec(query.order_by(col(WebhookDelivery.message_id).desc()).limit(limit + 1)).all()
    views = [DeliveryView.model_validate(_members(delivery, kind)) for delivery, kind in rows[:limit]]
    return DeliveryPage(views, views[-1].message_id if len(rows) > limit else None)


def get_delivery(session: Session, account_id: str, endpoint_id: str, message_id: str) -> DeliveryDetailView:
    """A delivery with its attempts in their order (the latest ones, if there are very many).

    Raises:
        NotFound: this account has no such endpoint, or it no such delivery.
    """
    find_endpoint(session, account_id, endpoint_id)
    delivery = _find_delivery(session, endpoint_id, message_id)
    message = session.get_one(WebhookMessage, message_id)
    query = select(WebhookAttempt).where(
        col(WebhookAttempt.message_id) == message_id, col(WebhookAttempt.endpoint_id) == endpoint_id
    )
    latest = session.exec(query.order_by(col(WebhookAttempt.at).desc()).limit(MAX_ATTEMPTS_SHOWN)).all()
    extra = {"attempts": [view_attempt(row) for row in reversed(latest)], "body": message.body.decode()}
    return DeliveryDetailView.model_validate(_members(delivery, message.type) | extra)


def redeliver(session: Session, account_id: str, endpoint_id: str, message_id: str) -> DeliveryView:
    """The delivery, due now whatever became of it before, beside the retry schedule, which goes on where it is.

    Raises:
        NotFound: this account has no such endpoint, or it no such delivery.
        Conflict: the endpoint is disabled, or the delivery is being sent just now.
        Gone: the event's job was deleted.
    """
    endpoint = find_endpoint(session, account_id, endpoint_id, for_change=True)
    if not endpoint.enabled:
        raise Conflict("The endpoint is disabled; enable it first.")
    delivery = _find_delivery(session, endpoint_id, message_id, lock=True)
    now = session.exec(select(func.now())).one()
    if delivery.claim_id is not None and delivery.lease_until is not None and delivery.lease_until > now:
        raise Conflict("This delivery is being sent just now.")
    message = session.get_one(WebhookMessage, message_id)
    if message.redacted:
        raise Gone("The event's job was deleted, and what it told is erased.")
    _make_due(delivery, now)
    session.add(delivery)
    session.flush()
    news_of(session).deliveries = True
    return DeliveryView.model_validate(_members(delivery, message.type))


def _make_due(delivery: WebhookDelivery, now: datetime) -> None:
    """One attempt is due; a retry that is to come keeps its time, and one that is due already serves as well."""
    pending, next_at = delivery.state == "pending", delivery.next_attempt_at
    if pending and next_at is not None and next_at <= now:
        return
    if not delivery.redelivery or not pending:
        delivery.retry_at = next_at if pending else None
    delivery.state, delivery.redelivery, delivery.next_attempt_at = "pending", True, now
    delivery.reason = delivery.finished_at = delivery.claim_id = delivery.lease_until = None


def _find_delivery(session: Session, endpoint_id: str, message_id: str, *, lock: bool = False) -> WebhookDelivery:
    key = (message_id, endpoint_id)
    delivery = session.get(WebhookDelivery, key, with_for_update=lock or None, populate_existing=lock)
    if delivery is None:
        raise NotFound("There is no such delivery.")
    return delivery


def _members(delivery: WebhookDelivery, event: str) -> dict[str, object]:
    return {
        "message_id": delivery.message_id,
        "endpoint_id": delivery.endpoint_id,
        "event": event,
        "status": delivery.state,
        "attempt_count": delivery.attempts,
        "cause": "redelivery" if delivery.redelivery else delivery.cause,
        "next_attempt_at": delivery.next_attempt_at,
        "reason": delivery.reason,
        "created_at": delivery.created_at,
        "finished_at": delivery.finished_at,
    }
