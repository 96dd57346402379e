"""Our own access tokens: RFC 9068 (`typ: at+jwt`), signed with Ed25519."""

import time
from collections.abc import Collection
from dataclasses import dataclass, field

from joserfc import jwt
from joserfc.jwk import OKPKey
from sqlmodel import Session

from arachne.accounts import find_account
from arachne.audit import record
from arachne.errors import AccountUnknown, InvalidOptions
from arachne.ids import new_id
from arachne.schemas.token import SCOPES
from arachne.secretbox import SecretBox
from arachne.settings import DAY_S, Settings
from arachne.signing_keys import current_key

ALGORITHM = "Ed25519"
OPERATOR = "operator"


@dataclass(frozen=True)
class IssuedToken:
    """A token, its id, its seconds to live and its scopes."""

    token: str = field(repr=False)
    jti: str
    expires_in_s: int
    scopes: tuple[str, ...]


def audience_of(settings: Settings) -> str:
    """The audience of our tokens."""
    return f"{settings.base_url}/api"


def issue_token(
    key: OKPKey,
    settings: Settings,
    *,
    account_id: str,
    subject: str,
    client_id: str,
    scopes: Collection[str],
    ttl_s: float,
) -> IssuedToken:
    """A signed token; its scopes stand in their usual order."""
    jti, now, ordered = new_id("tok"), int(time.time()), tuple(scope for scope in SCOPES if scope in scopes)
    claims = {
        "iss": settings.base_url,
        "aud": audience_of(settings),
        "sub": subject,
        "client_id": client_id,
        "account": account_id,
        "iat": now,
        "exp": now + int(ttl_s),
        "jti": jti,
        "scope": " ".join(ordered),
    }
    token = jwt.encode({"alg": ALGORITHM, "typ": "at+jwt", "kid": key.kid}, claims, key, algorithms=[ALGORITHM])
    return IssuedToken(token, jti, int(ttl_s), ordered)


def issue_operator_token(  # noqa: PLR0917  # the command line hands all of them over
    session: Session, box: SecretBox, settings: Settings, account_name: str, scopes: Collection[str], ttl_s: float
) -> str:
    """A token for an account, made by whoever has the database and the secret key.

    Raises:
        NotFound: there is no such account.
        AccountUnknown: the account is disabled.
        InvalidOptions: a scope doesn't exist, or the lifetime is over a day.
    """
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown:
        raise InvalidOptions(f"There is no scope {unknown[0]!r}. Scopes: {', '.join(SCOPES)}.")
    if not 1 <= ttl_s <= DAY_S:
        raise InvalidOptions(f"A token lives 1 to {DAY_S:.0f} seconds.")
    account = find_account(session, account_name)
    if account.disabled_at is not None:
        raise AccountUnknown(f"The account {account.name!r} is disabled.")
    key = current_key(session, box)
    account_id = account.account_id
    issued = issue_token(
        key, settings, account_id=account_id, subject=OPERATOR, client_id=OPERATOR, scopes=scopes, ttl_s=ttl_s
    )
    told = {"scopes": list(issued.scopes), "ttl_s": issued.expires_in_s}
    record(session, "token.issue", account_id=account_id, target=issued.jti, **told)
    return issued.token
