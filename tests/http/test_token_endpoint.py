"""The token endpoint speaks RFC 6749, and its tokens verify with the published keys."""

import asyncio
import base64
import threading

import httpx
import httpx2
import pytest
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata
from joserfc import jwt
from joserfc.jwk import KeySet

from arachne import accounts
from arachne.http.routes import token
from tests.http.conftest import BASE_URL, Service

URL = "/api/auth/token"
GRANT = {"grant_type": "client_credentials"}


async def test_credentials_in_the_form_give_a_token_the_published_keys_verify(service: Service) -> None:
    account = await service.account("other")
    form = {**GRANT, "client_id": account.client_id, "client_secret": account.client_secret}
    response = await service.client.post(URL, data=form)
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"
    answer = response.json()
    assert answer["token_type"] == "Bearer"
    assert answer["expires_in"] == 3600
    assert answer["scope"].split() == ["vision:read", "vision:write", "webhooks:manage", "usage:read"]
    keys = (await service.client.get("/.well-known/jwks.json")).json()
    found = jwt.decode(answer["access_token"], KeySet.import_key_set(keys), algorithms=["Ed25519"])
    assert found.header["typ"] == "at+jwt"
    assert found.claims["iss"] == BASE_URL
    assert found.claims["account"] == account.account_id
    assert found.claims["sub"] == found.claims["client_id"] == account.client_id


async def test_credentials_in_basic_authentication_and_a_narrower_scope(service: Service) -> None:
    account = await service.account("other")
    response = await service.client.post(
        URL, data={**GRANT, "scope": "vision:read"}, auth=(account.client_id, account.client_secret)
    )
    assert response.status_code == 200
    assert response.json()["scope"] == "vision:read"


@pytest.mark.parametrize(
    ("form", "auth", "status", "error"),
    [
        ({}, ("x", "y"), 400, "invalid_request"),
        ({"grant_type": "password"}, ("x", "y"), 400, "unsupported_grant_type"),
        (GRANT, None, 401, "invalid_client"),
        (GRANT, ("cli_nobody", "secret"), 401, "invalid_client"),
        ({**GRANT, "client_id": "x", "client_secret": "y"}, ("x", "y"), 400, "invalid_request"),
        ({"grant_type": ["client_credentials", "client_credentials"]}, ("x", "y"), 400, "invalid_request"),
    ],
)
@pytest.mark.asyncio(loop_scope="session")
async def test_faults_have_the_form_of_rfc_6749(
    shared: Service, form: dict[str, str], auth: tuple[str, str] | None, status: int, error: str
) -> None:
    response = await shared.client.post(URL, data=form, auth=auth)
    assert (response.status_code, response.json()["error"]) == (status, error)
    assert set(response.json()) == {"error", "error_description"}
    if status == 401:
        assert response.headers["www-authenticate"].startswith("Basic")


async def test_a_wrong_secret_a_foreign_scope_and_a_disabled_account_get_nothing(service: Service) -> None:
    account = await service.account("other")
    wrong = await service.client.post(URL, data=GRANT, auth=(account.client_id, "wrong"))
    assert wrong.json()["error"] == "invalid_client"
    admin = await service.client.post(
        URL, data={**GRANT, "scope": "admin"}, auth=(account.client_id, account.client_secret)
    )
    assert (admin.status_code, admin.json()["error"]) == (400, "invalid_scope")
    await service.database.run(lambda tx: accounts.disable_account(tx.session, "other"))
    disabled = await service.client.post(URL, data=GRANT, auth=(account.client_id, account.client_secret))
    assert (disabled.status_code, disabled.json()["error"]) == (401, "invalid_client")


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (b"{}", "application/json"),
        (b"grant_type=%ff", "application/x-www-form-urlencoded"),
        (b"\xff=1", "application/x-www-form-urlencoded"),
        (b"&".join(b"a%d=1" % n for n in range(100)), "application/x-www-form-urlencoded"),
    ],
)
@pytest.mark.asyncio(loop_scope="session")
async def test_bodies_that_are_no_form_are_refused(shared: Service, content: bytes, content_type: str) -> None:
    response = await shared.client.post(URL, content=content, headers={"Content-Type": content_type})
    assert (response.status_code, response.json()["error"]) == (400, "invalid_request")


