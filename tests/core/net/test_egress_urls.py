"""Forms of URL and ranges of addresses that are never called."""

import pytest

from arachne.errors import ArachneError, EgressBlocked, InvalidUrl, SetupError
from arachne.net.policy import EgressPolicy, listen_addresses
from arachne.net.registration import check_destination
from arachne.net.urls import check_url

OPEN = EgressPolicy.build(allow_http=True)

BAD_FORMS = [
    "",
    "hooks.example.com/x",
    "//hooks.example.com/",
    "ftp://hooks.example.com/",
    "file:///etc/passwd",
    "gopher://hooks.example.com/",
    "data:text/plain,x",
    "javascript://hooks.example.com/",
    "https:hooks.example.com",
    "http:127.0.0.1",
    "http:///127.0.0.1/",
    "http:/127.0.0.1/",
    "https://",
    "https:///x",
    "https://:443/",
    "https://user@hooks.example.com/",
    "https://user:pw@hooks.example.com/",
    "https://hooks.example.com@127.0.0.1/",
    "https://hooks.example.com/x#y",
    "https://hooks.example.com#@127.0.0.1/",
    "https://hooks.example.com\\@127.0.0.1/",
    "https:\\\\hooks.example.com\\",
    "https://hooks.example.com/a b",
    " https://hooks.example.com/",
    "https://hooks.example.com/\n",
    "https://hooks.example.com/\r\nHost: x",
    "https://hooks.\texample.com/",
    "https://hooks.example.com/\x00",
    "https://hooks.example.com/\u2028",
    "https://hooks.example.com/\u00a0",
    "https://hooks.example.com/%00",
    "https://hooks.example.com%00.evil.example/",
    "https://127.0.0.1%2f@hooks.example.com/",
    "https://%31%32%37.0.0.1/",
    "https://hooks.example.com/100%",
    "https://hooks.example.com:0/",
    "https://hooks.example.com:65536/",
    "https://hooks.example.com:99999999/",
    "https://hooks.example.com:/",
    "https://hooks.example.com:x/",
    "https://hooks.example.com:-1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0177.0.0.1/",
    "http://017700000001/",
    "http://127.1/",
    "http://127.0.1/",
    "http://0/",
    "http://0x/",
    "http://1.2.3.4.5/",
    "http://256.1.1.1/",
    "http://127.0.0.1./",
    "http://hooks.example.com./",
    "http://localhost./",
    "http://①②⑦.⓪.⓪.①/",
    "http://127。0。0。1/",
    "http://127．0．0．1/",
    "http://ⓛocalhost/",
    "http://bücher.example/",
    "https://[fe80::1%25lo]/",
    "https://[fe80::1%lo]/",
    "https://[example.com]/",
    "https://[::1/",
    "https://[127.0.0.1]/",
    "https://::1/",
    "https://-a.example.com/",
    "https://a-.example.com/",
    "https://a..example.com/",
    "https://.example.com/",
    "https://" + "a" * 64 + ".example.com/",
    "https://hooks.example.com/" + "a" * 2048,
]

BLOCKED_HOSTS = [
    "localhost",
    "LOCALHOST",
    "a.localhost",
    "printer.local",
    "metadata.google.internal",
    "receiver",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "[::]",
    "[::1]",
    "[::127.0.0.1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:8.8.8.8]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::1]",
    "[100::1]",
    "[2001::1]",
    "[2001:10::1]",
    "[2001:db8::1]",
    "[2002:7f00:1::]",
    "[3fff::1]",
    "[4000::1]",
    "[5f00::1]",
    "[fc00::1]",
    "[fd12:3456::1]",
    "[fe80::1]",
    "[fec0::1]",
    "[ff02::1]",
]

PUBLIC = [
    "https://hooks.example.com/x?y=1",
    "HTTPS://Hooks.Example.COM:8443",
    "https://8.8.8.8/",
    "https://[2606:4700::1]/",
]


@pytest.mark.parametrize("url", BAD_FORMS)
def test_bad_forms_are_invalid(url: str) -> None:
    """What two URL parsers may read differently is refused by its form, before any look-up."""
    with pytest.raises(InvalidUrl):
        check_url(url, OPEN)


@pytest.mark.parametrize("host", BLOCKED_HOSTS)
def test_private_hosts_are_blocked(host: str) -> None:
    """Private names and every special range are refused at the URL check."""
    with pytest.raises(EgressBlocked):
        check_url(f"http://{host}/", OPEN)


@pytest.mark.parametrize("url", PUBLIC)
def test_public_urls_pass(url: str) -> None:
    """Ordinary public URLs pass unchanged."""
    assert check_url(url, OPEN).url == url


def test_parts() -> None:
    """Host in lower case without brackets, the port of the scheme when none is given."""
    checked = check_url("https://[2606:4700:0::1]/x", OPEN)
    assert (checked.scheme, checked.host, checked.port, checked.is_address) == ("https", "2606:4700::1", 443, True)
    assert check_url("http://Example.com", OPEN).port == 80


def test_http_needs_the_setting() -> None:
    """Plain http is refused unless the operator allows it."""
    with pytest.raises(InvalidUrl, match="EGRESS_ALLOW_HTTP"):
        check_url("http://hooks.example.com/", EgressPolicy.build())


