"""Another issuer's keys: which of its set are used, and how seldom, how long and how patiently it is asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from arachne.errors import SetupError, Unavailable
from arachne.settings import Settings
from arachne.tokens import RemoteKeys, remote_keys, trusted_issuers
from arachne.tokens.key_sets import MAX_KEYS, parse_key_set
from tests.core.forged_tokens import ENCRYPTING, RSA, SHORT_RSA, new_key

ED, EC = new_key("ed"), ECKey.generate_key("P-256", {"kid": "ec"})
ALL = ("Ed25519", "ES256", "RS256")


def public(*keys: OKPKey | ECKey | RSAKey, **more: Any) -> dict[str, Any]:
    """A JWK set of the public halves."""
    return {"keys": [key.as_dict(private=False) | more for key in keys]}


def parse(found: object, *algorithms: str) -> set[str]:
    return set(parse_key_set(json.dumps(found).encode(), algorithms or ALL))


def test_of_a_set_the_keys_for_the_issuers_algorithms_are_used() -> None:
    assert parse(public(ED, EC, RSA)) == {"ed", "ec", "rsa"}
    assert parse(public(ED, EC, RSA), "ES256") == {"ec"}
    assert parse(public(RSA, alg="PS256"), "RS256") == set()
    assert parse(public(ED, alg="Ed25519"), "EdDSA") == parse(public(ED, alg="EdDSA"), "Ed25519") == {"ed"}


@pytest.mark.parametrize(
    "jwk",
    [
        ENCRYPTING.as_dict(private=False),
        SHORT_RSA.as_dict(private=False),
        ED.as_dict(private=True),
        OctKey.import_key(b"0" * 32, {"kid": "oct"}).as_dict(private=True),
        public(ED, key_ops=["sign"])["keys"][0],
        public(ED, kid=5)["keys"][0],
        public(ED, kid="")["keys"][0],
        public(ED, kid="x" * 256)["keys"][0],
        public(ED, x="AAAA")["keys"][0],
        public(EC, crv="P-999")["keys"][0],
        {name: value for name, value in public(ED)["keys"][0].items() if name != "kid"},
        {"kty": "unheard of", "kid": "x"},
        {"kid": "x"},
        {},
        "ed",
        None,
    ],
)
def test_keys_that_verify_nothing_are_left_out_and_the_others_stay(jwk: object) -> None:
    assert parse({"keys": [jwk, *public(EC)["keys"]]}) == {"ec"}


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"{}", b'{"keys": {}}', b'{"keys": [], "keys": []}', b"\xff", b"[" * 50_000,
     json.dumps({"keys": [{}] * (MAX_KEYS + 1)}).encode()],
)  # fmt: skip
def test_what_is_no_set_is_told(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # whose words it has is another's matter
        parse_key_set(data, ALL)


@dataclass
class Publisher:
    """An issuer's server, which counts how often it is asked."""

    answer: Callable[[], web.StreamResponse]
    asked: int = 0
    path: str = "/jwks.json"
    going_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        self.asked += 1
        self.path = request.path
        await self.going_on.wait()
        return self.answer()


@dataclass
class Clock:
    """Time that passes when told to."""

    now_s: float = 1000.0

    def monotonic(self) -> float:
        """The time."""
        return self.now_s


@pytest.fixture
async def publisher() -> AsyncIterator[tuple[Publisher, RemoteKeys]]:
    """A server on loopback that publishes `ed`, and the keys as this service sees them."""
    found = Publisher(lambda: web.json_response(public(ED)))
    found.going_on.set()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", found.handle)
    async with TestServer(application) as server:
        keys = remote(f"http://127.0.0.1:{server.port}/jwks.json")
        yield found, keys
        await keys.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time by which keys are fresh or old."""
    found = Clock()
    monkeypatch.setattr(remote_keys, "time", found)
    return found


def issuer(**changes: object) -> dict[str, object]:
    """An entry of the setting."""
    return {
        "issuer": "https://issuer.test", "audience": "arachne", "jwks_url": "https://issuer.test/jwks",
        "algorithms": list(ALL), "account_claim": "tenant", "scopes": ["vision:read"],
    } | changes  # fmt: skip


def load(**changes: Any) -> Settings:
    return Settings.load(_env_file=None, **changes)


def remote(url: str) -> RemoteKeys:
    settings = load(trusted_issuers=[issuer(jwks_url=url)], egress_allow_http=True)
    return trusted_issuers(settings)["https://issuer.test"][1]


async def test_many_who_need_a_key_share_one_look(publisher: tuple[Publisher, RemoteKeys]) -> None:
    server, keys = publisher
    server.going_on.clear()
    waiting = [asyncio.create_task(keys.keys_for("ed")) for _ in range(50)]
    while not server.asked:  # noqa: ASYNC110  # the server has no event for this
        await asyncio.sleep(0.01)
    waiting[0].cancel()
    server.going_on.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert all(isinstance(keys, dict) and set(keys) == {"ed"} for keys in found[1:])
    assert server.asked == 1


async def test_unknown_keys_are_looked_for_once_in_a_while(
    publisher: tuple[Publisher, RemoteKeys], clock: Clock
) -> None:
    """Tokens that name keys nobody has cost the issuer one request in ten seconds; a new key is found by then."""
    server, keys = publisher
    for number in range(20):
        assert set(await keys.keys_for(f"nobody's {number}")) == {"ed"}
    assert server.asked == 1
    server.answer = lambda: web.json_response(public(ED, EC))
    clock.now_s += remote_keys.PAUSE_S
    assert set(await keys.keys_for("ec")) == {"ed", "ec"}
    assert server.asked == 2


async def test_a_set_that_is_no_longer_fresh_is_used_while_it_is_asked_for(
    publisher: tuple[Publisher, RemoteKeys], clock: Clock
) -> None:
    """Nobody waits for a look that isn't needed; what the issuer withdrew is gone after it."""
    server, keys = publisher
    await keys.keys_for("ed")
    server.answer = lambda: web.json_response(public(EC))
    server.going_on.clear()
    clock.now_s += remote_keys.FRESH_S
    assert set(await keys.keys_for("ed")) == {"ed"}
    server.going_on.set()
    for _ in range(1000):
        if "ed" not in keys._keys:
            break
        await asyncio.sleep(0.01)
    assert set(await keys.keys_for("ed")) == {"ec"}
    assert server.asked == 2


