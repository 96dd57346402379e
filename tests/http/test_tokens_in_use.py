"""Tokens, ours and those of a trusted issuer, against the running service: which are let in, and until when."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from joserfc.jwk import OctKey

from arachne.accounts import bind_account, disable_account, disable_client
from arachne.database import AsyncDatabase
from arachne.schemas.issuer import TrustedIssuer
from arachne.settings import Settings
from arachne.signing_keys import current_key, rotate_keys
from arachne.standing import revoke_token
from arachne.tokens import read_token
from tests.core.forged_tokens import FAULTS, Forge
from tests.http.conftest import BASE_URL, Service, Start, run_service
from tests.http.pictures import png
from tests.http.sending import ONE, send

ISSUER, AUDIENCE, CLAIM = "https://issuer.test", "https://arachne.test/api", "tenant"
UNSENDABLE = {"full-width digits", "leading space"}  # more spaces after `Bearer` are none of the token's
FORGED = [
    (fault, whose)
    for fault in FAULTS
    for whose in ("ours", "theirs")
    if fault not in UNSENDABLE and (fault, whose) != ("algorithm outside the list", "theirs")  # it is on this one's
]
on_shared = pytest.mark.asyncio(loop_scope="session")


@dataclass
class Provider:
    """A trusted issuer: its tokens, its keys' address, and whether it is there."""

    forge: Forge
    url: str
    is_up: bool = True
    asked: int = 0
    extra_keys: list[dict[str, object]] = field(default_factory=list)

    @property
    def setting(self) -> TrustedIssuer:
        """How an operator trusts it."""
        return TrustedIssuer(
            issuer=ISSUER,
            audience=AUDIENCE,
            jwks_url=self.url,
            algorithms=["Ed25519", "RS256"],
            account_claim=CLAIM,
            scopes=["vision:read", "usage:read"],
        )


@asynccontextmanager
async def provider() -> AsyncIterator[Provider]:
    """An issuer on loopback that publishes every key it has, shared and short ones too."""
    forge = Forge(ISSUER, AUDIENCE, account="tenant-7", account_claim=CLAIM, now_s=int(time.time()))

    async def publish(_: web.Request) -> web.Response:
        found.asked += 1
        keys = [key.as_dict(private=isinstance(key, OctKey)) for key in forge.keys.values()]
        return web.json_response({"keys": keys + found.extra_keys}, status=200 if found.is_up else 503)

    application = web.Application()
    application.router.add_get("/jwks.json", publish)
    async with TestServer(application) as server:
        found = Provider(forge, f"http://127.0.0.1:{server.port}/jwks.json")
        yield found


def trusting(settings: Settings, one: Provider) -> Settings:
    return settings.model_copy(update={"trusted_issuers": [one.setting], "egress_allow_http": True})


@dataclass
class Trusting:
    """A service and the tokens made in its issuers' names."""

    service: Service
    ours: Forge
    theirs: Forge

    @property
    def forges(self) -> dict[str, Forge]:
        """By whose tokens they make."""
        return {"ours": self.ours, "theirs": self.theirs}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def attacked(shared: Service) -> AsyncIterator[Trusting]:
    """A service that trusts an issuer, with forgers who hold the very keys of both."""
    async with provider() as one, run_service(trusting(shared.settings, one), shared.database) as service:
        box = service.app.starlette.state.parts.box
        account = await service.account("attacked")
        await service.database.run(lambda tx: bind_account(tx.session, "attacked", ISSUER, "tenant-7"))
        other = await service.database.run(lambda tx: current_key(tx.session, box))
        await service.database.run(lambda tx: rotate_keys(tx.session, box))
        key = await service.database.run(lambda tx: current_key(tx.session, box))
        ours = Forge(BASE_URL, f"{BASE_URL}/api", account.account_id, now_s=int(time.time()), key=key, other=other)
        yield Trusting(service, ours, one.forge)


