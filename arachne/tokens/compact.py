"""A JWT's three parts, read as if every one were an attack, before anything in them is believed."""

import binascii
import re
from base64 import urlsafe_b64decode
from dataclasses import dataclass, field

from arachne import strict_json
from arachne.errors import InvalidToken

MAX_TOKEN_CHARS = 8192
_COMPACT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)", re.ASCII)
_HEADER_NAMES = {"alg", "typ", "kid", "x5t", "x5t#S256"}  # thumbprints are hints; keys in the header are refused
_TYPES = {"at+jwt", "application/at+jwt"}


@dataclass(frozen=True)
class UnverifiedToken:
    """What a token says of itself: nothing of it is true before its signature has been verified."""

    text: str = field(repr=False)
    algorithm: str
    key_id: str
    claims: dict[str, object] = field(repr=False)

    @property
    def issuer(self) -> str | None:
        """Who is said to have signed it."""
        return self._text("iss")

    @property
    def jti(self) -> str | None:
        """Its id, as it says."""
        return self._text("jti")

    def _text(self, name: str) -> str | None:
        claim = self.claims.get(name)
        return claim if isinstance(claim, str) else None


def read_token(text: str) -> UnverifiedToken:
    """The token taken apart.

    Raises:
        InvalidToken: it has not the form of an access token.
    """
    match = _COMPACT.fullmatch(text) if len(text) <= MAX_TOKEN_CHARS else None
    if match is None:
        raise InvalidToken("The token is no JWT of three parts.")
    header = _read_header(match[1])
    if header.get("typ", "").lower() not in _TYPES:
        raise InvalidToken("The token is no access token: its `typ` must be `at+jwt`.")
    if "kid" not in header or "alg" not in header:
        raise InvalidToken("The token's header must name its key (`kid`) and its algorithm (`alg`).")
    return UnverifiedToken(text, header["alg"], header["kid"], _read_object(match[2]))


def _read_object(part: str) -> dict[str, object]:
    try:
        value = strict_json.parse(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError):
        raise InvalidToken("A part of the token can't be read.") from None
    if not isinstance(value, dict):
        raise InvalidToken("A part of the token is no JSON object.")
    return value


def _read_header(part: str) -> dict[str, str]:
    header = _read_object(part)
    if not header.keys() <= _HEADER_NAMES:
        raise InvalidToken("The token's header has members that are not accepted.")
    texts = {name: value for name, value in header.items() if isinstance(value, str)}
    if len(texts) != len(header):
        raise InvalidToken("The token's header has a member of a wrong type.")
    return texts
