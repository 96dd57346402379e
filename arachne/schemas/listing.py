"""Lists: a page of something and the cursor that continues it."""

from arachne.schemas.job import JobSummary
from arachne.schemas.webhook import DeliveryView, EndpointView, EventView
from arachne.schemas.wire import WireModel


class JobList(WireModel):
    """Jobs, newest first."""

    data: list[JobSummary]
    next_cursor: str | None


class EndpointList(WireModel):
    """Webhook endpoints, oldest first."""

    data: list[EndpointView]
    next_cursor: str | None


class DeliveryList(WireModel):
    """Deliveries, newest first."""

    data: list[DeliveryView]
    next_cursor: str | None


class EventList(WireModel):
    """Events in the order of the feed; `next_cursor` is null only where there is none yet after the cursor given."""

    data: list[EventView]
    next_cursor: str | None


class ModelView(WireModel):
    """A vision-language model. `digest` is null while no worker has seen it, as are `loaded` and `healthy`."""

    model: str
    route: list[str]
    allowed: bool
    loaded: bool | None
    healthy: bool | None
    digest: str | None


class ModelList(WireModel):
    """The models a request may name."""

    data: list[ModelView]
    next_cursor: str | None
