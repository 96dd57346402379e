"""What an account used, from the ledger."""

from datetime import date
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

Grouping = Literal["day", "model"]
Money = Annotated[Decimal, PlainSerializer(lambda amount: f"{amount:.6f}", return_type=str, when_used="json")]


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Usage(_Wire):
    """Sums of the ledger; `amount` is a decimal string in the report's currency."""

    images: int
    cached: int
    degraded: int
    gpu_seconds: float
    cpu_seconds: float
    bytes: int
    amount: Money


class UsageGroup(Usage):
    """The sums of one day (UTC) or one model version."""

    key: str


class UsageReport(_Wire):
    """What an account used from the first moment of `from` to before the first moment of `to` (UTC)."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, serialize_by_alias=True)

    start: Annotated[date, Field(alias="from")]
    end: Annotated[date, Field(alias="to")]
    currency: str
    group: Grouping
    total: Usage
    data: list[UsageGroup]
