"""Signatures of Standard Webhooks 1.0: HMAC-SHA256 over the bytes `{id}.{timestamp}.{body}`, never over parsed JSON.

Source: standardwebhooks.com, specification 1.0.
"""

import base64
import binascii
import hashlib
import hmac
import secrets as random
from collections.abc import Iterable

_PREFIX = "whsec_"
SECRET_BYTES = 32
_VERSION = "v1"


def new_secret() -> str:
    """A new signing secret: `whsec_` and 32 random bytes in base64."""
    return _PREFIX + base64.b64encode(random.token_bytes(SECRET_BYTES)).decode()


def decode_secret(secret: str) -> bytes:
    """The key in a secret, with or without its prefix and padding.

    Raises:
        ValueError: not base64, or empty.
    """
    text = secret.strip().removeprefix(_PREFIX).rstrip("=")
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the secret is not whsec_ followed by base64") from None
    if not key:
        raise ValueError("the secret is empty")
    return key


def signed_bytes(message_id: str, timestamp: int | str, body: bytes) -> bytes:
    """What a signature is computed over."""
    return f"{message_id}.{timestamp}.".encode("utf-8", "surrogatepass") + body


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The signature `v1,<base64>`; `timestamp` is in seconds.

    Raises:
        ValueError: the secret is unusable.
    """
    digest = hmac.digest(decode_secret(secret), signed_bytes(message_id, timestamp, body), hashlib.sha256)
    return f"{_VERSION},{base64.b64encode(digest).decode()}"


def sign_with_all(secrets: Iterable[str], message_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`: one signature per live secret, separated by spaces.

    Raises:
        ValueError: a secret is unusable.
    """
    return " ".join(sign(secret, message_id, timestamp, body) for secret in secrets)
