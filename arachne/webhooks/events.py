"""Names of events, and the filters endpoints subscribe with."""

from collections.abc import Sequence
from typing import Literal, get_args

from arachne.errors import InvalidOptions

EventType = Literal[
    "job.started",
    "image.completed",
    "image.failed",
    "job.completed",
    "job.partial",
    "job.failed",
    "job.cancelled",
    "webhook.test",
    "webhook.endpoint.disabled",
]
EVENT_TYPES: tuple[EventType, ...] = get_args(EventType)
DEFAULT_EVENTS = ("job.completed", "job.partial", "job.failed", "job.cancelled", "webhook.endpoint.disabled")


def check_filters(filters: Sequence[str] | None, *, inside: tuple[str, ...] = ()) -> list[str]:
    """The filters, each once and in order; the default ones for None. They came as `events` `inside` of the request.

    Raises:
        InvalidOptions: one of them can't match any event.
    """
    if filters is None:
        return list(DEFAULT_EVENTS)
    told = f"matches no event; events are {', '.join(EVENT_TYPES)}, or a prefix with .*"
    faults = [
        {"loc": [*inside, "events", index], "msg": told}
        for index, name in enumerate(filters)
        if not any(_matches(name, event) for event in EVENT_TYPES)
    ]
    if faults or not filters:
        raise InvalidOptions("`events` names no event that exists.", errors=faults)  # type: ignore[arg-type]  # as FieldError
    return list(dict.fromkeys(filters))


def subscribes(filters: Sequence[str], event: str) -> bool:
    """Whether one of the filters matches `event`."""
    return any(_matches(name, event) for name in filters)


def _matches(name: str, event: str) -> bool:
    return name in {event, "*"} or (name.endswith(".*") and event.startswith(name[:-1]))
