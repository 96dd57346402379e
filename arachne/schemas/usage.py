"""What an account used, and what it owes for it, from the ledger."""

from datetime import date
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from arachne.schemas.money import Due, Money
from arachne.schemas.wire import WireModel

Grouping = Literal["day", "model"]
Kind = Literal["described", "read", "degraded", "cached"]


class Usage(WireModel):
    """Sums of the ledger; `amount_due` is a decimal string with six decimals in the report's currency."""

    images: int
    cached: int
    degraded: int
    gpu_seconds: float
    cpu_seconds: float
    bytes: int
    amount_due: Money


class UsageGroup(Usage):
    """The sums of one day (UTC) or one model version."""

    key: str


class AccountUsage(UsageGroup):
    """The same of one of several accounts; one that was erased has no name."""

    account_id: str
    account: str | None
    currency: str


class UsageReport(WireModel):
    """What an account used from the first moment of `from` to before the first moment of `to` (UTC)."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    start: Annotated[date, Field(alias="from")]
    end: Annotated[date, Field(alias="to")]
    currency: str
    group: Grouping
    total: Usage
    data: list[UsageGroup]


class StatementLine(WireModel):
    """Images of one kind at one price: `amount` is `images` times `unit_price` and `entries` times `vlm_price`.

    `kind` is whether they were described by a model, only read, degraded, or answered from the cache. Each frame of an
    image counts as one of `images`; `entries` are the images as they were sent.
    """

    plan_id: str
    kind: Kind
    unit_price: Money
    vlm_price: Money
    entries: int
    images: int
    amount: Money


class Statement(WireModel):
    """A month (UTC) of an account. `subtotal` is the sum of the lines to the last decimal.

    `amount_due` is the subtotal in whole coins of the currency, rounded this once, halves to the even coin. While
    `final` is false, entries may still be added.
    """

    account_id: str
    month: str
    currency: str
    final: bool
    lines: list[StatementLine]
    images: int
    subtotal: Money
    amount_due: Due
