"""Whose tokens are accepted besides our own, as the operator writes it."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from arachne.schemas.text import is_storable
from arachne.schemas.token import Scope

# Signatures by key pairs alone: a shared secret would let us forge the issuer's tokens, and `none` everybody.
Algorithm = Literal[
    "Ed25519", "EdDSA", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"
]  # fmt: skip
MAX_CLAIM_CHARS = 255


def _plain(text: str) -> str:
    if text != text.strip() or not text.isprintable() or not is_storable(text):
        raise ValueError("has spaces at an end or characters that can't be printed")
    return text


def _signed_by_key_pair(name: object) -> object:
    if isinstance(name, str) and (name.lower() == "none" or name.upper().startswith("HS")):
        raise ValueError(f"{name!r} is never accepted: the issuer has to sign with a private key, as RS256 or Ed25519")
    return name


Plain = Annotated[str, Field(min_length=1, max_length=MAX_CLAIM_CHARS), AfterValidator(_plain)]


class TrustedIssuer(BaseModel):
    """An issuer of access tokens (RFC 9068). `account_claim` names the claim that tells the account."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    issuer: Plain
    audience: Plain
    jwks_url: str = Field(min_length=1)
    algorithms: list[Annotated[Algorithm, BeforeValidator(_signed_by_key_pair)]] = Field(min_length=1)
    account_claim: Plain
    scopes: list[Scope] = Field(min_length=1)


def require_distinct(issuers: list[TrustedIssuer]) -> list[TrustedIssuer]:
    """The issuers, each of which is there once.

    Raises:
        ValueError: one is there twice.
    """
    names = [one.issuer for one in issuers]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"the issuer {twice!r} is there twice")
    return issuers
