"""Endpoints of an account: made, changed, disabled, deleted; and the hidden ones of jobs."""

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import ColumnElement, func, text
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col, select

from arachne.errors import Conflict, NotFound
from arachne.ids import new_id
from arachne.net.urls import CheckedUrl
from arachne.schemas.tables import Account, WebhookEndpoint
from arachne.schemas.webhook import EndpointChange, EndpointRequest, EndpointView, NewEndpointView
from arachne.secretbox import SecretBox
from arachne.signatures.signing import new_secret
from arachne.webhooks.cancellation import cancel_pending
from arachne.webhooks.events import check_filters
from arachne.webhooks.sealing import endpoint_purpose, seal

MAX_ENDPOINTS = 200
_FREE = text("""
UPDATE webhook_delivery SET claim_id = NULL, lease_until = NULL, next_attempt_at = now()
WHERE endpoint_id = :endpoint_id AND claim_id IS NOT NULL AND state = 'pending'
""")


@dataclass(frozen=True, slots=True)
class Page:
    """Some endpoints, and the cursor that continues them."""

    data: list[EndpointView]
    next_cursor: str | None


def create_endpoint(
    session: Session, box: SecretBox, account_id: str, request: EndpointRequest, url: CheckedUrl
) -> NewEndpointView:
    """A new endpoint with its secret, which is never shown again; `url` is the request's, checked.

    Raises:
        InvalidOptions: an event filter matches nothing.
        Conflict: the account has too many endpoints.
    """
    filters = check_filters(request.events)
    _require_room(session, account_id)
    secret, endpoint_id = new_secret(), new_id("whe")
    endpoint = WebhookEndpoint(
        endpoint_id=endpoint_id,
        account_id=account_id,
        url=url.url,
        events=filters,
        description=request.description,
        enabled=request.enabled,
        secret=seal(box, secret, endpoint_purpose(endpoint_id)),
        disabled_at=None if request.enabled else datetime.now(UTC),
        disabled_reason=None if request.enabled else "Disabled by request.",
        created_at=datetime.now(UTC),
    )
    session.add(endpoint)
    session.flush()
    return NewEndpointView(**view_endpoint(endpoint).model_dump(), secret=secret)


def _require_room(session: Session, account_id: str) -> None:
    """Nothing, where one more may be made; until the transaction ends the account makes no other."""
    session.get(Account, account_id, with_for_update={"key_share": True}, populate_existing=True)
    visible = select(func.count()).select_from(WebhookEndpoint).where(*_visible(account_id))
    if session.exec(visible).one() >= MAX_ENDPOINTS:
        raise Conflict(f"An account has at most {MAX_ENDPOINTS} endpoints; delete one.")


def find_endpoint(session: Session, account_id: str, endpoint_id: str, *, for_change: bool = False) -> WebhookEndpoint:
    """The endpoint, its row locked if it is to be changed.

    Raises:
        NotFound: this account has no such endpoint.
    """
    query = select(WebhookEndpoint).where(*_visible(account_id), col(WebhookEndpoint.endpoint_id) == endpoint_id)
    if for_change:
        query = query.with_for_update(key_share=True).execution_options(populate_existing=True)
    endpoint = session.exec(query).first()
    if endpoint is None:
        raise NotFound("There is no such webhook endpoint.")
    return endpoint


def list_endpoints(session: Session, account_id: str, *, limit: int = 50, cursor: str | None = None) -> Page:
    """Endpoints, oldest first, from after `cursor`."""
    query = select(WebhookEndpoint).where(*_visible(account_id), col(WebhookEndpoint.endpoint_id) > (cursor or ""))
    rows = session.exec(query.order_by(col(WebhookEndpoint.endpoint_id)).limit(limit + 1)).all()
    more = len(rows) > limit
    return Page([view_endpoint(row) for row in rows[:limit]], rows[limit - 1].endpoint_id if more else None)


