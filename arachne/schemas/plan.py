"""Plans: what images cost, how many there may be, how fast, and with what share of the workers."""

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from arachne.schemas.limits import parse_rate
from arachne.schemas.money import Price
from arachne.schemas.wire import WireModel

RateName = Literal[
    "vision", "images", "reads", "other", "account_vision", "account_images", "account_reads", "account_other"
]
OF_ACCOUNT = "account_"  # before the name of a cap for all users of an account together


def _is_rate(text: str) -> str:
    parse_rate(text)
    return text.strip()


PlanId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Rate = Annotated[str, AfterValidator(_is_rate)]


class PlanTerms(WireModel):
    """Prices an image, images a month (null: any number), rates, and the share of the workers.

    `price_vlm` comes on top where an image is described. `rates` are in the place of the settings': those of a user,
    and with `account_` before the name caps for all users of an account together.
    """

    price_image: Price = Decimal(0)
    price_cached: Price = Decimal(0)
    price_vlm: Price = Decimal(0)
    monthly_images: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    rates: dict[RateName, Rate] = Field(default={})
    priority: Annotated[int, Field(ge=0, le=3)] = 0
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    max_in_flight: Annotated[int, Field(ge=1, le=1_000_000)] = 1000


class NewPlan(PlanTerms):
    """A plan to be made. Its currency stays as it is for good."""

    plan_id: PlanId
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = "USD"
