"""Tokens as attackers and careless libraries make them. Each has one fault, whoever's issuer it is aimed at."""

import base64
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc import jws
from joserfc.jwk import Key, OctKey, OKPKey, RSAKey

MISSING = object()
_short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
RSA, SHORT_RSA = RSAKey.generate_key(2048, {"kid": "rsa"}), RSAKey(_short, _short, {"kid": "short"})
ENCRYPTING = OKPKey.generate_key("Ed25519", {"kid": "enc", "use": "enc"})
EMPTY = OctKey.import_key(b"0" * 32, {"kid": "oct"})


def new_key(kid: str) -> OKPKey:
    """An Ed25519 key for signatures."""
    return OKPKey.generate_key("Ed25519", {"kid": kid, "use": "sig"})


def b64(data: bytes | str) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data.encode() if isinstance(data, str) else data).decode().rstrip("=")


def seal(header: str, payload: str, key: Key, alg: str = "Ed25519") -> str:
    """A token of these very texts, signed as `alg` says, whatever the header claims."""
    signing_input = f"{b64(header)}.{b64(payload)}"
    model = jws.JWSRegistry.algorithms[alg]
    return f"{signing_input}.{b64(model.sign(signing_input.encode(), key))}"  # type: ignore[attr-defined]


@dataclass
class Forge:
    """Makes tokens in an issuer's name, with its keys `key` and `other`, as if it were `now_s`."""

    issuer: str = "https://issuer.test"
    audience: str = "https://arachne.test/api"
    account: str = "acc_1"
    account_claim: str = "account"
    now_s: int = 1_800_000_000
    key: OKPKey = field(default_factory=lambda: new_key("k1"))
    other: OKPKey = field(default_factory=lambda: new_key("k2"))

    @property
    def keys(self) -> dict[str, Key]:
        """All keys by id, those included that no issuer should publish."""
        listed = [self.key, self.other, ENCRYPTING, RSA, SHORT_RSA, EMPTY]
        return {str(key.kid): key for key in listed}

    @property
    def header(self) -> dict[str, Any]:
        """The header of a good token."""
        return {"alg": "Ed25519", "typ": "at+jwt", "kid": self.key.kid}

    @property
    def claims(self) -> dict[str, Any]:
        """The claims of a good token."""
        return {
            "iss": self.issuer, "aud": self.audience, "sub": "cli_1", "client_id": "cli_1",
            self.account_claim: self.account, "iat": self.now_s - 10, "exp": self.now_s + 600, "jti": "tok_1",
            "scope": "vision:read vision:write usage:read",
        }  # fmt: skip

    @cached_property
    def good(self) -> str:
        """A token without a fault."""
        return self.token()

    def token(self, header: dict[str, Any] | None = None, claims: dict[str, Any] | None = None, **how: Any) -> str:
        """A token with some members changed, or left out where they are MISSING."""
        heads = {name: value for name, value in (self.header | (header or {})).items() if value is not MISSING}
        body = {name: value for name, value in (self.claims | (claims or {})).items() if value is not MISSING}
        return self.seal(json.dumps(heads), json.dumps(body), **how)

    def seal(self, header: str, payload: str, key: Key | None = None, alg: str = "Ed25519") -> str:
        """A token of these very texts, signed with the issuer's key if with no other."""
        return seal(header, payload, key or self.key, alg)

    def forged(self) -> dict[str, str]:
        """One token a fault, by what the fault is."""
        return headers(self) | times(self) | claimed(self) | forms(self)


