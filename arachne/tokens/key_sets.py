"""JWK sets (RFC 7517) as issuers publish them, and which of their keys may verify what."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, Key, OKPKey, RSAKey

from arachne import strict_json
from arachne.errors import InvalidToken

MAX_KEYS = 100
MAX_KEY_ID_CHARS = 255
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 6144  # joserfc takes no longer signature
_KINDS: dict[str, tuple[type[RSAKey | ECKey | OKPKey], str | None]] = {
    **{f"{family}{bits}": (RSAKey, None) for family in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": (ECKey, "P-256"),
    "ES384": (ECKey, "P-384"),
    "ES512": (ECKey, "P-521"),
    "Ed25519": (OKPKey, "Ed25519"),
    "EdDSA": (OKPKey, "Ed25519"),
}


def parse_key_set(data: bytes, algorithms: Collection[str]) -> Mapping[str, Key]:
    """The keys by id that fit one of the algorithms; others are left out, as RFC 7517 wants it.

    Raises:
        ValueError: no JWK set.
    """
    found = strict_json.parse(data)
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it is no JSON object with a list `keys`")  # noqa: TRY004  # one kind of error for bad data
    if len(listed) > MAX_KEYS:
        raise ValueError(f"it has more than {MAX_KEYS} keys")
    keys: dict[str, Key] = {}
    for key_id, key in _usable(listed, algorithms):
        keys.setdefault(key_id, key)
    return keys


def require_fit(key: Key, algorithm: str) -> None:
    """Nothing, where this key may verify what is signed with this algorithm.

    Raises:
        InvalidToken: it is of another kind or curve, for another use, or too short.
    """
    parameters = key.as_dict()
    operations = parameters.get("key_ops", ["verify"])
    if parameters.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        raise InvalidToken("The token's key is not for signatures.")
    if parameters.get("alg", algorithm) != algorithm:
        raise InvalidToken("The token's key is for another algorithm.")
    kind, curve = _KINDS.get(algorithm, (None, None))
    if kind is None or not isinstance(key, kind) or (curve is not None and parameters.get("crv") != curve):
        raise InvalidToken("The token's key is of another kind than its algorithm.")
    if isinstance(key, RSAKey) and not MIN_RSA_BITS <= key.public_key.key_size <= MAX_RSA_BITS:
        raise InvalidToken(f"The token's key is too short or too long: {MIN_RSA_BITS} to {MAX_RSA_BITS} bits.")


def _usable(listed: list[Any], algorithms: Collection[str]) -> Iterator[tuple[str, Key]]:
    for jwk in listed:
        if not isinstance(jwk, dict) or "d" in jwk or _is_short(jwk):  # a published private key is everybody's
            continue
        key_id = jwk.get("kid")
        if not isinstance(key_id, str) or not 0 < len(key_id) <= MAX_KEY_ID_CHARS:
            continue
        try:
            key = JWKRegistry.import_key(_without_curve_name(jwk))
        except (JoseError, ValueError, TypeError, KeyError):
            continue
        if any(_fits(key, algorithm) for algorithm in algorithms):
            yield key_id, key


def _without_curve_name(jwk: dict[str, Any]) -> dict[str, Any]:
    """The key without `alg` where that only names its curve: it has two names. Source: RFC 9864."""
    if jwk.get("alg") not in {"EdDSA", "Ed25519"}:
        return jwk
    return {name: value for name, value in jwk.items() if name != "alg"}


def _is_short(jwk: dict[str, object]) -> bool:
    """Whether it is an RSA key that joserfc would warn of on import; only its length in base64 is looked at."""
    modulus = jwk.get("n")
    return jwk.get("kty") == "RSA" and isinstance(modulus, str) and len(modulus) * 6 < MIN_RSA_BITS


def _fits(key: Key, algorithm: str) -> bool:
    try:
        require_fit(key, algorithm)
    except InvalidToken:
        return False
    return True
