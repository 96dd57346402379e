"""Both gates, for webhook and image URLs alike: what is registered, and what is connected to whatever was registered.

Every name leads to loopback here, and a listener there counts connections: a form that slipped through would be seen.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from ipaddress import ip_address
from uuid import uuid4

import aiohttp
import pytest

from arachne.errors import EgressBlocked, InvalidUrl
from arachne.fetching.download import download
from arachne.net.client import guarded_session
from arachne.net.policy import EgressPolicy, image_policy, webhook_policy
from arachne.net.registration import check_destination
from arachne.net.urls import check_url
from arachne.secretbox import SecretBox
from arachne.settings import Settings
from arachne.signatures.signing import new_secret
from arachne.spool import Spool
from arachne.webhooks.claim import Claim
from arachne.webhooks.sealing import SealedSecret, endpoint_purpose, seal
from arachne.webhooks.sending import attempt
from tests.core.net.hostile_urls import FORMS, NEIGHBOURS, SPECIAL

BOX = SecretBox([b"k" * 32])
PUBLIC = "93.184.215.14"
REFUSED = (EgressBlocked, InvalidUrl)


@dataclass(frozen=True)
class Gates:
    """The two gates of one kind of URL: `register` takes a URL or refuses it, `call` tells how a call was refused."""

    policy: Callable[[Settings], EgressPolicy]
    allow: str
    register: Callable[[str, EgressPolicy], Awaitable[object]]
    call: Callable[[aiohttp.ClientSession, EgressPolicy, str], Awaitable[str | None]]


async def register_image(url: str, policy: EgressPolicy) -> object:
    """As a submission does: by form alone, since an image's names are looked up when it is fetched."""
    return check_url(url, policy)


async def send_webhook(session: aiohttp.ClientSession, policy: EgressPolicy, url: str) -> str | None:
    """The failure of a delivery to a URL that was registered somehow."""
    secret = SealedSecret(seal(BOX, new_secret(), endpoint_purpose("whe_1")), endpoint_purpose("whe_1"))
    claim = Claim(
        claim_id=uuid4(), message_id="msg_1", endpoint_id="whe_1", account_id="acc_1", event="job.completed", url=url,
        hidden=False, body=b"{}", secrets=(secret,), charged=0, age_s=0,
    )  # fmt: skip
    return (await attempt(session, policy, BOX, claim)).failure


async def fetch_image(session: aiohttp.ClientSession, policy: EgressPolicy, url: str) -> str | None:
    """The failure of a fetch of a URL that was accepted somehow."""
    with closing(Spool()) as spool:
        try:
            await download(session, policy, url, spool, max_bytes=100, timeout_s=5)
        except REFUSED:
            return "blocked"
    return None


GATES = {
    "webhooks": Gates(webhook_policy, "webhook_egress_allow", check_destination, send_webhook),
    "images": Gates(image_policy, "image_egress_allow", register_image, fetch_image),
}


@pytest.fixture(params=sorted(GATES))
def gates(request: pytest.FixtureRequest) -> Gates:
    """The gates of webhook URLs, then of image URLs."""
    return GATES[request.param]


@dataclass
class Listener:
    """A listener on loopback that counts connections."""

    port: int = 0
    accepted: int = 0


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    """Counts who connects, by whatever name."""
    found = Listener()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.accepted += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    async with server:
        yield found


@dataclass
class Names:
    """What the system's resolver answers for every name."""

    addresses: list[str]

    def getaddrinfo(self, _host: object, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
        """The answer in the system's form."""
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port, 0, 0))
            if ":" in address
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in self.addresses
        ]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """The resolver, in the test's hands: all names lead to loopback."""
    made = Names(["127.0.0.1"])
    monkeypatch.setattr(socket, "getaddrinfo", made.getaddrinfo)
    return made


