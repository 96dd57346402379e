"""What the health endpoints answer: states only."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

State = Literal["ok", "degraded", "unavailable", "not_configured"]


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Health(_Wire):
    """The process lives."""

    status: State


class Checks(_Wire):
    """The state of each part the service needs."""

    postgres: State
    redis: State
    storage: State
    cache: State
    vlm: State


class Readiness(_Wire):
    """Whether the service can do its work."""

    status: State
    checks: Checks
