"""What the health endpoints answer: states only."""

from typing import Literal

from arachne.schemas.wire import WireModel

State = Literal["ok", "degraded", "unavailable", "not_configured"]


class Health(WireModel):
    """The process lives."""

    status: State


class Checks(WireModel):
    """The state of each part the service needs."""

    postgres: State
    redis: State
    storage: State
    cache: State
    vlm: State


class Readiness(WireModel):
    """Whether the service can do its work."""

    status: State
    checks: Checks
