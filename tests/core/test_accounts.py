"""Accounts and clients: secrets are shown once, kept as hashes, and rotated with an overlap."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text
from sqlmodel import col, select

from arachne import accounts
from arachne.audit import OPERATOR
from arachne.database import Database
from arachne.errors import Conflict, InvalidOptions, NotFound
from arachne.jobs.account_erasure import close_account
from arachne.schemas.tables import ApiClient, AuditLog


def test_a_new_account_has_a_client_whose_secret_is_kept_as_an_argon2id_hash(database: Database) -> None:
    made = database.run(lambda tx: accounts.create_account(tx.session, "acme"))
    client = database.run(lambda tx: accounts.find_client(tx.session, made.client_id))
    assert client is not None
    assert client.account_id == made.account_id
    assert client.secret_hash.startswith("$argon2id$")
    assert made.client_secret not in client.secret_hash
    assert accounts.secret_matches(client, made.client_secret)
    assert not accounts.secret_matches(client, made.client_secret + "x")
    assert not accounts.secret_matches(None, made.client_secret)


@pytest.mark.parametrize("name", ["", " acme", "a" * 201, "line\nbreak", "nul\0"])
def test_names_have_a_form(database: Database, name: str) -> None:
    with pytest.raises(InvalidOptions):
        database.run(lambda tx: accounts.create_account(tx.session, name))


def test_a_name_is_taken_once_and_a_plan_must_exist(database: Database) -> None:
    database.run(lambda tx: accounts.create_account(tx.session, "acme"))
    for call in (
        lambda tx: accounts.create_account(tx.session, "acme"),
        lambda tx: accounts.create_account(tx.session, "other", plan_id="none"),
    ):
        with pytest.raises(Conflict):
            database.run(call)
    assert [account.name for account in database.run(lambda tx: accounts.list_accounts(tx.session))] == ["acme"]


def test_a_rotated_secret_works_beside_the_old_one_until_the_grace_ends(database: Database) -> None:
    made = database.run(lambda tx: accounts.create_account(tx.session, "acme"))
    rotated = database.run(lambda tx: accounts.rotate_client(tx.session, made.client_id))
    client = database.run(lambda tx: accounts.find_client(tx.session, made.client_id))
    assert accounts.secret_matches(client, rotated.client_secret)
    assert accounts.secret_matches(client, made.client_secret)
    database.run(lambda tx: tx.session.execute(text("UPDATE api_client SET secret_old_until = now()")))
    client = database.run(lambda tx: accounts.find_client(tx.session, made.client_id))
    assert not accounts.secret_matches(client, made.client_secret)
    assert accounts.secret_matches(client, rotated.client_secret)


def test_an_account_is_bound_to_one_claim_of_an_issuer_that_no_other_has(database: Database) -> None:
    for name in ("acme", "other"):
        database.run(lambda tx, name=name: accounts.create_account(tx.session, name))
    bind = ("https://issuer.test", "tenant-7")
    bound = database.run(lambda tx: accounts.bind_account(tx.session, "acme", *bind))
    assert (bound.issuer, bound.claim) == bind
    with pytest.raises(Conflict):
        database.run(lambda tx: accounts.bind_account(tx.session, "other", *bind))
    database.run(lambda tx: accounts.bind_account(tx.session, "acme", None, None))
    assert database.run(lambda tx: accounts.bind_account(tx.session, "other", *bind)).claim == "tenant-7"


@pytest.mark.parametrize(
    ("issuer", "claim"),
    [("https://issuer.test", None), (None, "x"), ("", "x"), ("x", ""), ("x", "\0"), ("x", "y" * 256)],
)
def test_half_a_binding_is_none(database: Database, issuer: str | None, claim: str | None) -> None:
    database.run(lambda tx: accounts.create_account(tx.session, "acme"))
    with pytest.raises(InvalidOptions):
        database.run(lambda tx: accounts.bind_account(tx.session, "acme", issuer, claim))


def test_a_disabled_client_gets_no_token_until_it_is_enabled(database: Database) -> None:
    made = database.run(lambda tx: accounts.create_account(tx.session, "acme"))
    database.run(lambda tx: accounts.disable_client(tx.session, made.client_id))
    assert database.run(lambda tx: accounts.find_client(tx.session, made.client_id)) is None
    database.run(lambda tx: accounts.disable_client(tx.session, made.client_id, enable=True))
    assert database.run(lambda tx: accounts.find_client(tx.session, made.client_id)) is not None


def test_who_is_let_in_again_is_not_being_erased_meanwhile(database: Database) -> None:
    """An erasure that has begun and is not on record for others yet is waited for."""
    database.run(lambda tx: accounts.create_account(tx.session, "acme"))
    waits = text("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND :pid = ANY(pg_blocking_pids(pid)))")
    with ThreadPoolExecutor(1) as beside:
        with database.transaction() as transaction:
            close_account(transaction, "acme", OPERATOR)
            pid = {"pid": transaction.session.scalar(text("SELECT pg_backend_pid()"))}
            enabling = beside.submit(database.run, lambda tx: accounts.disable_account(tx.session, "acme", enable=True))
            while not enabling.done() and not database.run(lambda tx: tx.session.scalar(waits, pid)):
                pass
        with pytest.raises(Conflict, match="being erased"):
            enabling.result()
    assert database.run(lambda tx: accounts.find_account(tx.session, "acme")).disabled_at is not None


def test_unknown_names_and_clients_are_not_found(database: Database) -> None:
    with pytest.raises(NotFound):
        database.run(lambda tx: accounts.disable_account(tx.session, "nobody"))
    with pytest.raises(NotFound):
        database.run(lambda tx: accounts.rotate_client(tx.session, "cli_0"))
    with pytest.raises(NotFound):
        database.run(lambda tx: accounts.disable_client(tx.session, "cli_0"))
    assert database.run(lambda tx: tx.session.get(ApiClient, "cli_0")) is None


def test_what_operators_do_is_on_record(database: Database) -> None:
    database.run(lambda tx: accounts.create_account(tx.session, "acme"))
    database.run(lambda tx: accounts.disable_account(tx.session, "acme"))
    rows = database.run(lambda tx: tx.session.exec(select(AuditLog).order_by(col(AuditLog.at))).all())
    assert [row.action for row in rows] == ["account.create", "account.disable"]
