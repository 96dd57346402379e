"""The API describes itself: completely, consistently, and without anything from elsewhere."""

import re
from collections.abc import Iterator

import pytest

from arachne.http import openapi
from arachne.http.routes import all_resources
from tests.http.conftest import BASE_URL, Service

pytestmark = pytest.mark.asyncio(loop_scope="session")


def walk(value: object) -> Iterator[dict[str, object]]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


async def test_every_route_is_described_and_every_reference_leads_somewhere(shared: Service) -> None:
    document = (await shared.client.get("/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    assert document["servers"] == [{"url": BASE_URL}]
    assert set(document["paths"]) == {resource.path for resource in all_resources()}
    components = document["components"]
    for node in walk(document):
        reference = node.get("$ref")
        if isinstance(reference, str):
            kind, name = reference.removeprefix("#/components/").split("/")
            assert name in components[kind]
    ids = [
        operation["operationId"]
        for path in document["paths"].values()
        for method, operation in path.items()
        if method != "parameters"
    ]
    assert len(ids) == len(set(ids))


async def test_guarded_routes_name_the_refusals_every_caller_may_meet(shared: Service) -> None:
    document = (await shared.client.get("/openapi.json")).json()
    for resource in all_resources():
        for method, operation in resource.operations.items():
            described = document["paths"][resource.path][method.lower()]
            if operation.scope is not None:
                assert described["security"] == [{"token": []}]
                assert {"401", "403", "429"} <= set(described["responses"])
            else:
                assert described["security"] == []


async def test_limited_routes_name_the_headers_that_tell_how_the_caller_stands(shared: Service) -> None:
    """What the document says is what an answer has."""
    document = (await shared.client.get("/openapi.json")).json()
    answer = await shared.client.get("/api/usage", headers=await shared.headers())
    told = document["paths"]["/api/usage"]["get"]["responses"]
    assert {name.lower() for name in told["200"]["headers"]} == {name for name in answer.headers if "ratelimit" in name}
    assert set(told["429"]["headers"]) == {*told["200"]["headers"], "Retry-After"}
    assert "headers" not in document["paths"]["/healthz"]["get"]["responses"]["200"]


async def test_the_page_names_every_route_and_loads_nothing_from_elsewhere(shared: Service) -> None:
    response = await shared.client.get("/docs")
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert not re.search(r"<script|https?://|<link|<img", response.text)
    for resource in all_resources():
        assert resource.path in response.text


@pytest.mark.asyncio(loop_scope="function")
async def test_the_description_is_made_once(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes some 50 ms, and anybody may ask for it."""
    made, describe = list[object](), openapi.describe

    def noted(*given: object) -> object:
        made.append(given)
        return describe(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(openapi, "describe", noted)
    first, second = [await service.client.get("/openapi.json") for _ in range(2)]
    assert first.content == second.content
    assert len(made) == 1
