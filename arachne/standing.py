"""Whether what a verified token says still holds: its account and client are let in, and it has not been revoked."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import text
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col, or_, select

from arachne.audit import record
from arachne.errors import AccountUnknown, InvalidOptions, InvalidToken
from arachne.schemas.tables import Account, ApiClient, Plan, RevokedToken
from arachne.settings import DAY_S
from arachne.tokens import AccessToken, is_token_id


@dataclass(frozen=True)
class Credential:
    """What a verified token stands on. `account` is an account's id in our tokens, what it is bound to in others'."""

    issuer: str
    is_ours: bool
    account: str
    client_id: str
    jti: str

    @classmethod
    def of(cls, token: AccessToken) -> "Credential":
        """What this token stands on."""
        return cls(token.issuer.name, token.issuer.is_ours, token.account, token.client_id, token.jti)


@dataclass(frozen=True)
class Standing:
    """The account a token speaks for, and its plan."""

    account_id: str
    plan: Plan


def check_standing(session: Session, credential: Credential) -> Standing:
    """The account a verified token speaks for.

    Raises:
        AccountUnknown: no such account here, or a disabled one.
        InvalidToken: the token is revoked, or its client disabled.
    """
    revoked = select(RevokedToken.jti).where(RevokedToken.issuer == credential.issuer)
    refused = revoked.where(RevokedToken.jti == credential.jti).exists()
    if credential.is_ours:  # another issuer's clients are its own to disable
        disabled = select(ApiClient.client_id).where(
            ApiClient.client_id == credential.client_id, col(ApiClient.disabled_at).is_not(None)
        )
        refused = or_(refused, disabled.exists())  # type: ignore[assignment]
        is_it = [col(Account.account_id) == credential.account]
    else:
        is_it = [col(Account.issuer) == credential.issuer, col(Account.claim) == credential.account]
    query = (
        select(Account.account_id, Plan, refused)
        .join(Plan, col(Plan.plan_id) == col(Account.plan_id))
        .where(*is_it, col(Account.disabled_at).is_(None))
    )
    found = session.exec(query).first()
    if found is None:
        raise AccountUnknown("This token's account is unknown or disabled here. Ask the operator.")
    account_id, plan, is_refused = found
    if is_refused:
        raise InvalidToken("The token has been revoked. Get a new one.")
    return Standing(account_id, plan)


def find_fallen(session: Session, credentials: Sequence[Credential]) -> list[Credential]:
    """Those of the credentials that `check_standing` would refuse by now, in one query."""
    columns = {
        "issuers": [one.issuer for one in credentials],
        "ours": [one.is_ours for one in credentials],
        "accounts": [one.account for one in credentials],
        "clients": [one.client_id for one in credentials],
        "jtis": [one.jti for one in credentials],
    }
    return [credentials[number - 1] for number in session.execute(_FALLEN, columns).scalars()]


_FALLEN = text("""
SELECT number
FROM unnest(CAST(:issuers AS text[]), CAST(:ours AS boolean[]), CAST(:accounts AS text[]), CAST(:clients AS text[]),
    CAST(:jtis AS text[])) WITH ORDINALITY AS given (issuer, is_ours, account, client_id, jti, number)
WHERE NOT CASE
        WHEN is_ours THEN EXISTS (SELECT 1 FROM account WHERE account_id = given.account AND disabled_at IS NULL)
        ELSE EXISTS (
            SELECT 1 FROM account a WHERE a.issuer = given.issuer AND claim = given.account AND disabled_at IS NULL
        )
    END
    OR EXISTS (SELECT 1 FROM revoked_token r WHERE r.issuer = given.issuer AND r.jti = given.jti)
    OR (is_ours AND EXISTS (
        SELECT 1 FROM api_client c WHERE c.client_id = given.client_id AND disabled_at IS NOT NULL
    ))
""")


def revoke_token(session: Session, issuer: str, jti: str) -> None:
    """The token of this issuer with this id is refused from now on, for longer than any token lives.

    Raises:
        InvalidOptions: this can't be a token's id.
    """
    if not is_token_id(jti):
        raise InvalidOptions("A token's id (`jti`) is printable text; give it or the whole token.")
    expires_at = datetime.now(UTC) + timedelta(seconds=2 * DAY_S)
    statement = insert(RevokedToken).values(issuer=issuer, jti=jti, expires_at=expires_at)
    session.execute(statement.on_conflict_do_nothing())
    record(session, "token.revoke", target=jti, issuer=issuer)
