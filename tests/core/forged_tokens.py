"""Tokens as attackers and careless libraries make them. Each entry of `FORGED` has one fault."""

import base64
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc import jws
from joserfc.jwk import Key, OctKey, OKPKey, RSAKey

from arachne.tokens import Issuer

ISSUER, AUDIENCE = "https://arachne.test", "https://arachne.test/api"
NOW_S = 1_800_000_000
KEY, OTHER, ENCRYPTING = (
    OKPKey.generate_key("Ed25519", {"kid": kid, "use": use})
    for kid, use in (("k1", "sig"), ("k2", "sig"), ("enc", "enc"))
)
_short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
RSA, SHORT_RSA = RSAKey.generate_key(2048, {"kid": "rsa"}), RSAKey(_short, _short, {"kid": "short"})
EMPTY = OctKey.import_key(b"0" * 32, {"kid": "oct"})
KEYS: dict[str, Key] = {"k1": KEY, "k2": OTHER, "enc": ENCRYPTING, "rsa": RSA, "short": SHORT_RSA, "oct": EMPTY}
TRUSTED = Issuer(ISSUER, AUDIENCE, KEYS)
TRUSTED_RSA = Issuer(ISSUER, AUDIENCE, KEYS, algorithms=("Ed25519", "RS256", "HS256"))

HEADER = {"alg": "Ed25519", "typ": "at+jwt", "kid": "k1"}
CLAIMS = {
    "iss": ISSUER, "aud": AUDIENCE, "sub": "cli_1", "client_id": "cli_1", "account": "acc_1", "iat": NOW_S - 10,
    "exp": NOW_S + 600, "jti": "tok_1", "scope": "vision:read vision:write",
}  # fmt: skip
MISSING = object()


def b64(data: bytes | str) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data.encode() if isinstance(data, str) else data).decode().rstrip("=")


def seal(header: str, payload: str, key: Key = KEY, alg: str = "Ed25519") -> str:
    """A token of these very texts, signed as `alg` says, whatever the header claims."""
    signing_input = f"{b64(header)}.{b64(payload)}"
    model = jws.JWSRegistry.algorithms[alg]
    return f"{signing_input}.{b64(model.sign(signing_input.encode(), key))}"  # type: ignore[attr-defined]


def token(header: dict[str, Any] | None = None, claims: dict[str, Any] | None = None, **how: Any) -> str:
    """A token with some members changed, or left out where they are MISSING."""
    heads = {name: value for name, value in (HEADER | (header or {})).items() if value is not MISSING}
    body = {name: value for name, value in (CLAIMS | (claims or {})).items() if value is not MISSING}
    return seal(json.dumps(heads), json.dumps(body), **how)


GOOD = token()
_PUBLIC = OctKey(KEY.as_pem(private=False), KEY.as_pem(private=False), {"kid": "k1"})
_head, _payload, _signature = GOOD.split(".")
_altered = _signature[:-1] + ("A" if _signature[-1] != "A" else "Q")


def _raw(members: str) -> str:
    """A token whose header is this very text."""
    return seal(members, json.dumps(CLAIMS))


def _claim(members: str) -> str:
    """A token with this text appended to its claims."""
    return seal(json.dumps(HEADER), json.dumps(CLAIMS)[:-1] + members + "}")


def _unsigned(alg: str) -> str:
    return f"{b64(json.dumps(HEADER | {'alg': alg}))}.{_payload}."


HEADERS: dict[str, str] = {
    "HS256 with the public key": token({"alg": "HS256"}, key=_PUBLIC, alg="HS256"),
    "HS256 with an empty key's id": token({"alg": "HS256", "kid": "oct"}, key=EMPTY, alg="HS256"),
    "algorithm outside the list": token({"alg": "RS256", "kid": "rsa"}, key=RSA, alg="RS256"),
    "EdDSA": token({"alg": "EdDSA"}),
    "another kind of key": token({"kid": "rsa"}),
    "key for encryption": token({"kid": "enc"}, key=ENCRYPTING),
    "jwk": token({"jwk": OTHER.as_dict(private=False)}, key=OTHER),
    "jku": token({"jku": "https://evil.test/jwks.json"}),
    "x5u": token({"x5u": "https://evil.test/cert"}),
    "x5c": token({"x5c": ["AAAA"]}),
    "kid unknown": token({"kid": "k9"}),
    "kid missing": token({"kid": MISSING}),
    "kid traversal": token({"kid": "../../../dev/null"}),
    "kid number": token({"kid": 1}),
    "kid list": token({"kid": ["k1"]}),
    "kid null": token({"kid": None}),
    "k2's id signed by k1": token({"kid": "k2"}),
    "typ missing": token({"typ": MISSING}),
    "typ empty": token({"typ": ""}),
    "typ JWT": token({"typ": "JWT"}),
    "typ null": token({"typ": None}),
    "typ list": token({"typ": ["at+jwt"]}),
    "alg missing": token({"alg": MISSING}),
    "alg null": token({"alg": None}),
    "alg list": token({"alg": ["Ed25519"]}),
    "b64 false": token({"b64": False}),
    "b64 false and critical": token({"b64": False, "crit": ["b64"]}),
    **{f"crit {value!r}": token({"crit": value}) for value in (5, None, [], [[1]], ["exp"], "exp", {})},
    "header list": _raw("[]"),
    "header string": _raw('"at+jwt"'),
    "header number": _raw("5"),
    "header null": _raw("null"),
    "header no JSON": _raw("{"),
    "header not UTF-8": f"{b64(bytes([0xFF, 0xFE]))}.{_payload}.{_signature}",
    "duplicate alg": _raw('{"alg":"none","typ":"at+jwt","kid":"k1","alg":"Ed25519"}'),
    **{f"alg {alg}": _unsigned(alg) for alg in ("none", "None", "NONE", "nOnE")},
}

