"""Which IP addresses may be called.

Every other address is refused: `ipaddress.is_global` answers wrongly for several ranges below, so they are listed.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from arachne.errors import EgressBlocked

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Source: IANA special-purpose registries; 168.63.129.16 is a cloud's own virtual public address.
_REFUSED_IPV4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "168.63.129.16/32",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ),
    )
)
_GLOBAL_IPV6 = IPv6Network("2000::/3")
_REFUSED_IPV6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))

# What a host name on the allow-list may resolve to: a name is another's to change, so never link-local or metadata.
_PRIVATE_IPV4 = tuple(
    map(IPv4Network, ("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
)
_PRIVATE_IPV6 = tuple(map(IPv6Network, ("::1/128", "fc00::/7")))


def parse_address(text: str) -> Address:
    """The address a socket or resolver names, a zone kept.

    Raises:
        EgressBlocked: not an address.
    """
    try:
        return ip_address(text)
    except ValueError:
        raise EgressBlocked("The destination has no usable address.") from None


def is_public(address: Address) -> bool:
    """Whether `address` is on the public internet, and nothing that leads back inside."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _REFUSED_IPV4)
    return address in _GLOBAL_IPV6 and not any(address in network for network in _REFUSED_IPV6)


def is_private_host(address: Address) -> bool:
    """Whether `address` is an ordinary host of a private network or this machine."""
    if isinstance(address, IPv4Address):
        return any(address in network for network in _PRIVATE_IPV4)
    return address.scope_id is None and any(address in network for network in _PRIVATE_IPV6)
