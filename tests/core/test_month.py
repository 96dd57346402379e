"""A month of simulated use: what the ledger, the report and the statement say is what a recount from the record says.

The record is the simulation's own; prices are counted in whole millionths there, so that no sum is ever rounded.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random

import pytest
from sqlalchemy import text

from arachne.accounts import create_account
from arachne.database import Database, Transaction
from arachne.ledger import charge
from arachne.plans import assign_plan, change_plan, create_plan
from arachne.schemas.plan import NewPlan, PlanTerms
from arachne.statement import make_statement
from arachne.usage import report_usage

IMAGES = 100_000
MODEL = "qwen2.5vl:7b@0123456789ab"
MONTH = date(2026, 3, 1)
START, END = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
TICK = timedelta(microseconds=1)
# Millionths for an image read, one from the cache, and the model's description.
FIRST, DEARER, OTHER = (2_100, 333, 10_007), (2_500, 334, 10_009), (1_799, 101, 8_001)

JOB = text("""
INSERT INTO job (job_id, account_id, subject, state, single, options, labels, total, completed, failed, cancelled,
                 cached, degraded, sequence, deadline_at)
VALUES (:job_id, :account_id, 'somebody', 'completed', false, '{}', '{}', :total, 0, 0, 0, 0, 0, 0, now())
""")
IMAGE = text("""
INSERT INTO image (image_id, job_id, account_id, index, fetch_attempts, size_bytes, units, state, due_at, attempts,
                   lost_leases, cached, degraded, model_version, finished_at)
SELECT given.image_id, :job_id, :account_id, index, 0, 100, units, state, now(), 0, 0, cached, degraded, model_version,
       finished_at
FROM unnest(CAST(:ids AS text[]), CAST(:indexes AS int[]), CAST(:units AS int[]), CAST(:states AS text[]),
            CAST(:cached AS bool[]), CAST(:degraded AS bool[]), CAST(:models AS text[]),
            CAST(:moments AS timestamptz[]))
    AS given(image_id, index, units, state, cached, degraded, model_version, finished_at)
