"""Lists: a page of something and the cursor that continues it."""

from pydantic import BaseModel, ConfigDict

from arachne.schemas.job import JobSummary
from arachne.schemas.webhook import DeliveryView, EndpointView, EventView


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class JobList(_Wire):
    """Jobs, newest first."""

    data: list[JobSummary]
    next_cursor: str | None


class EndpointList(_Wire):
    """Webhook endpoints, oldest first."""

    data: list[EndpointView]
    next_cursor: str | None


class DeliveryList(_Wire):
    """Deliveries, newest first."""

    data: list[DeliveryView]
    next_cursor: str | None


class EventList(_Wire):
    """Events in the order of the feed; `next_cursor` is null only where there is none yet after the cursor given."""

    data: list[EventView]
    next_cursor: str | None


class ModelView(_Wire):
    """A vision-language model. `digest` is null while no worker has seen it, as are `loaded` and `healthy`."""

    model: str
    route: list[str]
    allowed: bool
    loaded: bool | None
    healthy: bool | None
    digest: str | None


class ModelList(_Wire):
    """The models a request may name."""

    data: list[ModelView]
    next_cursor: str | None