def headers(forge: Forge) -> dict[str, str]:
    """Faults of the header."""
    pem = forge.key.as_pem(private=False)
    public = OctKey(pem, pem, {"kid": forge.key.kid})
    kid, (_, middle, signature) = forge.key.kid, forge.good.split(".")
    return {
        "HS256 with the public key": forge.token({"alg": "HS256"}, key=public, alg="HS256"),
        "HS256 with an empty key's id": forge.token({"alg": "HS256", "kid": "oct"}, key=EMPTY, alg="HS256"),
        "algorithm outside the list": forge.token({"alg": "RS256", "kid": "rsa"}, key=RSA, alg="RS256"),
        "EdDSA": forge.token({"alg": "EdDSA"}),
        "another kind of key": forge.token({"kid": "rsa"}),
        "key for encryption": forge.token({"kid": "enc"}, key=ENCRYPTING),
        "jwk": forge.token({"jwk": forge.other.as_dict(private=False)}, key=forge.other),
        "jku": forge.token({"jku": "https://evil.test/jwks.json"}),
        "x5u": forge.token({"x5u": "https://evil.test/cert"}),
        "x5c": forge.token({"x5c": ["AAAA"]}),
        "kid unknown": forge.token({"kid": "k9"}),
        "kid missing": forge.token({"kid": MISSING}),
        "kid traversal": forge.token({"kid": "../../../dev/null"}),
        "kid number": forge.token({"kid": 1}),
        "kid list": forge.token({"kid": [kid]}),
        "kid null": forge.token({"kid": None}),
        "k2's id signed by k1": forge.token({"kid": forge.other.kid}),
        "typ missing": forge.token({"typ": MISSING}),
        "typ empty": forge.token({"typ": ""}),
        "typ JWT": forge.token({"typ": "JWT"}),
        "typ null": forge.token({"typ": None}),
        "typ list": forge.token({"typ": ["at+jwt"]}),
        "alg missing": forge.token({"alg": MISSING}),
        "alg null": forge.token({"alg": None}),
        "alg list": forge.token({"alg": ["Ed25519"]}),
        "b64 false": forge.token({"b64": False}),
        "b64 false and critical": forge.token({"b64": False, "crit": ["b64"]}),
        **{f"crit {value!r}": forge.token({"crit": value}) for value in (5, None, [], [[1]], ["exp"], "exp", {})},
        "header list": _raw(forge, "[]"),
        "header string": _raw(forge, '"at+jwt"'),
        "header number": _raw(forge, "5"),
        "header null": _raw(forge, "null"),
        "header no JSON": _raw(forge, "{"),
        "header not UTF-8": f"{b64(bytes([0xFF, 0xFE]))}.{middle}.{signature}",
        "duplicate alg": _raw(forge, f'{{"alg":"none","typ":"at+jwt","kid":"{kid}","alg":"Ed25519"}}'),
        "RSA of 1,024 bits": forge.token({"alg": "RS256", "kid": "short"}, key=SHORT_RSA, alg="RS256"),
        **{f"alg {alg}": _unsigned(forge, alg) for alg in ("none", "None", "NONE", "nOnE")},
    }


def times(forge: Forge) -> dict[str, str]:
    """Faults of the moments."""
    now_s, head, payload = forge.now_s, json.dumps(forge.header), json.dumps(forge.claims)
    return {
        "exp past": forge.token(claims={"exp": now_s - 1}),
        "exp now": forge.token(claims={"exp": now_s}),
        "exp missing": forge.token(claims={"exp": MISSING}),
        "exp string": forge.token(claims={"exp": str(now_s + 600)}),
        "exp true": forge.token(claims={"exp": True}),
        "exp null": forge.token(claims={"exp": None}),
        "exp NaN": forge.token(claims={"exp": float("nan")}),
        "exp infinite": forge.token(claims={"exp": float("inf")}),
        "exp 1e400": forge.seal(head, payload.replace(str(now_s + 600), "1e400")),
        "exp huge": forge.token(claims={"exp": 10**30}),
        "exp negative": forge.token(claims={"exp": -1}),
        "exp list": forge.token(claims={"exp": [now_s + 600]}),
        "nbf future": forge.token(claims={"nbf": now_s + 300}),
        "nbf string": forge.token(claims={"nbf": "now"}),
        "iat missing": forge.token(claims={"iat": MISSING}),
        "iat future": forge.token(claims={"iat": now_s + 300}),
        "iat string": forge.token(claims={"iat": "now"}),
        "lifetime over the cap": forge.token(claims={"exp": now_s + 90_000}),
    }