TIMES: dict[str, str] = {
    "exp past": token(claims={"exp": NOW_S - 1}),
    "exp now": token(claims={"exp": NOW_S}),
    "exp missing": token(claims={"exp": MISSING}),
    "exp string": token(claims={"exp": str(NOW_S + 600)}),
    "exp true": token(claims={"exp": True}),
    "exp null": token(claims={"exp": None}),
    "exp NaN": token(claims={"exp": float("nan")}),
    "exp infinite": token(claims={"exp": float("inf")}),
    "exp 1e400": seal(json.dumps(HEADER), json.dumps(CLAIMS).replace(str(NOW_S + 600), "1e400")),
    "exp huge": token(claims={"exp": 10**30}),
    "exp negative": token(claims={"exp": -1}),
    "exp list": token(claims={"exp": [NOW_S + 600]}),
    "nbf future": token(claims={"nbf": NOW_S + 300}),
    "nbf string": token(claims={"nbf": "now"}),
    "iat missing": token(claims={"iat": MISSING}),
    "iat future": token(claims={"iat": NOW_S + 300}),
    "iat string": token(claims={"iat": "now"}),
    "lifetime over the cap": token(claims={"exp": NOW_S + 90_000}),
}

CLAIMED: dict[str, str] = {
    "iss another": token(claims={"iss": "https://evil.test"}),
    "iss with a slash": token(claims={"iss": ISSUER + "/"}),
    "iss list": token(claims={"iss": [ISSUER]}),
    "iss missing": token(claims={"iss": MISSING}),
    "aud superstring": token(claims={"aud": AUDIENCE + "/more"}),
    "aud substring": token(claims={"aud": AUDIENCE[:-1]}),
    "aud dict": token(claims={"aud": {AUDIENCE: True}}),
    "aud null": token(claims={"aud": None}),
    "aud missing": token(claims={"aud": MISSING}),
    "aud empty list": token(claims={"aud": []}),
    "aud list with a number": token(claims={"aud": [AUDIENCE, 5]}),
    **{f"{name} missing": token(claims={name: MISSING}) for name in ("sub", "client_id", "jti", "account")},
    **{f"{name} empty": token(claims={name: ""}) for name in ("sub", "client_id", "jti", "account")},
    **{f"{name} number": token(claims={name: 5}) for name in ("sub", "client_id", "jti", "account")},
    "sub with NUL": token(claims={"sub": "a\0b"}),
    "sub half a surrogate pair": token(claims={"sub": "\ud800"}),
    "sub too long": token(claims={"sub": "x" * 256}),
    "scope number": token(claims={"scope": 5}),
    "scope dict": token(claims={"scope": {"vision:read": True}}),
    "scope list": token(claims={"scope": ["vision:read"]}),
    "claims list": seal(json.dumps(HEADER), "[]"),
    "claims null": seal(json.dumps(HEADER), "null"),
    "claims with a name twice": _claim(',"sub":"somebody else"'),
}

FORMS: dict[str, str] = {
    "empty": "",
    "padded signature": GOOD + "==",
    "trailing junk": GOOD + "AAAA",
    "trailing newline": GOOD + "\n",
    "leading space": " " + GOOD,
    "altered last character": f"{_head}.{_payload}.{_altered}",
    "no signature": f"{_head}.{_payload}.",
    "two parts": f"{_head}.{_payload}",
    "five parts": f"{GOOD}.AAAA.AAAA",
    "standard alphabet": GOOD.replace("-", "+").replace("_", "/") + "+",
    "not ASCII": GOOD[:-1] + "é",
    "full-width digits": GOOD[:-1] + "１",
    "1 MB": GOOD + "A" * 1_000_000,
    "40,000 deep": seal("[" * 40_000, "{}"),
    "deep claims": seal(json.dumps(HEADER), '{"a":' * 1_500 + "1" + "}" * 1_500),
    "another's payload": f"{_head}.{token(claims={'account': 'acc_2'}).split('.')[1]}.{_signature}",
}

FORGED = HEADERS | TIMES | CLAIMED | FORMS