@pytest.mark.parametrize("header", ["Basic", "Basic !!!", "Basic " + base64.b64encode(b"nocolon").decode(), "Digest x"])
@pytest.mark.asyncio(loop_scope="session")
async def test_broken_basic_credentials_are_401(shared: Service, header: str) -> None:
    response = await shared.client.post(URL, data=GRANT, headers={"Authorization": header})
    assert (response.status_code, response.json()["error"]) == (401, "invalid_client")


async def test_guessing_is_limited_per_client(service: Service) -> None:
    """And the refusal, a problem like all others, is an error for OAuth clients too, which read but `error`."""
    auth = ("cli_nobody", "guess")
    answers = [await service.client.post(URL, data=GRANT, auth=auth) for _ in range(31)]
    assert [answer.status_code for answer in answers] == [401] * 30 + [429]
    refused = answers[-1]
    assert (refused.json()["code"], refused.json()["error"]) == ("rate_limited", "temporarily_unavailable")
    assert int(refused.headers["retry-after"]) >= 1
    from authlib.integrations.httpx_client import OAuth2Client, OAuthError

    with pytest.raises(OAuthError):
        OAuth2Client().parse_response_token(refused)


async def test_guessing_is_limited_per_address(service: Service) -> None:
    statuses = [
        (await service.client.post(URL, data=GRANT, auth=(f"cli_{number}", "guess"))).status_code
        for number in range(61)
    ]
    assert statuses == [401] * 60 + [429]


async def test_one_host_is_one_address_however_many_of_ipv6_it_has(service: Service) -> None:
    """A host may have all of a /64; IPv4 addresses written as IPv6 ones stay apart."""

    async def asked(address: str) -> int:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(service.app, client=(address, 1)), base_url=BASE_URL
        ) as client:
            return (await client.post(URL, data={})).status_code

    assert [await asked(f"2001:db8:0:1:{number:x}::1") for number in range(61)] == [400] * 60 + [429]
    assert await asked("2001:db8:0:1:ffff::2") == 429
    assert await asked("2001:db8:0:2::1") == 400
    assert [await asked(f"::ffff:192.0.2.{number}") for number in range(61)] == [400] * 61


async def test_no_more_secrets_are_verified_at_once_than_may_wait(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashing is off the event loop, four at a time; a queue that is full refuses before it costs anything."""
    started, going_on = threading.Semaphore(0), threading.Event()

    def slow(*_: object) -> bool:
        started.release()
        return going_on.wait(20)

    monkeypatch.setattr(accounts, "secret_matches", slow)
    monkeypatch.setattr(token, "MAX_WAITING", 2)
    asking = [
        asyncio.create_task(service.client.post(URL, data=GRANT, auth=(f"cli_{number}", "x"))) for number in range(6)
    ]
    while token._hashing.statistics().tasks_waiting < 2:  # noqa: ASYNC110  # it has no event for this
        await asyncio.sleep(0.01)
    full = await service.client.post(URL, data=GRANT, auth=("cli_9", "x"))
    assert (full.status_code, full.json()["code"]) == (503, "unavailable")
    assert (await service.client.get("/healthz")).status_code == 200
    assert sum(started.acquire(blocking=False) for _ in range(9)) == 4
    going_on.set()
    assert {answer.status_code for answer in await asyncio.gather(*asking)} == {401}


async def test_a_standard_client_signs_in(service: Service) -> None:
    """Authlib's, by both ways of sending the secret, and it takes the token it got."""
    from authlib.integrations.httpx_client import AsyncOAuth2Client

    account = await service.account("other")
    for method in ("client_secret_basic", "client_secret_post"):
        async with AsyncOAuth2Client(
            account.client_id,
            account.client_secret,
            token_endpoint_auth_method=method,
            transport=httpx2.ASGITransport(service.app),
        ) as client:
            await client.fetch_token(f"{BASE_URL}{URL}", grant_type="client_credentials", scope="usage:read")
            assert (await client.get(f"{BASE_URL}/api/usage")).status_code == 200


@pytest.mark.asyncio(loop_scope="session")
async def test_the_metadata_is_valid_by_another_implementation(shared: Service) -> None:
    found = (await shared.client.get("/.well-known/oauth-authorization-server")).json()
    assert found["token_endpoint"] == f"{BASE_URL}/api/auth/token"
    metadata = AuthorizationServerMetadata(found)
    metadata.validate_grant_types_supported()
    metadata.validate_token_endpoint_auth_methods_supported()
    metadata.validate_scopes_supported()
    assert found["issuer"] == BASE_URL
