"""Access tokens after RFC 9068: ours are issued, ours and those of trusted issuers verified."""

from arachne.tokens.compact import UnverifiedToken, read_token
from arachne.tokens.issuance import (
    IssuedToken,
    issue_operator_token,
    issue_token,
)
from arachne.tokens.issuers import our_issuer, trusted_issuers
from arachne.tokens.remote_keys import RemoteKeys
from arachne.tokens.verification import AccessToken, Issuer, is_token_id, require_algorithm, verify_token

__all__ = [
    "AccessToken",
    "IssuedToken",
    "Issuer",
    "RemoteKeys",
    "UnverifiedToken",
    "is_token_id",
    "issue_operator_token",
    "issue_token",
    "our_issuer",
    "read_token",
    "require_algorithm",
    "trusted_issuers",
    "verify_token",
]
