"""The ledger is append-only, and statements made from it are in whole coins."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from sqlalchemy.exc import DBAPIError

from arachne.errors import Conflict
from arachne.schemas.money import round_due
from arachne.statement import make_statement
from arachne.usage import find_owner, list_usage, report_usage
from tests.core.jobs.conftest import Queue


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM usage_entry",
        "TRUNCATE usage_entry",
        "UPDATE usage_entry SET amount = 1, unit_price = 1",
        "UPDATE usage_entry SET at = now() - interval '40 days'",
        "UPDATE usage_entry SET subject = '', gpu_s = 0.5",
        "UPDATE usage_entry SET subject = 'somebody else'",
    ],
)
def test_nobody_changes_an_entry(queue: Queue, statement: str) -> None:
    queue.submit("one")
    queue.work()
    with pytest.raises(DBAPIError, match="append-only"):
        queue.column(statement)
    assert queue.column("SELECT amount FROM usage_entry") == [Decimal(0)]


def test_an_amount_is_what_its_prices_say(queue: Queue) -> None:
    """The database refuses an entry that doesn't add up."""
    queue.submit("one")
    queue.work()
    with pytest.raises(DBAPIError, match="ck_usage_entry_amount"):
        queue.column(
            "INSERT INTO usage_entry SELECT 'use_2', account_id, subject, job_id, 'img_2', at, cached, degraded, "
            "model_version, units, cpu_s, gpu_s, size_bytes, plan_id, unit_price, vlm_price, 0.01, currency "
            "FROM usage_entry"
        )


def test_what_an_erased_account_owed_is_still_told_but_not_whose_it_was(queue: Queue) -> None:
    """Its name is gone; its id finds the sums."""
    account_id = queue.account("acme")
    queue.submit("one", account="acme")
    queue.work()
    queue.column("UPDATE usage_entry SET subject = ''")
    queue.column("SET session_replication_role = replica; DELETE FROM account")
    with queue.database.transaction() as transaction:
        assert find_owner(transaction, account_id) == account_id
        (row,) = list_usage(transaction)
        assert (row.account_id, row.account, row.images, row.currency) == (account_id, None, 1, "USD")
        assert make_statement(transaction, account_id, datetime.now(UTC).date()).images == 1


@pytest.mark.parametrize(
    ("amount", "currency", "due"),
    [
        ("0.005", "USD", "0.00"),
        ("0.015", "USD", "0.02"),
        ("0.025", "EUR", "0.02"),
        ("0.025001", "EUR", "0.03"),
        ("1234.5", "JPY", "1234"),
        ("1235.5", "JPY", "1236"),
        ("0.0015", "KWD", "0.002"),
        ("0", "USD", "0.00"),
    ],
)
def test_a_sum_is_rounded_to_the_currencys_coins_and_halves_to_the_even_one(
    amount: str, currency: str, due: str
) -> None:
    assert str(round_due(Decimal(amount), currency)) == due


def test_a_month_without_use_is_owed_nothing_and_is_final_once_it_is_over(queue: Queue) -> None:
    account_id = queue.account("acme")
    with queue.database.transaction() as transaction:
        past = make_statement(transaction, account_id, date(2026, 2, 28))
        now = make_statement(transaction, account_id, datetime.now(UTC).date())
    assert (past.month, past.lines, past.final) == ("2026-02", [], True)
    assert past.model_dump(mode="json")["amount_due"] == "0.00"
    assert not now.final


def test_a_ledger_in_two_currencies_has_no_sum(queue: Queue) -> None:
    """What no command allows, but a hand in the database may do, is not added up."""
    account_id = queue.account("acme")
    queue.submit("one", "two", account="acme", options={"cache": "bypass"})
    first, second = queue.claim(queue.worker())
    queue.complete(first)
    queue.column("UPDATE plan SET currency = 'EUR'")
    queue.complete(second)
    with queue.database.transaction() as transaction:
        with pytest.raises(Conflict, match="EUR, USD"):
            make_statement(transaction, account_id, datetime.now(UTC).date())
        with pytest.raises(Conflict, match="EUR, USD"):
            report_usage(transaction, account_id)
        assert {row.currency for row in list_usage(transaction)} == {"EUR", "USD"}
