"""How signing secrets are bound to their owner when sealed."""

from collections.abc import Sequence
from dataclasses import dataclass

from arachne.secretbox import SecretBox


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """A sealed signing secret and the purpose it opens for."""

    sealed: bytes
    purpose: str


def endpoint_purpose(endpoint_id: str) -> str:
    """The purpose of an endpoint's secrets."""
    return f"webhook-endpoint:{endpoint_id}"


def account_purpose(account_id: str) -> str:
    """The purpose of an account's default secrets."""
    return f"webhook-account:{account_id}"


def seal(box: SecretBox, secret: str, purpose: str) -> bytes:
    """The secret as it is stored."""
    return box.encrypt(secret.encode(), purpose)


def open_all(box: SecretBox, secrets: Sequence[SealedSecret]) -> list[str]:
    """The secrets in clear.

    Raises:
        SetupError: one can't be opened.
    """
    return [box.decrypt(secret.sealed, secret.purpose).decode() for secret in secrets]
