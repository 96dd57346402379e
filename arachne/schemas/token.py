"""Scopes, and what the token endpoint and the discovery documents answer."""

from collections.abc import Mapping
from typing import Literal, get_args

from arachne.schemas.wire import WireModel

# What a token may grant: `admin` is given by operators alone, so that no token can make more of itself.
GrantableScope = Literal["vision:read", "vision:write", "webhooks:manage", "usage:read"]
Scope = Literal[GrantableScope, "admin"]
CLIENT_SCOPES: tuple[GrantableScope, ...] = get_args(GrantableScope)  # what a client is granted when it is made
SCOPES: tuple[Scope, ...] = get_args(Scope)
SCOPE_MEANINGS: Mapping[Scope, str] = {
    "vision:read": "Jobs, results, events and models, to be read",
    "vision:write": "Submitting, cancelling, retrying and erasing jobs",
    "webhooks:manage": "Webhook endpoints and their deliveries",
    "usage:read": "What the account used, and its statements",
    "admin": "Accounts, clients, plans, keys and the record of what was done",
}


class TokenAnswer(WireModel):
    """An access token and how long it lives, seconds. Source: RFC 6749 §5.1."""

    access_token: str
    token_type: Literal["Bearer"] = "Bearer"  # noqa: S105  # a word of RFC 6750
    expires_in: int
    scope: str


class TokenFault(WireModel):
    """Why no token was given. Source: RFC 6749 §5.2."""

    error: str
    error_description: str


class KeySetView(WireModel):
    """The keys tokens verify with. Source: RFC 7517."""

    keys: list[dict[str, str]]


class ServerMetadata(WireModel):
    """Where this authorization server's parts are. Source: RFC 8414."""

    issuer: str
    token_endpoint: str
    jwks_uri: str
    scopes_supported: list[str]
    response_types_supported: list[str]
    grant_types_supported: list[str]
    token_endpoint_auth_methods_supported: list[str]
    service_documentation: str