def claimed(forge: Forge) -> dict[str, str]:
    """Faults of the other claims."""
    head = json.dumps(forge.header)
    named = {"sub": "sub", "client_id": "client_id", "jti": "jti", "account": forge.account_claim}
    return {
        "iss another": forge.token(claims={"iss": "https://evil.test"}),
        "iss with a slash": forge.token(claims={"iss": forge.issuer + "/"}),
        "iss list": forge.token(claims={"iss": [forge.issuer]}),
        "iss missing": forge.token(claims={"iss": MISSING}),
        "aud superstring": forge.token(claims={"aud": forge.audience + "/more"}),
        "aud substring": forge.token(claims={"aud": forge.audience[:-1]}),
        "aud dict": forge.token(claims={"aud": {forge.audience: True}}),
        "aud null": forge.token(claims={"aud": None}),
        "aud missing": forge.token(claims={"aud": MISSING}),
        "aud empty list": forge.token(claims={"aud": []}),
        "aud list with a number": forge.token(claims={"aud": [forge.audience, 5]}),
        **{f"{name} missing": forge.token(claims={claim: MISSING}) for name, claim in named.items()},
        **{f"{name} empty": forge.token(claims={claim: ""}) for name, claim in named.items()},
        **{f"{name} number": forge.token(claims={claim: 5}) for name, claim in named.items()},
        "jti on two lines": forge.token(claims={"jti": "a\nb"}),  # nobody could name it to revoke it
        "sub with NUL": forge.token(claims={"sub": "a\0b"}),
        "sub half a surrogate pair": forge.token(claims={"sub": "\ud800"}),
        "sub too long": forge.token(claims={"sub": "x" * 256}),
        "scope number": forge.token(claims={"scope": 5}),
        "scope dict": forge.token(claims={"scope": {"vision:read": True}}),
        "scope list": forge.token(claims={"scope": ["vision:read"]}),
        "claims list": forge.seal(head, "[]"),
        "claims null": forge.seal(head, "null"),
        "claims with a name twice": _claim(forge, ',"sub":"somebody else"'),
    }


def forms(forge: Forge) -> dict[str, str]:
    """Faults of the three parts."""
    good, (head_part, middle, signature) = forge.good, forge.good.split(".")
    altered = signature[:-1] + ("A" if signature[-1] != "A" else "Q")
    head, another = json.dumps(forge.header), forge.token(claims={forge.account_claim: "acc_2"}).split(".")[1]
    return {
        "empty": "",
        "padded signature": good + "==",
        "trailing junk": good + "AAAA",
        "trailing newline": good + "\n",
        "leading space": " " + good,
        "altered last character": f"{head_part}.{middle}.{altered}",
        "no signature": f"{head_part}.{middle}.",
        "two parts": f"{head_part}.{middle}",
        "five parts": f"{good}.AAAA.AAAA",
        "standard alphabet": good.replace("-", "+").replace("_", "/") + "+",
        "not ASCII": good[:-1] + "é",
        "full-width digits": good[:-1] + "１",
        "1 MB": good + "A" * 1_000_000,
        "40,000 deep": forge.seal("[" * 40_000, "{}"),
        "deep claims": forge.seal(head, '{"a":' * 1_500 + "1" + "}" * 1_500),
        "another's payload": f"{head_part}.{another}.{signature}",
    }


def _raw(forge: Forge, members: str) -> str:
    """A token whose header is this very text."""
    return forge.seal(members, json.dumps(forge.claims))


def _claim(forge: Forge, members: str) -> str:
    """A token with this text appended to its claims."""
    return forge.seal(json.dumps(forge.header), json.dumps(forge.claims)[:-1] + members + "}")


def _unsigned(forge: Forge, alg: str) -> str:
    return f"{b64(json.dumps(forge.header | {'alg': alg}))}.{forge.good.split('.')[1]}."


FAULTS = tuple(Forge().forged())
