"""Every route asks for a token, its scope and its own account's objects; the route table says which there are."""

import asyncio
import re

import httpx
import pytest

from arachne.http.operations import Operation
from arachne.http.routes import all_resources
from arachne.schemas.token import SCOPES
from tests.http.conftest import Service
from tests.http.pictures import png
from tests.http.sending import ONE, send

OPERATIONS = [
    (resource.path, method, operation)
    for resource in all_resources()
    for method, operation in resource.operations.items()
]
GUARDED = [one for one in OPERATIONS if one[2].scope is not None]
OPEN = {path for path, _, operation in OPERATIONS if operation.scope is None}
on_shared = pytest.mark.asyncio(loop_scope="session")


def fill(path: str, **ids: str) -> str:
    return re.sub(r"{(\w+)}", lambda match: ids.get(match[1], "0"), path)


def test_only_what_the_contract_opens_is_open() -> None:
    assert {
        "/healthz",
        "/readyz",
        "/openapi.json",
        "/docs",
        "/.well-known/jwks.json",
        "/.well-known/oauth-authorization-server",
        "/api/auth/token",
    } == OPEN


@on_shared
async def test_without_credentials_every_route_says_401_and_how(shared: Service) -> None:
    for path, method, _ in GUARDED:
        response = await shared.client.request(method, fill(path))
        assert response.status_code == 401, path
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.json()["code"] == "invalid_token"


@on_shared
@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer", "bearer ", "Token x", "Bearer a b"])
async def test_other_schemes_and_empty_tokens_are_401(shared: Service, header: str) -> None:
    response = await shared.client.get("/api/usage", headers={"Authorization": header})
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Bearer")


@on_shared
async def test_two_authorization_headers_are_401(shared: Service) -> None:
    good = (await shared.headers())["Authorization"]
    response = await shared.client.get("/api/usage", headers=[("Authorization", good), ("Authorization", good)])
    assert response.status_code == 401


@on_shared
async def test_every_route_needs_its_scope(shared: Service) -> None:
    for path, method, operation in GUARDED:
        others = tuple(scope for scope in SCOPES if scope != operation.scope)
        response = await shared.client.request(method, fill(path), headers=await shared.headers(scopes=others))
        assert (response.status_code, response.json()["code"]) == (403, "insufficient_scope"), path
        assert operation.scope is not None
        assert operation.scope in response.headers["www-authenticate"]


def test_scopes_are_those_of_the_contract() -> None:
    def expected(path: str, method: str) -> str:
        if path.startswith("/api/webhooks"):
            return "webhooks:manage"
        if path.startswith("/api/usage"):
            return "usage:read"
        return "vision:read" if method == "GET" else "vision:write"

    assert {(path, method): operation.scope for path, method, operation in GUARDED} == {
        (path, method): expected(path, method) for path, method, _ in GUARDED
    }


async def test_another_accounts_objects_do_not_exist(service: Service) -> None:
    await service.account("other")
    job_id = (await send(service, ONE, files={"file": ("a.png", png())})).json()["job_id"]
    endpoint = await send(service, "/api/webhooks", json={"url": "https://hooks.example.com/x"})
    ids = {"job_id": job_id, "index": "0", "endpoint_id": endpoint.json()["endpoint_id"], "message_id": "msg_0"}
    intruder = await service.headers("other")
    for path, method, operation in GUARDED:
        if "{" not in path:
            continue
        response = await request(service, fill(path, **ids), method, operation, intruder)
        assert (response.status_code, response.json()["code"]) == (404, "not_found"), path
    owner = await service.headers()
    assert (await service.client.get(fill("/api/extract/image-jobs/{job_id}", **ids), headers=owner)).is_success
    assert (await service.client.get("/api/extract/image-jobs", headers=intruder)).json()["data"] == []
    assert (await service.client.get("/api/webhooks", headers=intruder)).json()["data"] == []


async def request(
    service: Service, url: str, method: str, operation: Operation, headers: dict[str, str]
) -> httpx.Response:
    body = {} if operation.body is not None else None
    return await service.client.request(method, url, headers=headers, json=body)


async def test_the_first_signing_key_is_made_once_however_many_need_it(service: Service) -> None:
    await asyncio.gather(*(service.token() for _ in range(8)))
    assert len((await service.client.get("/.well-known/jwks.json")).json()["keys"]) == 1
