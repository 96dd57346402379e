"""Which forms of URL are ever called. Strict on purpose: what two parsers could read differently is refused."""

import re
import unicodedata
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from yarl import URL

from arachne.errors import EgressBlocked, InvalidUrl
from arachne.net.policy import EgressPolicy

MAX_URL_LENGTH = 2048
_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>\[[^\]/?]*\]|[^:/?\[\]]*)(?::(?P<port>\d{1,8}))?(?P<rest>(?:[/?].*)?)",
    re.IGNORECASE,
)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
_PRIVATE_SUFFIXES = (".localhost", ".local", ".internal")
DEFAULT_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class CheckedUrl:
    """A URL of a form that may be called. `host` is lower case, an IPv6 address without brackets."""

    url: str
    scheme: str
    host: str
    port: int
    is_address: bool


def check_url(url: str, policy: EgressPolicy) -> CheckedUrl:
    """`url` taken apart, if its form, host and port may be called; a name's addresses are checked when resolved.

    Raises:
        InvalidUrl: the form.
        EgressBlocked: the host or port.
    """
    _refuse_characters(url)
    match = _URL.fullmatch(url)
    if match is None:
        raise InvalidUrl("Write the URL as https://host/path, without user name, spaces or fragment.")
    scheme = match["scheme"].lower()
    if scheme not in DEFAULT_PORTS or (scheme == "http" and not policy.allow_http):
        raise InvalidUrl("Only https:// URLs are called; the operator can allow http:// (EGRESS_ALLOW_HTTP).")
    port = DEFAULT_PORTS[scheme] if match["port"] is None else int(match["port"])
    if not 1 <= port <= 65535:
        raise InvalidUrl("The URL's port must be 1 to 65535.")
    host, is_address = _parse_host(match["host"].lower())
    checked = CheckedUrl(url, scheme, host, port, is_address)
    _refuse_disagreement(checked)
    _require_destination(checked, policy)
    return checked


def redact_query(url: str) -> str:
    """`url` with its query, and a fragment or user info if any, replaced."""
    head, mark, _ = url.partition("?")
    head = without_user_info(head.partition("#")[0])
    return f"{head}?redacted" if mark else head


def without_user_info(url: str) -> str:
    """`url` without a name and password before its host; such URLs are refused, and nobody needs to keep those."""
    return re.sub(r"(?<=://)[^/?#]*@", "", url)


def _refuse_characters(url: str) -> None:
    if len(url) > MAX_URL_LENGTH:
        raise InvalidUrl(f"The URL is over {MAX_URL_LENGTH} characters.")
    if any(unicodedata.category(character)[0] in "CZ" for character in url):
        raise InvalidUrl("The URL contains spaces or control characters; percent-encode them.")
    if not url.isascii():
        raise InvalidUrl("Percent-encode the URL's path and query, and write an international host in its xn-- form.")
    if re.search(r"[\\#\"<>^`{|}]|%00|%(?![0-9a-f]{2})", url, re.IGNORECASE):
        raise InvalidUrl("The URL contains a fragment, a backslash or another character that must be percent-encoded.")


def _parse_host(host: str) -> tuple[str, bool]:
    """The host in canonical form, and whether it is an IP address."""
    if host.startswith("["):
        try:
            address = IPv6Address(host[1:-1])
        except ValueError:
            raise InvalidUrl("Brackets may hold only an IPv6 address.") from None
        if address.scope_id is not None:
            raise InvalidUrl("The URL's address may not name a zone.")
        return str(address), True
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return str(IPv4Address(host)), True
        except ValueError:
            raise InvalidUrl("Write an IPv4 address as four decimal numbers.") from None
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidUrl("The URL's host is no host name; leave out a user name and a final dot.")
    return host, False


def _refuse_disagreement(checked: CheckedUrl) -> None:
    """The HTTP client's parser must see the same destination as this one."""
    try:
        theirs = URL(checked.url, encoded=True)
        host = (theirs.host or "").lower()
        same_host = ip_address(host) == ip_address(checked.host) if checked.is_address else host == checked.host
    except ValueError:
        raise InvalidUrl("The URL can't be read.") from None
    if not same_host or (theirs.scheme, theirs.port, theirs.user) != (checked.scheme, checked.port, None):
        raise InvalidUrl("The URL can be read in two ways; write it plainly.")


def _require_destination(checked: CheckedUrl, policy: EgressPolicy) -> None:
    if checked.is_address:
        policy.require(None, checked.host, checked.port)
        return
    named = policy.names(checked.host, checked.port)
    single = "." not in checked.host
    if not named and (single or checked.host.endswith(_PRIVATE_SUFFIXES)):
        raise EgressBlocked("The URL's host is a private name; the operator can allow it.")
    policy.refuse_hopeless_port(checked.host, checked.port)
