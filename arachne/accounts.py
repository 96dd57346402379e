"""Accounts and their clients. Secrets are shown once and kept as argon2id hashes."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select

from arachne.audit import ERASURE_BEGUN, acting_in, is_on_record, record
from arachne.errors import Conflict, InvalidOptions, NotFound
from arachne.ids import is_id, new_id
from arachne.schemas.issuer import MAX_CLAIM_CHARS
from arachne.schemas.tables import Account, ApiClient
from arachne.schemas.token import CLIENT_SCOPES, Scope

MAX_NAME = 200
SECRET_PREFIX = "ars_"  # noqa: S105  # tells a leaked secret from other text
# RFC 9106's second recommended option with less memory: a client proves itself once an hour, not at each login.
_hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)
_DECOY = _hasher.hash(secrets.token_urlsafe(32))


@dataclass(frozen=True)
class NewAccount:
    """An account as created; the secret can't be read again later."""

    account_id: str
    client_id: str
    client_secret: str


@dataclass(frozen=True)
class NewSecret:
    """A client's new secret; the old one works until `old_until`."""

    client_id: str
    client_secret: str
    old_until: datetime


def create_account(
    session: Session, name: str, *, plan_id: str = "default", scopes: Sequence[Scope] = CLIENT_SCOPES
) -> NewAccount:
    """A new account with one client.

    Raises:
        Conflict: an account has this name already.
        InvalidOptions: the name is empty, too long or has control characters.
    """
    _check_name(name)
    if is_id(name, "acc"):
        raise InvalidOptions("An account's name can't be an account's id.")
    account = Account(account_id=new_id("acc"), name=name, plan_id=plan_id)
    client, secret = _new_client(account.account_id, "default", scopes)
    try:
        with session.begin_nested():
            session.add(account)
            session.flush()
            session.add(client)
    except IntegrityError:
        raise Conflict(f"An account named {name!r} exists already, or there is no plan {plan_id!r}.") from None
    record(session, "account.create", account_id=account.account_id, plan_id=plan_id, scopes=list(scopes))
    return NewAccount(account.account_id, client.client_id, secret)


def create_client(
    session: Session, account_name: str, name: str, *, scopes: Sequence[Scope] = CLIENT_SCOPES
) -> NewAccount:
    """A further client of an account.

    Raises:
        NotFound: there is no such account.
        Conflict: the account is being erased.
        InvalidOptions: the name is empty, too long or has control characters.
    """
    _check_name(name)
    account = _lock_account(session, account_name)
    _require_kept(session, account)
    client, secret = _new_client(account.account_id, name, scopes)
    session.add(client)
    record(session, "client.create", account_id=account.account_id, target=client.client_id, scopes=list(scopes))
    return NewAccount(account.account_id, client.client_id, secret)


def bind_account(session: Session, name: str, issuer: str | None, claim: str | None) -> Account:
    """The account, spoken for by tokens of `issuer` whose account claim is `claim`; by none with None and None.

    Raises:
        NotFound: there is no such account.
        InvalidOptions: one of the two is missing, too long or has characters that can't be printed.
        Conflict: another account is bound to them.
    """
    if (issuer is None) != (claim is None):
        raise InvalidOptions("An account is bound by an issuer and a claim's value; give both.")
    for text in (issuer, claim):
        if text is not None and not (0 < len(text) <= MAX_CLAIM_CHARS and text.isprintable()):
            raise InvalidOptions(f"An issuer and a claim's value have 1 to {MAX_CLAIM_CHARS} printable characters.")
    account = find_account(session, name)
    try:
        with session.begin_nested():
            account.issuer, account.claim = issuer, claim
            session.add(account)
            session.flush()
    except IntegrityError:
        raise Conflict(f"Another account is bound to {claim!r} of {issuer} already.") from None
    # The claim may be somebody's name, and what is on record outlives an account that is erased.
    record(session, "account.bind" if issuer else "account.unbind", account_id=account.account_id, issuer=issuer)
    return account


def list_accounts(session: Session, *, limit: int | None = None, after: str = "") -> list[Account]:
    """Accounts, oldest first, from after the id `after`."""
    query = select(Account).where(col(Account.account_id) > after)
    return list(session.exec(query.order_by(col(Account.account_id)).limit(limit)))


def list_clients(session: Session, account_id: str, *, limit: int | None = None, after: str = "") -> list[ApiClient]:
    """An account's clients, oldest first, from after the id `after`."""
    query = select(ApiClient).where(ApiClient.account_id == account_id, col(ApiClient.client_id) > after)
    return list(session.exec(query.order_by(col(ApiClient.client_id)).limit(limit)))


def find_account(session: Session, name: str) -> Account:
    """The account of that name or id.

    Raises:
        NotFound: there is none.
    """
    found = session.exec(select(Account).where((col(Account.name) == name) | (col(Account.account_id) == name))).first()
    if found is None:
        raise NotFound(f"There is no account {name!r}. `arachne account list` shows all.")
    return found


