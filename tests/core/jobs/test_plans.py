"""Plans: prices are decimals, what was charged stays charged, and an account owes in one currency."""

from decimal import Decimal

import pytest
from pydantic import ValidationError

from arachne.accounts import create_account
from arachne.database import Database
from arachne.errors import Conflict, NotFound
from arachne.plans import assign_plan, change_plan, create_plan, find_plan, list_plans
from arachne.schemas.plan import NewPlan, PlanTerms
from tests.core.jobs.conftest import Queue


def new(plan_id: str = "gold", **terms: object) -> NewPlan:
    return NewPlan.model_validate({"plan_id": plan_id, **terms})


@pytest.mark.parametrize(
    "terms",
    [
        {"price_image": 0.1},
        {"price_image": "-1"},
        {"price_image": "NaN"},
        {"price_image": "0.0000001"},
        {"price_image": "1e13"},
        {"price_vlm": "1000000.000001"},
        {"currency": "eur"},
        {"monthly_images": -1},
        {"rates": {"vision": "often"}},
        {"rates": {"tokens": "1/minute"}},
        {"priority": 4},
        {"weight": 0},
        {"max_in_flight": 0},
        {"plan_id": "Gold plan"},
        {"prices": {}},
    ],
)
def test_terms_that_make_no_plan_are_refused(terms: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        NewPlan.model_validate({"plan_id": "gold", **terms})


def test_a_plan_is_made_once_and_changed_in_what_is_said(database: Database) -> None:
    with database.transaction() as transaction:
        session = transaction.session
        create_plan(session, new(price_image="0.002", rates={"account_vision": "100/minute"}, monthly_images=10))
        with pytest.raises(Conflict):
            create_plan(session, new())
        change_plan(session, "gold", PlanTerms.model_validate({"price_vlm": "0.01", "monthly_images": None}))
    with database.transaction() as transaction:
        found = find_plan(transaction.session, "gold")
        assert (found.price_image, found.price_vlm, found.monthly_images) == (Decimal("0.002"), Decimal("0.01"), None)
        assert found.rates == {"account_vision": "100/minute"}
        assert [plan.plan_id for plan in list_plans(transaction.session)] == ["default", "gold"]
        with pytest.raises(NotFound, match="arachne plan list"):
            change_plan(transaction.session, "silver", PlanTerms())


def test_another_plan_is_for_what_comes_and_is_on_the_operators_log(queue: Queue) -> None:
    """Images accepted under one plan and finished under another cost what the other says; finished ones stay."""
    with queue.database.transaction() as transaction:
        create_plan(transaction.session, new("cheap", price_image="0.01"))
        create_plan(transaction.session, new("dear", price_image="0.05"))
    queue.account("acme", plan_id="cheap")
    queue.submit("one", "two", account="acme", options={"cache": "bypass"})
    first, second = queue.claim(queue.worker())
    queue.complete(first)
    with queue.database.transaction() as transaction:
        assign_plan(transaction.session, "acme", "dear")
        change_plan(transaction.session, "cheap", PlanTerms.model_validate({"price_image": "9"}))
    queue.complete(second)
    charged = queue.column("SELECT amount FROM usage_entry ORDER BY amount")
    assert charged == [Decimal("0.01"), Decimal("0.05")]
    assert queue.column("SELECT plan_id FROM usage_entry ORDER BY amount") == ["cheap", "dear"]
    assert queue.column("SELECT detail FROM audit_log WHERE action = 'account.plan'") == [
        {"from": "cheap", "to": "dear"}
    ]


def test_who_owes_in_one_currency_gets_no_plan_in_another(queue: Queue) -> None:
    """Before anything was sent the plan may be in any currency; afterwards in that one."""
    with queue.database.transaction() as transaction:
        create_plan(transaction.session, new("euro", currency="EUR"))
        create_plan(transaction.session, new("yen", currency="JPY"))
        create_plan(transaction.session, new("more-yen", currency="JPY"))
        create_account(transaction.session, "acme")
        assign_plan(transaction.session, "acme", "euro")
        account = assign_plan(transaction.session, "acme", "yen")
        queue.accounts["acme"] = account.account_id
        with pytest.raises(NotFound):
            assign_plan(transaction.session, "acme", "bronze")
    queue.submit("one", account="acme")
    with queue.database.transaction() as transaction, pytest.raises(Conflict, match="JPY"):
        assign_plan(transaction.session, "acme", "euro")
    with queue.database.transaction() as transaction:
        assign_plan(transaction.session, "acme", "more-yen")
