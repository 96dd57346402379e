"""Query parameters of the routes that read."""

from datetime import date
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from arachne.schemas.instants import DAY, DIGITS, Instant
from arachne.schemas.job import JobStatus
from arachne.schemas.usage import Grouping
from arachne.schemas.webhook import DeliveryStatus
from arachne.schemas.wire import WireModel

FIRST_DAY = date(2000, 1, 1)
MONTH = r"^2[0-9]{3}-(0[1-9]|1[0-2])$"
TextFormat = Literal["json", "md", "txt"]
RenderedFormat = Literal["hocr", "pdf", "png"]
Format = Literal[TextFormat, RenderedFormat]
Cursor = Annotated[str, Field(max_length=200)]
Limit = Annotated[int, DIGITS, Field(ge=1, le=200)]


class PageQuery(WireModel):
    """A page of a list."""

    limit: Limit = 50
    cursor: Cursor | None = None


class JobQuery(WireModel):
    """How to show a job. `wait` is in seconds, clamped to 60."""

    wait: Annotated[int, DIGITS, Field(ge=0)] = 0
    include: Literal["results"] | None = None
    images_cursor: Cursor | None = None


class JobsQuery(PageQuery):
    """Which jobs."""

    status: JobStatus | None = None
    created_after: Instant | None = None


class ResultQuery(WireModel):
    """In which form a result is wanted."""

    format: Format = "json"
    page: Annotated[int, DIGITS, Field(ge=0, le=10_000)] | None = None


class UsageQuery(WireModel):
    """Which days, UTC: from `from` to before `to`."""

    model_config = ConfigDict(populate_by_name=True)

    start: Annotated[date | None, DAY, Field(alias="from", ge=FIRST_DAY)] = None
    end: Annotated[date | None, DAY, Field(alias="to", gt=FIRST_DAY)] = None
    group: Grouping = "day"

    @model_validator(mode="after")
    def _forward(self) -> "UsageQuery":
        if self.start is not None and self.end is not None and self.start >= self.end:
            raise ValueError("`from` must be before `to`")
        return self


class StatementQuery(WireModel):
    """Which month, UTC; this one by default."""

    month: Annotated[str | None, Field(pattern=MONTH)] = None


class DeliveriesQuery(PageQuery):
    """Which deliveries."""

    status: DeliveryStatus | None = None
    event: Annotated[str, Field(max_length=100)] | None = None
