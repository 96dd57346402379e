"""The issuers whose tokens are accepted: this service, and those the operator trusts."""

from collections.abc import Mapping
from ipaddress import ip_network
from urllib.parse import urlsplit

from arachne.errors import EgressBlocked, InvalidUrl, SetupError
from arachne.net.addresses import Network
from arachne.net.policy import AllowEntry, EgressPolicy
from arachne.net.urls import DEFAULT_PORTS, check_url
from arachne.schemas.issuer import TrustedIssuer
from arachne.settings import Settings
from arachne.tokens.issuance import audience_of
from arachne.tokens.remote_keys import RemoteKeys
from arachne.tokens.verification import Issuer


def our_issuer(settings: Settings) -> Issuer:
    """This service."""
    return Issuer(settings.base_url, audience_of(settings))


def trusted_issuers(settings: Settings) -> Mapping[str, tuple[Issuer, RemoteKeys]]:
    """The operator's issuers by name, with where their keys come from.

    Raises:
        SetupError: one can't be used; says why.
    """
    return {one.issuer: _open(one, settings) for one in settings.trusted_issuers}


def _open(trusted: TrustedIssuer, settings: Settings) -> tuple[Issuer, RemoteKeys]:
    where = f"ARACHNE_TRUSTED_ISSUERS, issuer {trusted.issuer!r}"
    if trusted.issuer == settings.base_url:
        raise SetupError(f"{where}: this is the service itself (ARACHNE_PUBLIC_URL). Leave it out.")
    try:
        policy = _policy(trusted.jwks_url, settings)
        checked = check_url(trusted.jwks_url, policy)
    except (InvalidUrl, EgressBlocked) as error:
        raise SetupError(f"{where}: jwks_url: {error.message}") from None
    issuer = Issuer(
        trusted.issuer,
        trusted.audience,
        algorithms=tuple(trusted.algorithms),
        account_claim=trusted.account_claim,
        scopes=tuple(trusted.scopes),
        is_ours=False,
    )
    return issuer, RemoteKeys(trusted.issuer, checked, policy, issuer.algorithms)


def _policy(url: str, settings: Settings) -> EgressPolicy:
    """The one host, private or not, that the operator names in the setting itself, at its port.

    Raises:
        InvalidUrl: it names none.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError:
        raise InvalidUrl("The URL can't be read.") from None
    entry = AllowEntry(_network(host) or host, port)
    return EgressPolicy((entry,), allow_http=settings.egress_allow_http, ports=frozenset({port}))


def _network(host: str) -> Network | None:
    try:
        return ip_network(host)
    except ValueError:
        return None
