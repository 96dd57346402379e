"""The token endpoint speaks RFC 6749, and its tokens verify with the published keys."""

import base64

import pytest
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata
from joserfc import jwt
from joserfc.jwk import KeySet

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
    token = jwt.decode(answer["access_token"], KeySet.import_key_set(keys), algorithms=["Ed25519"])
    assert token.header["typ"] == "at+jwt"
    assert token.claims["iss"] == BASE_URL
    assert token.claims["account"] == account.account_id
    assert token.claims["sub"] == token.claims["client_id"] == account.client_id


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
    auth = ("cli_nobody", "guess")
    statuses = [(await service.client.post(URL, data=GRANT, auth=auth)).status_code for _ in range(31)]
    assert statuses == [401] * 30 + [429]


@pytest.mark.asyncio(loop_scope="session")
async def test_the_metadata_is_valid_by_another_implementation(shared: Service) -> None:
    found = (await shared.client.get("/.well-known/oauth-authorization-server")).json()
    assert found["token_endpoint"] == f"{BASE_URL}/api/auth/token"
    metadata = AuthorizationServerMetadata(found)
    metadata.validate_grant_types_supported()
    metadata.validate_token_endpoint_auth_methods_supported()
    metadata.validate_scopes_supported()
    assert found["issuer"] == BASE_URL
