"""`arachne plan`, `arachne account plan` and `arachne usage`, on the database and against a service."""

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime

import httpx
import pytest
import respx
from sqlalchemy import text

from arachne.database import Database
from tests.cli.conftest import problem

Run = Callable[..., tuple[int, str, str]]
ENTRY = text("""
INSERT INTO usage_entry (entry_id, account_id, subject, job_id, image_id, at, cached, degraded, model_version, units,
                         cpu_s, gpu_s, size_bytes, plan_id, unit_price, vlm_price, amount, currency)
SELECT 'use_' || n, account_id, 's', 'j', 'img_' || n, :at, false, false, 'none', 2, 0.5, 0, 100, plan_id, 0.0025, 0,
       0.005, 'EUR' FROM account CROSS JOIN generate_series(1, 3) n WHERE name = 'acme'
""")
REPORT = {
    "from": "2026-02-01", "to": "2026-03-01", "currency": "EUR", "group": "model", "total": {},
    "data": [{"key": "none", "images": 6, "cached": 0, "degraded": 0, "gpu_seconds": 0.0, "cpu_seconds": 1.5,
              "bytes": 300, "amount_due": "0.015000"}],
}  # fmt: skip
STATEMENT = {
    "account_id": "acc_1", "month": "2026-02", "currency": "EUR", "final": True, "images": 6, "subtotal": "0.015000",
    "amount_due": "0.02", "lines": [{"plan_id": "gold", "kind": "read", "unit_price": "0.002500",
                                     "vlm_price": "0.000000", "entries": 3, "images": 6, "amount": "0.015000"}],
}  # fmt: skip


@pytest.fixture
def used(run: Run, connected: None, database: Database) -> None:
    """The account `acme` on the plan `gold`, with three entries in February; and one that used nothing."""
    run("plan", "create", "gold", "--currency", "EUR", "--price-image", "0.0025")
    run("account", "create", "acme")
    run("account", "create", "idle")
    assert run("account", "plan", "acme", "gold")[0] == 0
    with database.transaction() as transaction:
        transaction.session.execute(ENTRY, {"at": datetime(2026, 2, 28, 23, 59, 59, tzinfo=UTC)})


def rows(out: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(out)))


@pytest.mark.usefixtures("connected")
def test_plans_are_made_changed_and_listed(run: Run) -> None:
    """What isn't said stays; `none` takes the quota away; what makes no plan is wrong usage, a second one no."""
    made = run("plan", "create", "gold", "--price-vlm", "0.01", "--monthly-images", "5", "--rate", "vision=5/minute",
               "--rate", "account_images=9/hour", "--json")  # fmt: skip
    assert json.loads(made[1]) == {
        "plan_id": "gold", "currency": "USD", "price_image": "0.000000", "price_cached": "0.000000",
        "price_vlm": "0.010000", "monthly_images": 5,
        "rates": {"vision": "5/minute", "account_images": "9/hour"}, "priority": 0, "weight": 1.0,
        "max_in_flight": 1000,
    }  # fmt: skip
    assert run("plan", "create", "gold")[0] == 1
    changed = json.loads(run("plan", "change", "gold", "--monthly-images", "none", "--weight", "2", "--json")[1])
    assert (changed["monthly_images"], changed["weight"], changed["price_vlm"]) == (None, 2.0, "0.010000")
    listed = json.loads(run("plan", "list", "--json")[1])
    assert [plan["plan_id"] for plan in listed] == ["default", "gold"]
    assert "account_images=9/hour" in run("plan", "list")[1]
    for words in (["--price-image", "-1"], ["--price-image", "much"], ["--rate", "vision"], ["--rate", "vision=x"]):
        assert run("plan", "create", "other", *words)[0] == 2
    assert run("account", "create", "acme", "--plan", "bronze")[0] == 1


@pytest.mark.usefixtures("used")
def test_the_operator_sees_every_account_or_one(run: Run) -> None:
    """As CSV, JSON and a table; by day and by model."""
    span = ("--from", "2026-02-01", "--to", "2026-03-01")
    code, out, _ = run("usage", *span, "--csv")
    assert (code, [(row["account"], row["day"], row["images"], row["amount_due"], row["currency"])
                   for row in rows(out)]) == (0, [("acme", "2026-02-28", "6", "0.015000", "EUR")])  # fmt: skip
    by_model = json.loads(run("usage", *span, "--group", "model", "--account", "acme", "--json")[1])
    assert [(row["model"], row["bytes"], row["cpu_seconds"]) for row in by_model] == [("none", 300, 1.5)]
    assert rows(run("usage", *span, "--account", "idle", "--csv")[1]) == []
    assert "2026-02-28" in run("usage", *span)[1]
    assert rows(run("usage", "--from", "2026-03-01", "--to", "2026-03-02", "--csv")[1]) == []
    assert run("usage", "--account", "nobody")[0] == 1
    assert run("usage", "--from", "2026-02-01", "--to", "2026-01-01")[0] == 2
    assert run("usage", "--from", "yesterday")[0] == 2


@pytest.mark.usefixtures("used")
def test_a_statement_ends_with_what_is_due(run: Run) -> None:
    """Half a cent goes to the even cent; the CSV's last row is the total."""
    words = ("usage", "statement", "--month", "2026-02", "--account", "acme")
    told = json.loads(run(*words, "--json")[1])
    assert (told["subtotal"], told["amount_due"], told["currency"]) == ("0.015000", "0.02", "EUR")
    assert told["lines"] == STATEMENT["lines"]
    line, total = rows(run(*words, "--csv")[1])
    assert (line["kind"], line["amount"], line["currency"]) == ("read", "0.015000", "EUR")
    assert (total["kind"], total["images"], total["amount"], total["unit_price"]) == ("total", "6", "0.02", "")
    assert "amount due: 0.02" in run(*words)[1]
    assert run("usage", "statement", "--month", "2026-13", "--account", "acme")[0] == 2
    assert run("usage", "statement")[0] == 2


def test_with_credentials_the_service_is_asked_for_ones_own_account(run: Run, service: respx.Router) -> None:
    """No database is needed; the columns are the operator's, without whose it is."""
    asked = service.get("/api/usage").mock(return_value=httpx.Response(200, json=REPORT))
    stated = service.get("/api/usage/statement").mock(return_value=httpx.Response(200, json=STATEMENT))
    code, out, _ = run("usage", "--from", "2026-02-01", "--to", "2026-03-01", "--group", "model", "--csv")
    assert (code, out.splitlines()) == (0, [
        "model,images,cached,degraded,gpu_seconds,cpu_seconds,bytes,amount_due,currency",
        "none,6,0,0,0.0,1.5,300,0.015000,EUR",
    ])  # fmt: skip
    assert dict(asked.calls.last.request.url.params) == {"from": "2026-02-01", "to": "2026-03-01", "group": "model"}
    assert asked.calls.last.request.headers["authorization"] == "Bearer a-token"
    assert json.loads(run("usage", "statement", "--month", "2026-02", "--json")[1]) == STATEMENT
    assert dict(stated.calls.last.request.url.params) == {"month": "2026-02"}
    service.get("/api/usage").mock(return_value=httpx.Response(403, json=problem(403, "insufficient_scope")))
    code, out, err = run("usage")
    assert (code, out, "insufficient_scope" in err) == (3, "", True)
