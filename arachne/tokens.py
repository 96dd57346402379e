"""Access tokens: RFC 9068 (`typ: at+jwt`), signed with Ed25519, verified as if every one were an attack."""

import binascii
import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, OctKey, OKPKey, RSAKey
from sqlmodel import Session

from arachne import strict_json
from arachne.accounts import find_account
from arachne.errors import AccountUnknown, InvalidToken, RequestError
from arachne.ids import new_id
from arachne.schemas.text import is_storable
from arachne.schemas.token import SCOPES
from arachne.secretbox import SecretBox
from arachne.settings import DAY_S, Settings
from arachne.signing_keys import current_key

ALGORITHM = "Ed25519"
OPERATOR = "operator"
MAX_TOKEN_CHARS = 8192
MAX_CLAIM_CHARS = 255
CLOCK_SKEW_S = 30
_COMPACT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)", re.ASCII)
_HEADER_NAMES = {"alg", "typ", "kid", "x5t", "x5t#S256"}  # thumbprints are hints; keys in the header are refused
_TYPES = {"at+jwt", "application/at+jwt"}
_MIN_RSA_BITS = 2048
_KEY_KINDS: dict[str, type[RSAKey | ECKey | OKPKey]] = {"RS": RSAKey, "PS": RSAKey, "ES": ECKey, "Ed": OKPKey}


@dataclass(frozen=True)
class Issuer:
    """Whose tokens are accepted: its name, ours in its tokens, its algorithms and its public keys by id."""

    issuer: str
    audience: str
    keys: Mapping[str, Key]
    algorithms: Collection[str] = (ALGORITHM,)
    max_ttl_s: float = DAY_S


@dataclass(frozen=True)
class AccessToken:
    """A verified token's claims. A user is (account, subject)."""

    account_id: str
    subject: str
    client_id: str
    scopes: frozenset[str]
    jti: str
    issued_at: datetime
    expires_at: datetime


@dataclass(frozen=True)
class IssuedToken:
    """A token, its seconds to live and its scopes."""

    token: str = field(repr=False)
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
    now, ordered = int(time.time()), tuple(scope for scope in SCOPES if scope in scopes)
    claims = {
        "iss": settings.base_url,
        "aud": audience_of(settings),
        "sub": subject,
        "client_id": client_id,
        "account": account_id,
        "iat": now,
        "exp": now + int(ttl_s),
        "jti": new_id("tok"),
        "scope": " ".join(ordered),
    }
    token = jwt.encode({"alg": ALGORITHM, "typ": "at+jwt", "kid": key.kid}, claims, key, algorithms=[ALGORITHM])
    return IssuedToken(token, int(ttl_s), ordered)


def issue_operator_token(  # noqa: PLR0917  # the command line hands all of them over
    session: Session, box: SecretBox, settings: Settings, account_name: str, scopes: Collection[str], ttl_s: float
) -> str:
    """A token for an account, made by whoever has the database and the secret key.

    Raises:
        NotFound: there is no such account.
        AccountUnknown: the account is disabled.
        RequestError: a scope doesn't exist, or the lifetime is over a day.
    """
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown:
        raise RequestError(f"There is no scope {unknown[0]!r}. Scopes: {', '.join(SCOPES)}.")
    if not 1 <= ttl_s <= DAY_S:
        raise RequestError(f"A token lives 1 to {DAY_S:.0f} seconds.")
    account = find_account(session, account_name)
    if account.disabled_at is not None:
        raise AccountUnknown(f"The account {account.name!r} is disabled.")
    key = current_key(session, box)
    issued = issue_token(
        key,
        settings,
        account_id=account.account_id,
        subject=OPERATOR,
        client_id=OPERATOR,
        scopes=scopes,
        ttl_s=ttl_s,
    )
    return issued.token


def read_key_id(token: str) -> str | None:
    """The key id a token names, unverified; None where it names none."""
    try:
        return _header(_split(token)[0]).get("kid")
    except InvalidToken:
        return None