async def test_the_last_good_set_is_kept_for_a_day_while_the_issuer_is_away(
    publisher: tuple[Publisher, RemoteKeys], clock: Clock
) -> None:
    """Known keys go on, unknown ones can't be told; after a day nothing can."""
    server, keys = publisher
    await keys.keys_for("ed")
    server.answer = lambda: web.Response(status=503)
    clock.now_s += remote_keys.KEPT_S - 1
    assert set(await keys.keys_for("ed")) == {"ed"}
    with pytest.raises(Unavailable):
        await keys.keys_for("ec")
    clock.now_s += 1
    with pytest.raises(Unavailable):
        await keys.keys_for("ed")
    server.answer = lambda: web.json_response(public(ED))
    clock.now_s += remote_keys.PAUSE_S
    assert set(await keys.keys_for("ed")) == {"ed"}


def redirect() -> web.Response:
    return web.Response(status=302, headers={"Location": "/elsewhere"})


@pytest.mark.parametrize(
    "answer",
    [
        redirect,
        lambda: web.Response(status=404),
        lambda: web.Response(text="<html>"),
        lambda: web.json_response({"keys": None}),
        lambda: web.Response(body=b" " * (remote_keys.MAX_BYTES + 1) + json.dumps(public(ED)).encode()),
        lambda: web.Response(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"}),
    ],
)
async def test_answers_that_are_no_set_count_as_none(
    publisher: tuple[Publisher, RemoteKeys], answer: Callable[[], web.StreamResponse]
) -> None:
    """Redirects among them: what they lead to is not asked."""
    server, keys = publisher
    server.answer = answer
    with pytest.raises(Unavailable):
        await keys.keys_for("ed")
    assert (server.asked, server.path) == (1, "/jwks.json")


async def test_an_issuer_that_does_not_answer_is_given_up(
    publisher: tuple[Publisher, RemoteKeys], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, keys = publisher
    monkeypatch.setattr(remote_keys, "TIMEOUT_S", 0.1)
    server.going_on.clear()
    with pytest.raises(Unavailable):
        await keys.keys_for("ed")
    server.going_on.set()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"algorithms": ["none"]}, "never accepted"),
        ({"algorithms": ["RS256", "HS256"]}, "never accepted"),
        ({"algorithms": []}, "at least 1"),
        ({"algorithms": ["RS1"]}, "ALGORITHMS"),
        ({"scopes": ["everything"]}, "SCOPES"),
        ({"scopes": []}, "SCOPES"),
        ({"issuer": ""}, "ISSUER"),
        ({"audience": " x"}, "AUDIENCE"),
        ({"account_claim": 5}, "ACCOUNT_CLAIM"),
        ({"secret": "x"}, "SECRET"),
    ],
)
def test_a_setting_that_trusts_too_much_is_refused(change: dict[str, object], told: str) -> None:
    with pytest.raises(SetupError, match=told):
        load(trusted_issuers=[issuer(**change)])


def test_every_member_is_needed_and_an_issuer_is_named_once() -> None:
    for name in issuer():
        with pytest.raises(SetupError, match=f"{name.upper()}: Field required"):
            load(trusted_issuers=[{key: value for key, value in issuer().items() if key != name}])
    with pytest.raises(SetupError, match="twice"):
        load(trusted_issuers=[issuer(), issuer(audience="other")])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"jwks_url": "http://issuer.test/jwks"}, "https://"),
        ({"jwks_url": "https://user:password@issuer.test/jwks"}, "jwks_url"),
        ({"jwks_url": "file:///etc/passwd"}, "jwks_url"),
        ({"jwks_url": "https://issuer.test:99999/"}, "jwks_url"),
        ({"jwks_url": "jwks"}, "jwks_url"),
        ({"issuer": "https://arachne.test"}, "the service itself"),
    ],
)
def test_an_issuer_that_can_not_be_asked_is_told_at_start(change: dict[str, object], told: str) -> None:
    settings = load(trusted_issuers=[issuer(**change)], public_url="https://arachne.test/")
    with pytest.raises(SetupError, match=told):
        trusted_issuers(settings)


@pytest.mark.parametrize("url", ["https://keycloak:8443/jwks", "https://10.0.0.7/jwks", "https://issuer.internal:9/x"])
def test_the_operator_may_name_a_private_host(url: str) -> None:
    """The setting itself says so; no allow-list has to repeat it."""
    assert trusted_issuers(load(trusted_issuers=[issuer(jwks_url=url)]))
