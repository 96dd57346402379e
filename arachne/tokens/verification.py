"""Whether a token was signed for us by one of its issuer's keys, and is alive."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import Key

from arachne.errors import InvalidToken
from arachne.schemas.issuer import MAX_CLAIM_CHARS
from arachne.schemas.text import is_storable
from arachne.schemas.token import SCOPES
from arachne.settings import DAY_S
from arachne.tokens.compact import UnverifiedToken
from arachne.tokens.issuance import ALGORITHM
from arachne.tokens.key_sets import require_fit

CLOCK_SKEW_S = 30


@dataclass(frozen=True)
class Issuer:
    """Whose tokens are accepted: its name, ours in its tokens, its algorithms, and what its tokens may do at most."""

    name: str
    audience: str
    algorithms: Collection[str] = (ALGORITHM,)
    account_claim: str = "account"
    scopes: Collection[str] = SCOPES
    max_ttl_s: float = DAY_S
    is_ours: bool = True


@dataclass(frozen=True)
class AccessToken:
    """A verified token's claims. `account` is the account's id in our tokens, what it is bound to in others'."""

    issuer: Issuer
    account: str
    subject: str
    client_id: str
    scopes: frozenset[str]
    jti: str
    issued_at: datetime
    expires_at: datetime


def verify_token(
    token: UnverifiedToken, issuer: Issuer, keys: Mapping[str, Key], *, now_s: float | None = None
) -> AccessToken:
    """The claims of a token that this issuer signed for us and that is alive.

    Raises:
        InvalidToken: anything about it is not as it must be.
    """
    require_algorithm(token, issuer)
    key = keys.get(token.key_id)
    if key is None:
        raise InvalidToken("The token names no key of its issuer. Get a new token.")
    require_fit(key, token.algorithm)
    try:
        jws.deserialize_compact(token.text, key, registry=_Registry(token.algorithm))
    except (JoseError, ValueError, TypeError, KeyError):
        raise InvalidToken("The token's signature is wrong.") from None
    return _check_claims(token.claims, issuer, time.time() if now_s is None else now_s)


def require_algorithm(token: UnverifiedToken, issuer: Issuer) -> None:
    """Nothing, where the issuer signs with the token's algorithm.

    Raises:
        InvalidToken: it does not.
    """
    if token.algorithm not in issuer.algorithms:
        raise InvalidToken("The token is signed with an algorithm that is not accepted.")


class _Registry(jws.JWSRegistry):
    """The one algorithm of a token. Which are acceptable is the issuer's list alone to say, `EdDSA` included."""

    def __init__(self, algorithm: str) -> None:
        super().__init__(algorithms=[algorithm], strict_check_header=False)
        self._algorithm = algorithm

    def get_alg(self, name: str):  # type: ignore[no-untyped-def]  # its type is not public
        """The algorithm, which the token can't have changed since it was looked at."""
        if name != self._algorithm:
            raise ValueError(name)
        return self.algorithms[name]


def is_token_id(text: str) -> bool:
    """Whether a token of this id can be revoked, by a person at a command line too; no other is accepted."""
    return 0 < len(text) <= MAX_CLAIM_CHARS and text.isprintable()


def _check_claims(claims: dict[str, object], issuer: Issuer, now_s: float) -> AccessToken:
    if claims.get("iss") != issuer.name:
        raise InvalidToken("The token is from another issuer.")
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if issuer.audience not in audiences or not all(isinstance(one, str) for one in audiences):
        raise InvalidToken("The token is for another audience.")
    issued_s, expires_s = _check_times(claims, issuer.max_ttl_s, now_s)
    scope = claims.get("scope", "")
    if not isinstance(scope, str):
        raise InvalidToken("The token's `scope` is no text.")
    return AccessToken(
        issuer=issuer,
        account=_text(claims, issuer.account_claim),
        subject=_text(claims, "sub"),
        client_id=_text(claims, "client_id"),
        scopes=frozenset(scope.split(" ")) & frozenset(issuer.scopes),
        jti=_token_id(claims),
        issued_at=datetime.fromtimestamp(issued_s, UTC),
        expires_at=datetime.fromtimestamp(expires_s, UTC),
    )


def _check_times(claims: dict[str, object], max_ttl_s: float, now_s: float) -> tuple[float, float]:
    """When the token was issued and when it expires, seconds since the epoch."""
    expires_s, issued_s = _moment(claims, "exp"), _moment(claims, "iat")
    not_before_s = _moment(claims, "nbf") if "nbf" in claims else issued_s
    if expires_s <= now_s:
        raise InvalidToken("The token has expired. Get a new one.")
    if issued_s > now_s + CLOCK_SKEW_S or not_before_s > now_s + CLOCK_SKEW_S:
        raise InvalidToken("The token is not valid yet.")
    if expires_s - issued_s > max_ttl_s:
        raise InvalidToken("The token lives longer than is accepted.")
    return issued_s, expires_s


def _moment(claims: dict[str, object], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e11:
        return float(value)
    raise InvalidToken(f"The token's `{name}` is no point in time.")


def _text(claims: dict[str, object], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_CLAIM_CHARS or not is_storable(value):
        raise InvalidToken(f"The token's `{name}` is missing or no text.")
    return value


def _token_id(claims: dict[str, object]) -> str:
    jti = _text(claims, "jti")
    if not is_token_id(jti):
        raise InvalidToken("The token's `jti` has characters that can't be printed.")
    return jti
