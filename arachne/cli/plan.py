"""`arachne plan …`: what images cost, how many a month, and how fast."""

from typing import Annotated

import typer
from pydantic import BaseModel

from arachne.cli.options import DataDir, Json, load, validate
from arachne.cli.output import print_record, print_rows

app = typer.Typer(help="Create, change and list plans; `arachne account plan` gives one to an account.")
Name = Annotated[str, typer.Argument(metavar="PLAN", help="Name of the plan.")]
Image = Annotated[str | None, typer.Option("--price-image", help="Price of an image that is read, such as 0.002.")]
Cached = Annotated[str | None, typer.Option("--price-cached", help="Price of an image answered from the cache.")]
Vlm = Annotated[str | None, typer.Option("--price-vlm", help="Price on top of an image that is described.")]
Monthly = Annotated[
    str | None, typer.Option("--monthly-images", metavar="N|none", help="Images a month; `none` for any number.")
]
Rates = Annotated[
    list[str] | None,
    typer.Option(
        "--rate",
        metavar="NAME=RATE",
        help="Such as vision=60/minute, in the place of the setting; also images, reads, other, and account_vision "
        "and so on for all users of an account together. May be repeated; all others are the settings'.",
    ),
]
Priority = Annotated[int | None, typer.Option(help="0 to 3; each counts four times the one below.")]
Weight = Annotated[float | None, typer.Option(help="Share of the workers.")]
InFlight = Annotated[int | None, typer.Option("--max-in-flight", help="Images of an account in hand at once.")]
_COLUMNS = ["plan_id", "currency", "price_image", "price_cached", "price_vlm", "monthly_images", "rates"]
_SHARE = ["priority", "weight", "max_in_flight"]


@app.command()
def create(
    name: Name,
    *,
    currency: Annotated[str, typer.Option(help="Three letters of ISO 4217; it stays as it is.")] = "USD",
    price_image: Image = None,
    price_cached: Cached = None,
    price_vlm: Vlm = None,
    monthly_images: Monthly = None,
    rate: Rates = None,
    priority: Priority = None,
    weight: Weight = None,
    max_in_flight: InFlight = None,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Make a plan. Prices are decimals an image; what isn't said costs nothing and is unlimited."""
    from arachne import plans
    from arachne.cli.connection import session_on
    from arachne.schemas.plan import NewPlan

    given = _given(
        price_image=price_image, price_cached=price_cached, price_vlm=price_vlm, monthly_images=monthly_images,
        rate=rate, priority=priority, weight=weight, max_in_flight=max_in_flight,
    )  # fmt: skip
    new = validate(NewPlan, {"plan_id": name, "currency": currency, **given})
    with session_on(load(data_dir)) as session:
        plan = plans.create_plan(session, new)
    print_record(_shown(plan), as_json=json)


@app.command()
def change(
    name: Name,
    *,
    price_image: Image = None,
    price_cached: Cached = None,
    price_vlm: Vlm = None,
    monthly_images: Monthly = None,
    rate: Rates = None,
    priority: Priority = None,
    weight: Weight = None,
    max_in_flight: InFlight = None,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Change what is said of a plan, for images finished from now on. `--rate` replaces all its rates."""
    from arachne import plans
    from arachne.cli.connection import session_on
    from arachne.schemas.plan import PlanTerms

    given = _given(
        price_image=price_image, price_cached=price_cached, price_vlm=price_vlm, monthly_images=monthly_images,
        rate=rate, priority=priority, weight=weight, max_in_flight=max_in_flight,
    )  # fmt: skip
    terms = validate(PlanTerms, given)
    with session_on(load(data_dir)) as session:
        plan = plans.change_plan(session, name, terms)
    print_record(_shown(plan), as_json=json)


@app.command("list")
def list_all(json: Json = False, data_dir: DataDir = None) -> None:
    """List the plans."""
    from arachne import plans
    from arachne.cli.connection import session_on

    with session_on(load(data_dir)) as session:
        rows = [_shown(plan) for plan in plans.list_plans(session)]
    if not json:
        rows = [row | {"rates": ", ".join(f"{k}={v}" for k, v in dict(row["rates"]).items())} for row in rows]  # type: ignore[call-overload]
    print_rows(rows, [*_COLUMNS, *_SHARE], as_json=json)


def _given(*, monthly_images: str | None, rate: list[str] | None, **others: object) -> dict[str, object]:
    """Those terms that were said."""
    rates = dict(_pair(one) for one in rate) if rate else None
    said = {"monthly_images": monthly_images, "rates": rates, **others}
    given: dict[str, object] = {name: value for name, value in said.items() if value is not None}
    if monthly_images == "none":
        given["monthly_images"] = None
    return given


def _pair(given: str) -> tuple[str, str]:
    name, separator, rate = given.partition("=")
    if not separator:
        raise typer.BadParameter(f"{given!r} is not NAME=RATE, such as vision=60/minute.", param_hint="--rate")
    return name.strip(), rate


def _shown(plan: BaseModel) -> dict[str, object]:
    record = plan.model_dump(include={*_COLUMNS, *_SHARE})
    prices = {name: f"{record[name]:.6f}" for name in ("price_image", "price_cached", "price_vlm")}
    return {name: (record | prices)[name] for name in [*_COLUMNS, *_SHARE]}
