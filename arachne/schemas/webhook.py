"""Webhook endpoints, deliveries and attempts, as they go over the wire."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, PlainSerializer, StrictBool, StrictInt, model_validator

from arachne.schemas.instants import Instant
from arachne.schemas.job import rfc3339
from arachne.schemas.wire import WireModel

DeliveryStatus = Literal["pending", "succeeded", "failed", "cancelled"]
Cause = Literal["event", "test", "redelivery", "recovery"]
Failure = Literal["dns", "refused", "tls", "timeout", "http", "blocked", "ours"]
Moment = Annotated[datetime, PlainSerializer(rfc3339, return_type=str, when_used="json")]
EventFilters = Annotated[list[str], Field(min_length=1, max_length=50)]
Description = Annotated[str, Field(max_length=500)]


class EndpointRequest(WireModel):
    """A new endpoint; `events` None means the default ones."""

    url: str
    events: EventFilters | None = None
    description: Description | None = None
    enabled: StrictBool = True


class EndpointChange(WireModel):
    """Changes of an endpoint: members that are absent stay as they are; `events` None means the default ones."""

    url: str | None = None
    events: EventFilters | None = None
    description: Description | None = None
    enabled: StrictBool | None = None


class RotateRequest(WireModel):
    """For how long the old secret goes on signing beside the new one, seconds."""

    grace_seconds: Annotated[StrictInt, Field(ge=0, le=30 * 86_400)] = 86_400


class RecoverRequest(WireModel):
    """Which events an endpoint missed: from `since`, else since it was made, to before `until`, else to now."""

    since: Instant | None = None
    until: Instant | None = None
    dry_run: StrictBool = False

    @model_validator(mode="after")
    def _forward(self) -> "RecoverRequest":
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ValueError("`since` must be before `until`")
        return self


class MissedView(WireModel):
    """An event an endpoint missed; `status` is what became of its delivery, null where there was none."""

    message_id: str
    event: str
    created_at: Moment
    status: DeliveryStatus | None


class RecoveryView(WireModel):
    """The missed events, oldest first: due now, or with `dry_run` only listed. `more`: call again for the rest."""

    dry_run: bool
    count: int
    more: bool
    data: list[MissedView]


class EndpointView(WireModel):
    """An endpoint as its account sees it."""

    endpoint_id: str
    url: str
    events: list[str]
    description: str | None
    enabled: bool
    disabled_at: Moment | None
    disabled_reason: str | None
    created_at: Moment


class NewEndpointView(EndpointView):
    """An endpoint just made; its secret is shown only now."""

    secret: str


class SecretView(WireModel):
    """A signing secret, and until when the one before it signs as well."""

    secret: str
    old_secret_until: Moment | None


class AttemptView(WireModel):
    """One request to an endpoint and what came of it. `response` is at most 2 kB, null from a private address.

    `cause` is why it was made: the event itself, a test, or that somebody asked to have it again.
    """

    at: Moment
    number: int
    cause: Cause
    status_code: int | None
    ms: int
    failure: Failure | None
    response: str | None


class DeliveryView(WireModel):
    """One event on its way to one endpoint."""

    message_id: str
    endpoint_id: str
    event: str
    status: DeliveryStatus
    attempt_count: int
    cause: Cause
    next_attempt_at: Moment | None
    reason: str | None
    created_at: Moment
    finished_at: Moment | None


class DeliveryDetailView(DeliveryView):
    """A delivery with every attempt, and the body as it is signed and sent."""

    attempts: list[AttemptView]
    body: str


class EventView(WireModel):
    """An event: the members of its body as they are signed and sent, and its id before them."""

    message_id: str
    type: str
    timestamp: Moment
    data: dict[str, object]