def verify_token(token: str, issuer: Issuer, *, now_s: float | None = None) -> AccessToken:
    """The claims of a token that this issuer signed for us and that is alive.

    Raises:
        InvalidToken: anything about it is not as it must be.
    """
    header_part, payload_part = _split(token)
    header = _header(header_part)
    if header.get("typ", "").lower() not in _TYPES:
        raise InvalidToken("The token is no access token: its `typ` must be `at+jwt`.")
    if header.get("alg") not in issuer.algorithms:
        raise InvalidToken("The token is signed with an algorithm that is not accepted.")
    key = issuer.keys.get(header.get("kid", ""))
    if key is None:
        raise InvalidToken("The token names no key of its issuer. Get a new token.")
    _check_key(key, header["alg"])
    try:
        jws.deserialize_compact(token, key, algorithms=[header["alg"]], registry=_registry(header["alg"]))
    except (JoseError, ValueError, TypeError, KeyError):
        raise InvalidToken("The token's signature is wrong.") from None
    return _check_claims(_object(payload_part), issuer, time.time() if now_s is None else now_s)


def _registry(algorithm: str) -> jws.JWSRegistry:
    return jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)


def _split(token: str) -> tuple[str, str]:
    match = _COMPACT.fullmatch(token) if len(token) <= MAX_TOKEN_CHARS else None
    if match is None:
        raise InvalidToken("The token is no JWT of three parts.")
    return match[1], match[2]


def _object(part: str) -> dict[str, object]:
    try:
        value = strict_json.parse(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError):
        raise InvalidToken("A part of the token can't be read.") from None
    if not isinstance(value, dict):
        raise InvalidToken("A part of the token is no JSON object.")
    return value


def _header(part: str) -> dict[str, str]:
    header = _object(part)
    if not header.keys() <= _HEADER_NAMES:
        raise InvalidToken("The token's header has members that are not accepted.")
    texts = {name: value for name, value in header.items() if isinstance(value, str)}
    if len(texts) != len(header):
        raise InvalidToken("The token's header has a member of a wrong type.")
    return texts


def _check_key(key: Key, algorithm: str) -> None:
    parameters = key.as_dict()
    if isinstance(key, OctKey) or parameters.get("use", "sig") != "sig":
        raise InvalidToken("The token's key is not for signatures.")
    if parameters.get("alg", algorithm) != algorithm:
        raise InvalidToken("The token's key is for another algorithm.")
    fits = _KEY_KINDS.get(algorithm[:2])
    if fits is None or not isinstance(key, fits):
        raise InvalidToken("The token's key is of another kind than its algorithm.")
    if isinstance(key, RSAKey) and key.public_key.key_size < _MIN_RSA_BITS:
        raise InvalidToken("The token's key is too short.")


def _check_claims(claims: dict[str, object], issuer: Issuer, now_s: float) -> AccessToken:
    if claims.get("iss") != issuer.issuer:
        raise InvalidToken("The token is from another issuer.")
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if issuer.audience not in audiences or not all(isinstance(one, str) for one in audiences):
        raise InvalidToken("The token is for another audience.")
    expires_s, issued_s = _moment(claims, "exp"), _moment(claims, "iat")
    not_before_s = _moment(claims, "nbf") if "nbf" in claims else issued_s
    if expires_s <= now_s:
        raise InvalidToken("The token has expired. Get a new one.")
    if issued_s > now_s + CLOCK_SKEW_S or not_before_s > now_s + CLOCK_SKEW_S:
        raise InvalidToken("The token is not valid yet.")
    if expires_s - issued_s > issuer.max_ttl_s:
        raise InvalidToken("The token lives longer than is accepted.")
    scope = claims.get("scope", "")
    if not isinstance(scope, str):
        raise InvalidToken("The token's `scope` is no text.")
    return AccessToken(
        account_id=_text(claims, "account"),
        subject=_text(claims, "sub"),
        client_id=_text(claims, "client_id"),
        scopes=frozenset(scope.split(" ")) & frozenset(SCOPES),
        jti=_text(claims, "jti"),
        issued_at=datetime.fromtimestamp(issued_s, UTC),
        expires_at=datetime.fromtimestamp(expires_s, UTC),
    )


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
