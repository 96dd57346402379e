"""Every route asks for a token, its scope and its own account's objects; the route table says which there are."""

import asyncio

import httpx
import pytest

from arachne.http.operations import Operation
from arachne.http.routes import all_resources
from arachne.schemas.token import SCOPES
from tests.http.conftest import Service
from tests.http.world import PARAMETER, fill, make_world

OPERATIONS = [
    (resource.path, method, operation)
    for resource in all_resources()
    for method, operation in resource.operations.items()
]
GUARDED = [one for one in OPERATIONS if one[2].scope is not None]
OPEN = {path for path, _, operation in OPERATIONS if operation.scope is None}
on_shared = pytest.mark.asyncio(loop_scope="session")


def anywhere(path: str) -> str:
    """The path with its parameters filled in, with ids of nothing."""
    return PARAMETER.sub("0", path)


def test_only_what_the_contract_opens_is_open() -> None:
    assert {
        "/healthz",
        "/readyz",
        "/openapi.json",
        "/docs",
        "/console",
        "/.well-known/jwks.json",
        "/.well-known/oauth-authorization-server",
        "/api/auth/token",
    } == OPEN


@on_shared
async def test_without_credentials_every_route_says_401_and_how(shared: Service) -> None:
    for path, method, _ in GUARDED:
        response = await shared.client.request(method, anywhere(path))
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
        response = await shared.client.request(method, anywhere(path), headers=await shared.headers(scopes=others))
        assert (response.status_code, response.json()["code"]) == (403, "insufficient_scope"), path
        assert operation.scope is not None
        assert operation.scope in response.headers["www-authenticate"]


def test_scopes_are_those_of_the_contract() -> None:
    def expected(path: str, method: str) -> str:
        if path.startswith("/api/webhooks"):
            return "webhooks:manage"
        if path.startswith("/api/admin"):
            return "admin"
        if path.startswith("/api/usage"):
            return "usage:read"
        return "vision:read" if method == "GET" else "vision:write"

    assert {(path, method): operation.scope for path, method, operation in GUARDED} == {
        (path, method): expected(path, method) for path, method, _ in GUARDED
    }


def test_limits_are_those_of_the_contract() -> None:
    """What makes a job counts as a submission, a retry too; looking at jobs as reading; all else as neither."""

    def expected(path: str, method: str) -> str:
        if method == "POST" and path.rsplit("/", 1)[1] in {"image", "images", "retry"}:
            return "vision"
        return "reads" if method == "GET" and path.startswith("/api/extract/image-jobs") else "other"

    assert {(path, method): operation.policy for path, method, operation in GUARDED} == {
        (path, method): expected(path, method) for path, method, _ in GUARDED
    }


async def test_another_accounts_objects_do_not_exist(service: Service) -> None:
    """Every route that names something, called by another account: 404, and by its own account anything else.

    Routes with a parameter that `make_world` doesn't know fail, so that none can be forgotten.
    """
    ids = await make_world(service)
    intruder, owner = await service.headers("other"), await service.headers()
    named = [one for one in GUARDED if "{" in one[0] and one[2].scope != "admin"]
    for path, method, operation in named:
        response = await request(service, fill(path, ids), method, operation, intruder)
        assert (response.status_code, response.json()["code"]) == (404, "not_found"), (method, path)
    for path, method, operation in sorted(named, key=lambda one: (one[1] == "DELETE", one[0])):
        if path.endswith("/test"):  # would call the endpoint
            continue
        response = await request(service, fill(path, ids), method, operation, owner)
        expected = path.endswith("/result")  # a failed image has none
        assert (response.status_code == 404) == expected, (method, path, response.text)


async def test_lists_hold_the_accounts_own(service: Service) -> None:
    """Every list without a parameter in its path is empty for an account that has made nothing."""
    await make_world(service)
    intruder = await service.headers("other")
    for path, method, operation in GUARDED:
        model = operation.answers[min(operation.answers)].model
        if method != "GET" or "{" in path or operation.scope == "admin" or model is None:
            continue
        if "data" not in model.model_fields or path == "/api/models":  # models are everybody's
            continue
        listed = await service.client.get(path, headers=intruder)
        assert (listed.status_code, listed.json()["data"]) == (200, []), path


async def test_what_is_not_there_is_404_for_administrators_too(service: Service) -> None:
    """Every route of theirs that names something."""
    ids = dict.fromkeys(await make_world(service), "nothing")
    headers = await service.headers(scopes=("admin",))
    for path, method, operation in GUARDED:
        if "{" in path and operation.scope == "admin":
            response = await request(service, fill(path, ids), method, operation, headers)
            assert (response.status_code, response.json()["code"]) == (404, "not_found"), (method, path)


async def request(
    service: Service, url: str, method: str, operation: Operation, headers: dict[str, str]
) -> httpx.Response:
    body = (operation.example or {}) if operation.body is not None else None
    return await service.client.request(method, url, headers=headers, json=body)


async def test_the_first_signing_key_is_made_once_however_many_need_it(service: Service) -> None:
    await asyncio.gather(*(service.token() for _ in range(8)))
    assert len((await service.client.get("/.well-known/jwks.json")).json()["keys"]) == 1