def settings(listener: Listener, **changes: object) -> Settings:
    """Settings under which nothing but the address can be the reason for a refusal."""
    return Settings(_env_file=None, egress_allow_http=True, egress_ports=[80, 443, listener.port], **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
async def test_every_form_is_refused_at_both_gates(gates: Gates, listener: Listener, names: Names, form: str) -> None:
    """At registration, and at connect by the sender and by the bare session; nothing is connected."""
    url, policy = form.replace("{port}", str(listener.port)), gates.policy(settings(listener))
    with pytest.raises(REFUSED):
        await gates.register(url, policy)
    async with guarded_session(policy, 5) as session:
        assert await gates.call(session, policy, url) == "blocked"
        with pytest.raises((*REFUSED, aiohttp.ClientError, ValueError)):
            await session.get(url)
    assert names.addresses == ["127.0.0.1"]
    assert listener.accepted == 0


async def test_the_listener_would_tell(gates: Gates, listener: Listener, names: Names) -> None:
    """Without the guard, and where it lets through, connections are counted: so a count of none means something."""
    names.addresses = ["127.0.0.1"]
    async with aiohttp.ClientSession() as session:
        for host in ("127.0.0.1", "hooks.example.com"):
            async with session.get(f"http://{host}:{listener.port}/") as response:
                assert response.status == 200
    policy = gates.policy(settings(listener, **{gates.allow: [f"127.0.0.1:{listener.port}"]}))
    async with guarded_session(policy, 5) as session:
        assert await gates.call(session, policy, f"http://127.0.0.1:{listener.port}/") is None
    assert listener.accepted == 3


@pytest.mark.parametrize("address", SPECIAL)
async def test_special_addresses_are_refused_at_both_gates(
    gates: Gates, listener: Listener, names: Names, address: str
) -> None:
    """The first and last of each range: written in the URL, and as what a name leads to when it is called."""
    host, policy = f"[{address}]" if ":" in address else address, gates.policy(settings(listener))
    with pytest.raises(EgressBlocked):
        await gates.register(f"http://{host}/", policy)
    async with guarded_session(policy, 5) as session:
        assert await gates.call(session, policy, f"http://{host}/") == "blocked"
        for answer in ([address], [PUBLIC, address], [address, PUBLIC]):
            names.addresses = answer
            assert await gates.call(session, policy, "http://hooks.example.com/") == "blocked"
    assert listener.accepted == 0


@pytest.mark.parametrize("address", NEIGHBOURS)
def test_the_addresses_beside_them_are_public(address: str) -> None:
    """The ranges end where they end."""
    host = f"[{address}]" if ip_address(address).version == 6 else address
    assert check_url(f"https://{host}/", EgressPolicy.build()).is_address


async def test_rebinding_is_refused_with_nothing_connected(gates: Gates, listener: Listener, names: Names) -> None:
    """A name that is public when it is registered leads to loopback when it is called."""
    url, policy = f"http://rebinder.example.com:{listener.port}/", gates.policy(settings(listener))
    names.addresses = [PUBLIC]
    assert await gates.register(url, policy)
    async with guarded_session(policy, 5) as session:
        for answer in (["127.0.0.1"], [PUBLIC, "127.0.0.1"], ["::1"], ["::ffff:127.0.0.1"], ["64:ff9b::7f00:1"]):
            names.addresses = answer
            assert await gates.call(session, policy, url) == "blocked"
    assert listener.accepted == 0


async def test_a_webhooks_name_is_looked_up_when_it_is_registered(listener: Listener, names: Names) -> None:
    """One that leads inside, or partly so, is refused there already; an image's is when it is fetched."""
    for answer in (["127.0.0.1"], [PUBLIC, "10.0.0.1"]):
        names.addresses = answer
        with pytest.raises(EgressBlocked):
            await check_destination("https://hooks.example.com/", webhook_policy(settings(listener)))


@pytest.mark.parametrize("entry", ["127.0.0.1", "127.0.0.0/8", "127.0.0.1:{port}", "hooks.example.com:{port}"])
async def test_the_allow_lists_take_effect_each_for_its_own(
    gates: Gates, listener: Listener, names: Names, entry: str
) -> None:
    """A setting opens what it names for its kind of URL, and nothing for the other kind."""
    names.addresses = ["127.0.0.1"]
    named = [entry.replace("{port}", str(listener.port))]
    host = "hooks.example.com" if entry.startswith("hooks") else "127.0.0.1"
    url = f"http://{host}:{listener.port}/"
    for kind in GATES.values():
        chosen = settings(listener, **{kind.allow: named})
        async with guarded_session(gates.policy(chosen), 5) as session:
            failure = await gates.call(session, gates.policy(chosen), url)
        assert failure == (None if kind is gates else "blocked")
    assert listener.accepted == 1


async def test_our_own_listener_is_refused_even_where_its_network_is_allowed(
    gates: Gates, listener: Listener, names: Names
) -> None:
    """By address and by name, unless address and port are named."""
    names.addresses = ["127.0.0.1"]
    chosen = settings(listener, **{gates.allow: ["127.0.0.0/8"]}, host="127.0.0.1", port=listener.port)
    policy = gates.policy(chosen)
    async with guarded_session(policy, 5) as session:
        for host in ("127.0.0.1", "hooks.example.com"):
            assert await gates.call(session, policy, f"http://{host}:{listener.port}/") == "blocked"
    assert listener.accepted == 0


async def test_http_and_ports_follow_their_settings(gates: Gates) -> None:
    """Plain http only by EGRESS_ALLOW_HTTP, ports only those of EGRESS_PORTS."""
    plain = gates.policy(Settings(_env_file=None))
    for url in ("http://hooks.example.com/", "https://hooks.example.com:9000/"):
        with pytest.raises(REFUSED):
            check_url(url, plain)
    opened = gates.policy(Settings(_env_file=None, egress_allow_http=True, egress_ports=[80, 9000]))
    assert check_url("http://hooks.example.com/", opened).port == 80
    assert check_url("https://hooks.example.com:9000/", opened).port == 9000