""")


@dataclass(frozen=True)
class Use:
    """An image of the simulation: how it ended and when."""

    image_id: str
    kind: str
    units: int
    at: datetime
    prices: tuple[int, int, int] = FIRST

    @property
    def millionths(self) -> int:
        """What it costs."""
        read, cached, vlm = self.prices
        return {
            "described": self.units * read + vlm, "read": self.units * read, "degraded": self.units * read,
            "cached": self.units * cached,
        }.get(self.kind, 0)  # fmt: skip


def prices_at(moment: datetime) -> tuple[int, int, int]:
    """The plan is changed for another on the 16th, whose prices had gone up on the 10th."""
    return FIRST if moment.day < 10 else DEARER if moment.day < 16 else OTHER


def simulate(random: Random, images: int) -> Iterator[list[Use]]:
    """The month's days: a third from the cache, one in ten degraded, and half of these sent again and described."""
    kinds = (
        ["described"] * 30 + ["read"] * 20 + ["cached"] * 33 + ["degraded"] * 10 + ["failed"] * 5 + ["cancelled"] * 2
    )
    number = 0
    for day in range(31):
        begin, uses = START + timedelta(days=day), []
        for _ in range(images // 31 + (day < images % 31)):
            kind, units = random.choice(kinds), random.choice([1, 1, 1, 1, 2, 7])
            moment = begin + timedelta(microseconds=random.randrange(86_400_000_000))
            again = [kind] if kind != "degraded" or random.random() < 0.5 else [kind, "described"]
            for one in again:
                uses.append(Use(f"img_{number:06}", one, units, moment, prices_at(moment)))
                number += 1
        yield uses
    assert number >= images


def put(transaction: Transaction, account_id: str, uses: list[Use]) -> None:
    """A job of these images, finished as they were, on record as the queue leaves them."""
    job_id = f"job_{uses[0].image_id}"
    transaction.session.execute(JOB, {"job_id": job_id, "account_id": account_id, "total": len(uses)})
    transaction.session.execute(
        IMAGE,
        {
            "job_id": job_id, "account_id": account_id, "ids": [use.image_id for use in uses],
            "indexes": list(range(len(uses))), "units": [use.units for use in uses],
            "states": [use.kind if use.kind in {"failed", "cancelled"} else "completed" for use in uses],
            "cached": [use.kind == "cached" for use in uses], "degraded": [use.kind == "degraded" for use in uses],
            "models": ["none" if use.kind == "read" else MODEL for use in uses],
            "moments": [use.at for use in uses],
        },
    )  # fmt: skip


def bill(transaction: Transaction, random: Random, uses: list[Use]) -> None:
    """Everything goes to the ledger, as do failed and cancelled ones, and a third once more by a late worker."""
    ids = [use.image_id for use in uses]
    described = [use.image_id for use in uses if use.kind == "described"]
    charge(transaction, described, cpu_s=0.5, gpu_s=0.25)
    charge(transaction, ids, cpu_s=0.125)
    charge(transaction, random.sample(ids, len(ids) // 3), cpu_s=99.0, gpu_s=99.0)


def plan(prices: tuple[int, int, int]) -> dict[str, Decimal]:
    names = ("price_image", "price_cached", "price_vlm")
    return {name: Decimal(price).scaleb(-6) for name, price in zip(names, prices, strict=True)}


def to_cents(millionths: int) -> Decimal:
    """Whole cents by integers alone: half a cent goes to the even one."""
    cents, rest = divmod(millionths, 10_000)
    up = rest > 5_000 or (rest == 5_000 and cents % 2 == 1)
    return Decimal(cents + up).scaleb(-2)


@pytest.mark.processes
def test_a_month_of_use_adds_up_to_a_recount(database: Database) -> None:
    """100,000 images: retries, cache hits, degraded ones, frames, a dearer price and another plan meanwhile."""
    random, record = Random(20260301), list[Use]()
    with database.transaction() as transaction:
        session = transaction.session
        create_plan(session, NewPlan.model_validate({"plan_id": "first", "currency": "EUR", **plan(FIRST)}))
        create_plan(session, NewPlan.model_validate({"plan_id": "other", "currency": "EUR", **plan(OTHER)}))
        mine = create_account(session, "mine", plan_id="first").account_id
        neighbour = create_account(session, "neighbour", plan_id="other").account_id
        edges = [Use("img_before", "read", 1, START - TICK), Use("img_after", "read", 1, END)]
        put(transaction, mine, edges)
        bill(transaction, random, edges)
        put(transaction, neighbour, [Use("img_neighbour", "read", 1, START)])
        charge(transaction, ["img_neighbour"])
    for day, uses in enumerate(simulate(random, IMAGES), start=1):
        with database.transaction() as transaction:
            if day == 10:
                change_plan(transaction.session, "first", PlanTerms.model_validate(plan(DEARER)))
            if day == 16:
                assign_plan(transaction.session, "mine", "other")
            put(transaction, mine, uses)
            bill(transaction, random, uses)
        record += uses
    with database.transaction() as transaction:
        change_plan(transaction.session, "other", PlanTerms.model_validate(plan((9, 9, 9))))
        compare(transaction, mine, [use for use in record if use.kind not in {"failed", "cancelled"}])


def compare(transaction: Transaction, account_id: str, billed: list[Use]) -> None:
    """The statement and the report say what the record says."""
    statement = make_statement(transaction, account_id, MONTH.replace(day=31))
    total = sum(use.millionths for use in billed)
    assert statement.subtotal == Decimal(total).scaleb(-6)
    assert (statement.currency, statement.final, statement.amount_due) == ("EUR", True, to_cents(total))
    lines: Counter[tuple[str, tuple[int, int, int]]] = Counter()
    units: Counter[tuple[str, tuple[int, int, int]]] = Counter()
    for use in billed:
        lines[use.kind, use.prices] += use.millionths
        units[use.kind, use.prices] += use.units
    assert sorted(line.amount for line in statement.lines) == sorted(Decimal(n).scaleb(-6) for n in lines.values())
    assert sorted(line.images for line in statement.lines) == sorted(units.values())
    assert all(line.amount == line.images * line.unit_price + line.entries * line.vlm_price for line in statement.lines)
    report = report_usage(transaction, account_id, start=MONTH, end=date(2026, 4, 1))
    days = Counter[str]()
    for use in billed:
        days[f"{use.at:%Y-%m-%d}"] += use.millionths
    assert {row.key: row.amount_due for row in report.data} == {k: Decimal(n).scaleb(-6) for k, n in days.items()}
    described = sum(use.kind == "described" for use in billed)
    assert report.total.model_dump() == {
        "images": sum(use.units for use in billed),
        "cached": sum(use.units for use in billed if use.kind == "cached"),
        "degraded": sum(use.units for use in billed if use.kind == "degraded"),
        "gpu_seconds": described * 0.25,
        "cpu_seconds": described * 0.5 + (len(billed) - described) * 0.125,
        "bytes": len(billed) * 100,
        "amount_due": statement.subtotal,
    }