async def use(service: Service, token: str) -> httpx.Response:
    header = (b"Authorization", f"Bearer {token}".encode("latin-1"))
    return await service.client.get("/api/usage", headers=[header])


@on_shared
@pytest.mark.parametrize("whose", ["ours", "theirs"])
async def test_a_good_token_is_let_in(attacked: Trusting, whose: str) -> None:
    response = await use(attacked.service, attacked.forges[whose].good)
    assert response.status_code == 200, response.text


@on_shared
@pytest.mark.parametrize(("fault", "whose"), FORGED)
async def test_forged_tokens_are_401_never_500(attacked: Trusting, fault: str, whose: str) -> None:
    response = await use(attacked.service, forged(attacked.forges[whose])[fault])
    assert response.status_code == 401, response.text
    assert response.json()["code"] == "invalid_token"
    assert response.headers["www-authenticate"] == 'Bearer error="invalid_token"'


_forged: dict[int, dict[str, str]] = {}


def forged(forge: Forge) -> dict[str, str]:
    return _forged.setdefault(id(forge), forge.forged())


@on_shared
async def test_another_issuers_account_must_be_bound_and_may_do_what_its_scopes_say(attacked: Trusting) -> None:
    forge, service = attacked.theirs, attacked.service
    stranger = await use(service, forge.token(claims={CLAIM: "tenant-8"}))
    assert (stranger.status_code, stranger.json()["code"]) == (403, "account_unknown")
    all_scopes = {"Authorization": f"Bearer {forge.token(claims={'scope': 'vision:write webhooks:manage admin'})}"}
    cut = await service.client.get("/api/webhooks", headers=all_scopes)
    assert (cut.status_code, cut.json()["code"]) == (403, "insufficient_scope")


@on_shared
async def test_tokens_of_one_issuer_in_anothers_name_are_refused(attacked: Trusting) -> None:
    """Neither may sign for the other, and no account's id may be claimed from outside."""
    ours, theirs = attacked.ours, attacked.theirs
    for token in (
        ours.token(claims={"iss": theirs.issuer, "aud": theirs.audience, CLAIM: "tenant-7"}),
        theirs.token(claims={"iss": ours.issuer, "aud": ours.audience, "account": ours.account}),
        theirs.token({"kid": ours.key.kid}, claims={"iss": ours.issuer, "aud": ours.audience, "account": ours.account}),
    ):
        assert (await use(attacked.service, token)).status_code == 401
    claimed = await use(attacked.service, theirs.token(claims={CLAIM: ours.account, "account": ours.account}))
    assert (claimed.status_code, claimed.json()["code"]) == (403, "account_unknown")


async def test_an_issuer_that_is_away_costs_only_what_is_not_known_yet(
    settings: Settings, async_database: AsyncDatabase
) -> None:
    """Before its keys were ever had: 503 with Retry-After. Afterwards its tokens go on. Ours never notice."""
    async with provider() as one, run_service(trusting(settings, one), async_database) as service:
        await service.account()
        await service.database.run(lambda tx: bind_account(tx.session, "acme", ISSUER, "tenant-7"))
        one.is_up = False
        away = await use(service, one.forge.good)
        assert (away.status_code, away.json()["code"]) == (503, "unavailable")
        assert int(away.headers["retry-after"]) >= 1
        assert (await use(service, await service.token())).status_code == 200
    async with provider() as one, run_service(trusting(settings, one), async_database) as service:
        assert (await use(service, one.forge.good)).status_code == 200
        one.is_up = False
        assert (await use(service, one.forge.good)).status_code == 200
        assert one.asked == 1


async def test_forged_tokens_make_nobody_ask_their_issuer(settings: Settings, async_database: AsyncDatabase) -> None:
    async with provider() as one, run_service(trusting(settings, one), async_database) as service:
        for token in (one.forge.token({"alg": "ES256"}), one.forge.token({"typ": "JWT"}), "a.b.c"):
            assert (await use(service, token)).status_code == 401
        assert one.asked == 0