@pytest.mark.parametrize("port", [22, 25, 6379, 5432, 11211])
def test_ports_are_listed(port: int) -> None:
    """Ports outside the list are refused, for names and addresses."""
    for host in ("hooks.example.com", "8.8.8.8"):
        with pytest.raises(EgressBlocked, match="Port"):
            check_url(f"https://{host}:{port}/", OPEN)
        assert check_url(f"https://{host}:{port}/", EgressPolicy.build(ports=[port])).port == port


@pytest.mark.parametrize(
    ("entry", "passes", "fails"),
    [
        ("127.0.0.1", "http://127.0.0.1:9000/", "http://127.0.0.2:9000/"),
        ("127.0.0.0/8", "http://127.9.9.9/", "http://10.0.0.1/"),
        ("127.0.0.1:9000", "http://127.0.0.1:9000/", "http://127.0.0.1/"),
        ("10.1.0.0/16:443", "https://10.1.2.3/", "https://10.2.2.3/"),
        ("::1", "http://[::1]:9000/", "http://[::ffff:127.0.0.1]/"),
        ("[::1]:9000", "http://[::1]:9000/", "http://[::1]:80/"),
        ("[fd00::]:443", "https://[fd00::]/", "https://[fd00::1]/"),
        ("fd00::/8", "https://[fd00::1]/", "https://[fe80::1]/"),
        ("localhost", "http://localhost:9000/", "http://127.0.0.1:9000/"),
        ("Receiver:9000", "http://receiver:9000/", "http://receiver:9001/"),
        ("hooks.internal", "https://hooks.internal/", "https://other.internal/"),
    ],
)
def test_allow_list_opens_what_it_names(entry: str, passes: str, fails: str) -> None:
    """An entry opens its host or network, at its port if it has one, and nothing beside."""
    policy = EgressPolicy.build([entry], allow_http=True)
    assert check_url(passes, policy)
    with pytest.raises(EgressBlocked):
        check_url(fails, policy)


@pytest.mark.parametrize(
    "entry", ["", "a b", "http://x", "127.0.0.1:0", "127.0.0.1:99999", "300.1.1.1", "[::1", "x/24"]
)
def test_unreadable_allow_entries_stop_the_start(entry: str) -> None:
    """A misspelt entry is told at the start and never taken for something wider."""
    with pytest.raises(SetupError, match="EGRESS_ALLOW"):
        EgressPolicy.build([entry])


def test_own_address_needs_its_port_named() -> None:
    """An allowed network doesn't open our own listener; an entry that names address and port does."""
    own = [("127.0.0.1", 8000)]
    with pytest.raises(EgressBlocked, match="this service"):
        check_url("http://127.0.0.1:8000/", EgressPolicy.build(["127.0.0.0/8"], allow_http=True, own_addresses=own))
    named = EgressPolicy.build(["127.0.0.1:8000"], allow_http=True, own_addresses=own)
    assert check_url("http://127.0.0.1:8000/", named)


def test_listen_addresses() -> None:
    """A wildcard listener is reachable by every address of the machine, loopback included."""
    assert listen_addresses("203.0.113.9", 1) == [("203.0.113.9", 1)]
    assert ("127.0.0.1", 8000) in listen_addresses("0.0.0.0", 8000)
    assert ("127.0.0.1", 8000) in listen_addresses("localhost", 8000)


@pytest.mark.parametrize(
    "answer",
    [
        ["127.0.0.1"],
        ["8.8.8.8", "10.0.0.1"],
        ["8.8.8.8", "::1"],
        ["::ffff:127.0.0.1"],
        ["169.254.169.254"],
        ["fe80::1%lo"],
        ["not an address"],
    ],
)
async def test_registration_refuses_private_answers(answer: list[str]) -> None:
    """A public name is refused at registration if any of its addresses is private."""
    with pytest.raises(EgressBlocked):
        await check_destination("https://hooks.example.com/", OPEN, lookup=lambda _host, _port: answer)


async def test_registration_forgives_dns() -> None:
    """A name that does not resolve now is accepted: it is checked again at each connect."""

    def fail(_host: str, _port: int) -> list[str]:
        raise OSError("no answer")

    assert (await check_destination("https://hooks.example.com/", OPEN, lookup=fail)).host == "hooks.example.com"


async def test_port_behind_a_name_is_decided_by_its_address() -> None:
    """A name at an unusual port passes if its address is in an allowed network, and only then."""
    policy = EgressPolicy.build(["10.0.0.0/8"])
    assert await check_destination("https://rx.example.com:9000/", policy, lookup=lambda *_: ["10.1.1.1"])
    with pytest.raises(EgressBlocked, match="Port"):
        await check_destination("https://rx.example.com:9000/", policy, lookup=lambda *_: ["8.8.8.8"])


@pytest.mark.parametrize("answer", ["169.254.169.254", "168.63.129.16", "0.0.0.0", "224.0.0.1", "fe80::1"])
async def test_an_allowed_name_never_opens_metadata(answer: str) -> None:
    """Whoever holds an allowed name can't point it at link-local, metadata or multicast addresses."""
    policy = EgressPolicy.build(["rx.internal"])
    assert await check_destination("https://rx.internal/", policy, lookup=lambda *_: ["10.1.1.1"])
    with pytest.raises(EgressBlocked):
        await check_destination("https://rx.internal/", policy, lookup=lambda *_: [answer])


def test_refusals_are_ours() -> None:
    """Every refusal is one of our errors with a status for the caller."""
    for url in BAD_FORMS:
        with pytest.raises(ArachneError) as caught:
            check_url(url, EgressPolicy.build())
        assert caught.value.http_status == 422