def disable_account(session: Session, name: str, *, enable: bool = False) -> Account:
    """The account, its tokens refused from now on (or accepted again).

    Raises:
        NotFound: there is no such account.
        Conflict: it is to be let in again, and is being erased.
    """
    account = _lock_account(session, name)
    if enable:
        _require_kept(session, account)
    account.disabled_at = None if enable else account.disabled_at or datetime.now(UTC)
    session.add(account)
    record(session, "account.enable" if enable else "account.disable", account_id=account.account_id)
    return account


def rotate_client(session: Session, client_id: str, *, grace_s: float = 86_400) -> NewSecret:
    """A new secret for a client; the old one goes on working for `grace_s` seconds.

    Raises:
        NotFound: there is no such client.
        Conflict: it has the scope `admin`, and no operator asks.
    """
    client = _lock_client(session, client_id)
    _require_operator(session, client)
    secret, until = _new_secret(), datetime.now(UTC) + timedelta(seconds=grace_s)
    client.secret_hash_old, client.secret_old_until = client.secret_hash, until
    client.secret_hash = _hasher.hash(secret)
    session.add(client)
    record(session, "client.rotate", account_id=client.account_id, target=client_id, grace_s=grace_s)
    return NewSecret(client_id, secret, until)


def disable_client(session: Session, client_id: str, *, enable: bool = False) -> ApiClient:
    """The client, all its tokens refused from now on (or accepted again, until they expire).

    Raises:
        NotFound: there is no such client.
        Conflict: it is to be let in again, has the scope `admin`, and no operator asks.
    """
    client = _lock_client(session, client_id)
    if enable:
        _require_operator(session, client)
    client.disabled_at = None if enable else client.disabled_at or datetime.now(UTC)
    session.add(client)
    record(session, "client.enable" if enable else "client.disable", account_id=client.account_id, target=client_id)
    return client


def find_client(session: Session, client_id: str) -> ApiClient | None:
    """The client, if it may get tokens: neither it nor its account is disabled."""
    query = (
        select(ApiClient)
        .join(Account, col(Account.account_id) == col(ApiClient.account_id))
        .where(ApiClient.client_id == client_id)
        .where(col(ApiClient.disabled_at).is_(None), col(Account.disabled_at).is_(None))
    )
    return session.exec(query).first()


def secret_matches(client: ApiClient | None, secret: str) -> bool:
    """Whether this is the client's secret; slow on purpose (call it in a thread), as slow for an unknown client."""
    if client is None:
        _matches(_DECOY, secret)
        return False
    if _matches(client.secret_hash, secret):
        return True
    until = client.secret_old_until
    if client.secret_hash_old is None or until is None or until <= datetime.now(UTC):
        return False
    return _matches(client.secret_hash_old, secret)


def _check_name(name: str) -> None:
    if not 0 < len(name) <= MAX_NAME or not name.isprintable() or name != name.strip():
        raise InvalidOptions(f"A name has 1 to {MAX_NAME} printable characters.")


def _new_client(account_id: str, name: str, scopes: Sequence[Scope]) -> tuple[ApiClient, str]:
    """A client and its secret."""
    secret = _new_secret()
    digest = _hasher.hash(secret)
    client = ApiClient(
        client_id=new_id("cli"), account_id=account_id, name=name, scopes=list(scopes), secret_hash=digest
    )
    return client, secret


def _lock_account(session: Session, name: str) -> Account:
    """The account of that name or id, as it is until the transaction ends: nobody begins to erase it meanwhile."""
    account_id = find_account(session, name).account_id
    account = session.get(Account, account_id, with_for_update={"key_share": True}, populate_existing=True)
    if account is None:
        raise NotFound(f"There is no account {name!r} any more.")
    return account


def _lock_client(session: Session, client_id: str) -> ApiClient:
    client = session.get(ApiClient, client_id, with_for_update=True)
    if client is None:
        raise NotFound(f"There is no client {client_id!r}.")
    return client


def _require_operator(session: Session, client: ApiClient) -> None:
    """Nothing, unless a token would get hold of more than it is: of a client with the scope `admin`."""
    if "admin" in client.scopes and acting_in(session).kind != "operator":
        raise Conflict("This client has the scope admin. Operators alone may do this, with `arachne account client`.")


def _require_kept(session: Session, account: Account) -> None:
    if is_on_record(session, account.account_id, ERASURE_BEGUN):
        raise Conflict(f"The account {account.name!r} is being erased.")


def _matches(digest: str, secret: str) -> bool:
    try:
        return _hasher.verify(digest, secret)
    except (VerificationError, InvalidHashError):
        return False


def _new_secret() -> str:
    return SECRET_PREFIX + secrets.token_urlsafe(32)