@asynccontextmanager
async def two_processes(start: Start) -> AsyncIterator[tuple[Service, Service]]:
    """Two API processes as far as they know: nothing but database and Redis is common to them."""
    async with start() as first, start() as second:
        yield first, second


async def client_token(service: Service, name: str = "acme") -> tuple[str, str]:
    """A client's id and a token of it."""
    account = await service.account(name)
    form = {"grant_type": "client_credentials", "client_id": account.client_id, "client_secret": account.client_secret}
    answer = await service.client.post("/api/auth/token", data=form)
    return account.client_id, answer.json()["access_token"]


@pytest.mark.parametrize("act", ["token", "client", "account"])
async def test_revoked_and_disabled_is_at_once_in_every_process(start: Start, act: str) -> None:
    async with two_processes(start) as (first, second):
        client_id, token = await client_token(first)
        jti = str(read_token(token).claims["jti"])
        for service in (first, second):
            assert (await use(service, token)).status_code == 200
        acts = {
            "token": lambda tx: revoke_token(tx.session, BASE_URL, jti),
            "client": lambda tx: disable_client(tx.session, client_id),
            "account": lambda tx: disable_account(tx.session, "acme"),
        }
        await first.database.run(acts[act])
        for service in (second, first):
            answer = await use(service, token)
            expected = (403, "account_unknown") if act == "account" else (401, "invalid_token")
            assert (answer.status_code, answer.json()["code"]) == expected


async def test_keys_rotate_without_downtime_in_every_process(start: Start) -> None:
    """Both processes publish both keys and take tokens of both, also the process that has not seen the new one."""
    async with two_processes(start) as (first, second):
        await first.account()
        old = await first.token()
        for service in (first, second):
            assert (await use(service, old)).status_code == 200
        await first.rotate_keys()
        new = await first.token()
        for service in (second, first):
            assert [(await use(service, token)).status_code for token in (new, old, new)] == [200] * 3
            keys = (await service.client.get("/.well-known/jwks.json")).json()["keys"]
            assert {key["kid"] for key in keys} == {read_token(new).key_id, read_token(old).key_id}
            assert not any("d" in key for key in keys)
        await first.execute(
            "UPDATE signing_key SET retired_at = now() - interval '2 days' WHERE retired_at IS NOT NULL"
        )
        assert len((await second.client.get("/.well-known/jwks.json")).json()["keys"]) == 1


async def test_withdrawn_keys_verify_nothing_more(start: Start) -> None:
    """After a leak: former keys are published no more, and refused once a process has looked again."""
    async with two_processes(start) as (first, second):
        await first.account()
        old = await first.token()
        assert (await use(second, old)).status_code == 200
        box = first.app.starlette.state.parts.box
        await first.database.run(lambda tx: rotate_keys(tx.session, box, withdraw=True))
        assert len((await second.client.get("/.well-known/jwks.json")).json()["keys"]) == 1
        assert (await use(second, await first.token())).status_code == 200  # an unknown key makes it look
        assert (await use(second, old)).status_code == 401


async def test_a_held_poll_ends_with_401_where_its_token_was_revoked_meanwhile(service: Service) -> None:
    job = (await send(service, ONE, files={"file": ("a.png", png())})).json()["job_id"]
    token = await service.token()
    jti = str(read_token(token).claims["jti"])
    url = f"/api/extract/image-jobs/{job}?wait=60"
    held = asyncio.create_task(service.client.get(url, headers={"Authorization": f"Bearer {token}"}))
    while not service.app.starlette.state.parts.watcher.count:  # noqa: ASYNC110  # it has no event for this
        await asyncio.sleep(0.01)
    await service.database.run(lambda tx: revoke_token(tx.session, BASE_URL, jti))
    cancelled = await service.client.post(f"/api/extract/image-jobs/{job}/cancel", headers=await service.headers())
    assert cancelled.status_code == 200
    assert (await held).status_code == 401
