"""Usage reports add up to the ledger, in days of UTC and to the cent."""

from datetime import date
from decimal import Decimal

from sqlalchemy import text

from arachne.accounts import create_account
from arachne.database import Database
from arachne.usage import report_usage

ENTRY = text("""
INSERT INTO usage_entry (entry_id, account_id, subject, job_id, image_id, at, cached, degraded, model_version, cpu_s,
                         gpu_s, size_bytes, plan_id, unit_price, vlm_price, amount, currency)
VALUES (:id, :account_id, 's', 'j', :id, :at, :cached, :degraded, :model, 0.5, 0.25, 100, 'default', :amount, 0,
        :amount, 'USD')
""")
ROWS = [
    ("2026-01-31T23:59:59Z", False, False, "none", "0.10"),
    ("2026-02-01T00:00:00Z", False, False, "a@1", "0.10"),
    ("2026-02-01T12:00:00Z", True, False, "a@1", "0.01"),
    ("2026-02-02T00:00:00Z", False, True, "none", "0.033333"),
    ("2026-03-01T00:00:00Z", False, False, "none", "9"),
]


def fill(database: Database, account_id: str) -> None:
    with database.transaction() as transaction:
        for number, (at, cached, degraded, model, amount) in enumerate(ROWS):
            transaction.session.execute(
                ENTRY,
                {
                    "id": f"{account_id}-{number}", "account_id": account_id, "at": at, "cached": cached,
                    "degraded": degraded, "model": model, "amount": Decimal(amount),
                },
            )  # fmt: skip


def test_days_and_models_add_up_to_the_total(database: Database) -> None:
    mine = database.run(lambda tx: create_account(tx.session, "acme")).account_id
    other = database.run(lambda tx: create_account(tx.session, "other")).account_id
    fill(database, mine)
    fill(database, other)
    span = {"start": date(2026, 2, 1), "end": date(2026, 3, 1)}
    by_day = database.run(report_usage, mine, **span)  # type: ignore[arg-type]
    assert [(group.key, group.images) for group in by_day.data] == [("2026-02-01", 2), ("2026-02-02", 1)]
    assert (by_day.total.images, by_day.total.cached, by_day.total.degraded) == (3, 1, 1)
    assert by_day.total.amount_due == Decimal("0.143333")
    assert (by_day.total.cpu_seconds, by_day.total.gpu_seconds, by_day.total.bytes) == (1.5, 0.75, 300)
    by_model = database.run(report_usage, mine, group="model", **span)  # type: ignore[arg-type]
    assert [(group.key, group.images) for group in by_model.data] == [("a@1", 2), ("none", 1)]
    assert by_model.total == by_day.total
    assert by_day.model_dump(mode="json")["total"]["amount_due"] == "0.143333"


def test_an_account_that_used_nothing_has_an_empty_report(database: Database) -> None:
    account_id = database.run(lambda tx: create_account(tx.session, "acme")).account_id
    report = database.run(report_usage, account_id)
    assert report.data == []
    assert report.total.images == 0
    assert report.start.day == 1