def update_endpoint(
    session: Session,
    account_id: str,
    endpoint_id: str,
    change: EndpointChange,
    url: CheckedUrl | None,
) -> EndpointView:
    """The endpoint with what `change` has set; `url` is the change's, checked.

    A null clears the description, and makes the events the default ones.
    Disabling cancels its pending deliveries; enabling, or another URL, starts it clean. An endpoint that was enabled
    again gets one request at a time until it takes one.

    Raises:
        NotFound: this account has no such endpoint.
        InvalidOptions: an event filter matches nothing.
    """
    endpoint = find_endpoint(session, account_id, endpoint_id, for_change=True)
    if url is not None and url.url != endpoint.url:
        _move(session, endpoint, url)
    if "events" in change.model_fields_set:
        endpoint.events = check_filters(change.events)
    if "description" in change.model_fields_set:
        endpoint.description = change.description
    if change.enabled is not None and change.enabled != endpoint.enabled:
        _switch(session, endpoint, enabled=change.enabled)
    session.add(endpoint)
    session.flush()
    return view_endpoint(endpoint)


def _move(session: Session, endpoint: WebhookEndpoint, url: CheckedUrl) -> None:
    """What is being sent to the former URL is sent anew, and what comes of it there says nothing of this one."""
    endpoint.url, endpoint.first_failure_at = url.url, None
    session.connection().execute(_FREE, {"endpoint_id": endpoint.endpoint_id})


def _switch(session: Session, endpoint: WebhookEndpoint, *, enabled: bool) -> None:
    cancel_pending(session, endpoint.endpoint_id, "the endpoint was disabled")
    endpoint.enabled = endpoint.half_open = enabled
    endpoint.first_failure_at = None
    endpoint.disabled_at = None if enabled else datetime.now(UTC)
    endpoint.disabled_reason = None if enabled else "Disabled by request."


def delete_endpoint(session: Session, account_id: str, endpoint_id: str) -> None:
    """Nothing; the endpoint is gone, its secrets erased and its pending deliveries cancelled.

    Raises:
        NotFound: this account has no such endpoint.
    """
    endpoint = find_endpoint(session, account_id, endpoint_id, for_change=True)
    endpoint.enabled, endpoint.deleted_at = False, datetime.now(UTC)
    endpoint.secret, endpoint.secrets_old, endpoint.secrets_old_until = None, [], []
    session.add(endpoint)
    session.flush()
    cancel_pending(session, endpoint_id, "the endpoint was deleted")


def ensure_job_endpoint(session: Session, account_id: str, url: CheckedUrl) -> str:
    """Id of the account's hidden endpoint for a job's own `webhook` URL, made when there is none.

    It is never disabled and signs with the account's default secret. The job keeps this id and its own event filters.
    Until the transaction ends nobody removes it as unused.
    """
    row = insert(WebhookEndpoint).values(
        endpoint_id=new_id("whe"),
        account_id=account_id,
        url=url.url,
        events=[],
        enabled=True,
        hidden=True,
        max_in_flight=10,
    )
    once = row.on_conflict_do_nothing(index_elements=["account_id", "url"], index_where=text("hidden"))
    query = select(WebhookEndpoint.endpoint_id).where(
        col(WebhookEndpoint.account_id) == account_id, col(WebhookEndpoint.url) == url.url, col(WebhookEndpoint.hidden)
    )
    endpoint_id = None
    while endpoint_id is None:  # removed as unused between the two statements: made again
        session.exec(once)
        endpoint_id = session.exec(query.with_for_update(key_share=True, read=True)).first()
    return endpoint_id


def view_endpoint(endpoint: WebhookEndpoint) -> EndpointView:
    """The endpoint as its account sees it."""
    return EndpointView(
        endpoint_id=endpoint.endpoint_id,
        url=endpoint.url,
        events=endpoint.events,
        description=endpoint.description,
        enabled=endpoint.enabled,
        disabled_at=endpoint.disabled_at,
        disabled_reason=endpoint.disabled_reason,
        created_at=endpoint.created_at,
    )


def _visible(account_id: str) -> tuple[ColumnElement[bool], ...]:
    return (
        col(WebhookEndpoint.account_id) == account_id,
        col(WebhookEndpoint.deleted_at).is_(None),
        col(WebhookEndpoint.hidden).is_(False),
    )
