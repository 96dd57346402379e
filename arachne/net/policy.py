"""What outgoing requests may reach: the public internet, and what the operator's allow-list names."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Self

import psutil

from arachne.errors import EgressBlocked, SetupError
from arachne.net.addresses import Address, Network, is_private_host, is_public, parse_address
from arachne.settings import Settings

_BRACKETED = re.compile(r"\[(?P<host>[^\]]+)\](?::(?P<port>\d{1,5}))?")
_PLAIN = re.compile(r"(?P<host>[^\[\]:]+)(?::(?P<port>\d{1,5}))?")
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")


@dataclass(frozen=True, slots=True)
class AllowEntry:
    """One allowed destination: a host by name or a network, at one port or at all."""

    target: str | Network
    port: int | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """`host-or-network[:port]`, IPv6 with a port in brackets.

        Raises:
            SetupError: none of these.
        """
        host, port = _split(text.strip().lower())
        if port is not None and not 1 <= port <= 65535:
            raise SetupError(f"{text!r} in an EGRESS_ALLOW setting: a port is 1 to 65535.")
        try:
            return cls(ip_network(host, strict=False), port)
        except ValueError:
            if _NAME.fullmatch(host) is None or re.fullmatch(r"[\d.]+", host):
                raise SetupError(f"{text!r} in an EGRESS_ALLOW setting is no `host-or-network[:port]`.") from None
            return cls(host, port)

    def opens(self, host: str | None, address: Address, port: int) -> bool:
        """Whether this entry opens `address`, reached by the name `host`, at `port`."""
        if self.port not in {None, port}:
            return False
        if isinstance(self.target, str):
            return self.target == host and is_private_host(address)
        return address in self.target

    def names(self, host: str, port: int) -> bool:
        """Whether this entry speaks of `host`, a name or an address in its text form, at `port`."""
        if self.port not in {None, port}:
            return False
        if isinstance(self.target, str):
            return self.target == host
        try:
            return ip_address(host) in self.target
        except ValueError:
            return False


def _split(text: str) -> tuple[str, int | None]:
    match = _BRACKETED.fullmatch(text) or _PLAIN.fullmatch(text)
    if match is None:
        return text, None  # a bare IPv6 address or network
    return match["host"], int(match["port"]) if match["port"] else None


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """The rules of outgoing requests. `own` are (address, port) pairs this service listens on."""

    allow: tuple[AllowEntry, ...] = ()
    allow_http: bool = False
    ports: frozenset[int] = frozenset({443, 80, 8443, 8080})
    own: frozenset[tuple[Address, int]] = frozenset()

    @classmethod
    def build(
        cls,
        allow: Iterable[str] = (),
        *,
        allow_http: bool = False,
        ports: Iterable[int] = (443, 80, 8443, 8080),
        own_addresses: Iterable[tuple[str, int]] = (),
    ) -> Self:
        """The policy as settings write it.

        Raises:
            SetupError: an allow-list entry is unreadable.
        """
        own = frozenset((ip_address(host), port) for host, port in own_addresses)
        return cls(tuple(map(AllowEntry.parse, allow)), allow_http, frozenset(ports), own)

    def names(self, host: str, port: int) -> bool:
        """Whether the allow-list speaks of `host` at `port`, so that form rules for private names don't apply."""
        return any(entry.names(host, port) for entry in self.allow)

    def require(self, host: str | None, address_text: str, port: int) -> None:
        """Nothing, if `address_text` may be called at `port` for `host`.

        Raises:
            EgressBlocked: it may not; says nothing of what the name resolved to.
        """
        address = parse_address(address_text)
        openers = [entry for entry in self.allow if entry.opens(host, address, port)]
        if (address, port) in self.own and not any(entry.port == port for entry in openers):
            raise EgressBlocked("The URL leads back to this service.")
        if openers:
            return
        if not is_public(address):
            raise EgressBlocked("The URL leads to an address that may not be called; the operator can allow it.")
        self._require_port(port)

    def refuse_hopeless_port(self, host: str, port: int) -> None:
        """Nothing, if some address that the name `host` may resolve to could be called at `port`.

        Raises:
            EgressBlocked: the port is closed whatever it resolves to.
        """
        networks = (entry for entry in self.allow if not isinstance(entry.target, str))
        if not self.names(host, port) and not any(entry.port in {None, port} for entry in networks):
            self._require_port(port)

    def _require_port(self, port: int) -> None:
        if port not in self.ports:
            raise EgressBlocked(f"Port {port} may not be called; use one of {sorted(self.ports)}.")


def webhook_policy(settings: Settings) -> EgressPolicy:
    """The policy for webhook URLs."""
    return _policy(settings, settings.webhook_egress_allow)


def image_policy(settings: Settings) -> EgressPolicy:
    """The policy for image URLs."""
    return _policy(settings, settings.image_egress_allow)


def _policy(settings: Settings, allow: Sequence[str]) -> EgressPolicy:
    return EgressPolicy.build(
        allow,
        allow_http=settings.egress_allow_http,
        ports=settings.egress_ports,
        own_addresses=listen_addresses(settings.host, settings.port),
    )


def listen_addresses(host: str, port: int) -> list[tuple[str, int]]:
    """The (address, port) pairs a server on `host` can be reached at from this machine."""
    try:
        address = ip_address(host)
    except ValueError:
        return [("127.0.0.1", port), ("::1", port)] if host == "localhost" else []
    if not address.is_unspecified:
        return [(host, port)]
    interfaces = (entry.address for entries in psutil.net_if_addrs().values() for entry in entries)
    return [(text.partition("%")[0], port) for text in interfaces if _is_address(text)]


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
