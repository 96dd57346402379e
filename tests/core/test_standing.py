"""What a verified token says holds only while its account, its client and the token itself are let in."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlmodel import select

from arachne import accounts
from arachne.database import Database, Transaction
from arachne.errors import AccountUnknown, InvalidOptions, InvalidToken
from arachne.schemas.tables import AuditLog
from arachne.standing import Credential, Standing, check_standing, find_fallen, revoke_token

OURS, THEIRS = "https://arachne.test", "https://issuer.test"
Act = Callable[[Transaction, Credential], object]


@pytest.fixture(params=["ours", "theirs"])
def credential(database: Database, request: pytest.FixtureRequest) -> Credential:
    """Of a token of ours, or of another issuer, for the account `acme`."""
    made = database.run(lambda tx: accounts.create_account(tx.session, "acme"))
    if request.param == "ours":
        return Credential(OURS, True, made.account_id, made.client_id, "tok_1")
    database.run(lambda tx: accounts.bind_account(tx.session, "acme", THEIRS, "tenant-7"))
    return Credential(THEIRS, False, "tenant-7", made.client_id, "tok_1")


def check(database: Database, credential: Credential) -> Standing:
    return database.run(lambda tx: check_standing(tx.session, credential))


def fallen(database: Database, *credentials: Credential) -> list[Credential]:
    return database.run(lambda tx: find_fallen(tx.session, credentials))


def test_a_token_stands_for_the_account_it_names_and_its_plan(database: Database, credential: Credential) -> None:
    standing = check(database, credential)
    account = database.run(lambda tx: accounts.find_account(tx.session, "acme"))
    assert (standing.account_id, standing.plan.plan_id) == (account.account_id, "default")
    assert fallen(database, credential) == []


ACTS: dict[str, tuple[Act, type[Exception]]] = {
    "account disabled": (lambda tx, _: accounts.disable_account(tx.session, "acme"), AccountUnknown),
    "account gone": (
        lambda tx, _: tx.session.execute(text("DELETE FROM api_client; DELETE FROM account")), AccountUnknown,
    ),
    "token revoked": (lambda tx, one: revoke_token(tx.session, one.issuer, one.jti), InvalidToken),
}  # fmt: skip


@pytest.mark.parametrize("act", ACTS)
def test_what_is_done_to_an_account_or_token_shows_in_both_looks(
    database: Database, credential: Credential, act: str
) -> None:
    """The look of each request and the one look at all open streams agree."""
    do, error = ACTS[act]
    database.run(do, credential)
    with pytest.raises(error):
        check(database, credential)
    assert fallen(database, credential) == [credential]


def test_a_disabled_client_stops_its_own_tokens_alone(database: Database, credential: Credential) -> None:
    """Another issuer's clients have ids of their own, which may look like ours."""
    database.run(lambda tx: accounts.disable_client(tx.session, credential.client_id))
    if not credential.is_ours:
        assert check(database, credential)
        assert fallen(database, credential) == []
        return
    with pytest.raises(InvalidToken):
        check(database, credential)
    assert fallen(database, replace(credential, client_id="operator"), credential) == [credential]
    database.run(lambda tx: accounts.disable_client(tx.session, credential.client_id, enable=True))
    assert check(database, credential)


def test_two_issuers_may_use_the_same_ids(database: Database, credential: Credential) -> None:
    database.run(lambda tx: revoke_token(tx.session, "https://third.test", credential.jti))
    assert check(database, credential)
    assert fallen(database, credential) == []


def test_an_account_of_one_issuer_is_none_of_another(database: Database, credential: Credential) -> None:
    """Neither by the same claim of a third issuer, nor by an account's id for a claim, or a claim for an id."""
    strangers = [
        replace(credential, issuer="https://third.test", is_ours=False),
        replace(credential, is_ours=not credential.is_ours),
    ]
    for stranger in strangers:
        with pytest.raises(AccountUnknown):
            check(database, stranger)
    assert fallen(database, *strangers) == strangers


def test_revoking_twice_is_revoking_and_on_record(database: Database) -> None:
    for _ in range(2):
        database.run(lambda tx: revoke_token(tx.session, OURS, "tok_1"))
    rows = database.run(lambda tx: tx.session.exec(select(AuditLog)).all())
    assert [(row.action, row.target, row.detail) for row in rows] == [("token.revoke", "tok_1", {"issuer": OURS})] * 2


@pytest.mark.parametrize("jti", ["", "x" * 256, "a\0b", "a\nb"])
def test_what_can_not_be_an_id_is_not_revoked(database: Database, jti: str) -> None:
    with pytest.raises(InvalidOptions):
        database.run(lambda tx: revoke_token(tx.session, OURS, jti))
