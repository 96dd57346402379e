"""The API describes itself: completely, consistently, and without anything from elsewhere."""

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from arachne.http import openapi
from arachne.http.routes import all_resources
from arachne.schemas.token import SCOPES
from tests.http.conftest import BASE_URL, Service, Start
from tests.http.world import fill, make_world

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
    for node in walk(document):
        reference = node.get("$ref")
        if isinstance(reference, str):
            kind, name = reference.removeprefix("#/components/").split("/")
            assert name in document["components"][kind]
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
                assert described["security"] == [{"client": [operation.scope]}, {"token": [operation.scope]}]
                assert {"401", "403", "413", "429", "503"} <= set(described["responses"])
                assert ("404" in described["responses"]) == ("{" in resource.path or "default" in resource.path)
            else:
                assert described["security"] == []


async def test_limited_routes_name_the_headers_that_tell_how_the_caller_stands(shared: Service) -> None:
    """What the document says is what an answer has."""
    document = (await shared.client.get("/openapi.json")).json()
    answer = await shared.client.get("/api/usage", headers=await shared.headers())
    told = document["paths"]["/api/usage"]["get"]["responses"]
    limits = {name for name in answer.headers if "ratelimit" in name}
    assert {name.lower() for name in told["200"]["headers"]} == {*limits, "x-request-id"}
    assert set(resolve(document, told["429"])["headers"]) == {*told["200"]["headers"], "Retry-After"}
    assert set(document["paths"]["/healthz"]["get"]["responses"]["200"]["headers"]) == {"X-Request-Id"}


async def test_the_document_is_valid(shared: Service) -> None:
    """By a validator that is not ours."""
    document = (await shared.client.get("/openapi.json")).json()
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []


async def test_answers_name_their_headers_and_refusals_their_codes(shared: Service) -> None:
    document = (await shared.client.get("/openapi.json")).json()
    submission = document["paths"]["/api/extract/image"]["post"]
    limits = {"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
    accepted = set(submission["responses"]["202"]["headers"])
    assert accepted == {
        "Location", "Retry-After", "Idempotent-Replayed", "Preference-Applied", "X-Request-Id", *limits,
    }  # fmt: skip
    assert {one["name"] for one in submission["parameters"] if one["in"] == "header"} == {"Idempotency-Key", "Prefer"}
    assert codes(document, submission, "429") == {"rate_limited", "account_queue_full"}
    assert codes(document, submission, "409") == {"idempotency_key_in_use"}
    poll = document["paths"]["/api/extract/image-jobs/{job_id}"]["get"]
    assert {"ETag", "Retry-After"} <= set(poll["responses"]["304"]["headers"])
    assert codes(document, poll, "410") == {"gone"}
    assert "Retry-After" in resolve(document, poll["responses"]["503"])["headers"]


def resolve(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["components"]["responses"][node["$ref"].rsplit("/", 1)[1]]
    return found


def codes(document: dict[str, Any], operation: dict[str, Any], status: str) -> set[str]:
    refusal = resolve(document, operation["responses"][status])
    return set(refusal["content"]["application/problem+json"]["schema"]["properties"]["code"]["enum"])


EXAMPLES = [
    (resource.path, method, operation)
    for resource in all_resources()
    for method, operation in resource.operations.items()
    if operation.example is not None
]


@pytest.mark.asyncio(loop_scope="function")
async def test_every_example_runs(start: Start) -> None:
    """Each body in the document, sent as it stands there, is served."""
    async with start(vision_rate_limit="1000/minute") as service:
        made = await service.account()
        ids, headers = await make_world(service), await service.headers(scopes=SCOPES)
        for path, method, operation in EXAMPLES:
            assert operation.example is not None
            body: dict[str, Any] = {"json": dict(operation.example)}
            if operation.body is None:
                client = {"client_id": made.client_id, "client_secret": made.client_secret}
                assert client.keys() <= operation.example.keys()
                body = {"data": dict(operation.example) | client}
            sent = {} if operation.body is None else headers
            response = await service.client.request(method, fill(path, ids), headers=sent, **body)
            assert response.status_code in operation.answers, (method, path, response.text)
            assert response.is_success, (method, path, response.text)


async def test_every_body_has_an_example(shared: Service) -> None:
    bodies = {
        (resource.path, method)
        for resource in all_resources()
        for method, operation in resource.operations.items()
        if operation.body is not None or operation.form is not None
    }
    assert bodies == {(path, method) for path, method, _ in EXAMPLES}


async def test_the_page_names_every_route_and_loads_nothing_from_elsewhere(shared: Service) -> None:
    response = await shared.client.get("/docs")
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert "unsafe" not in response.headers["content-security-policy"]
    loaded = re.sub(r"<pre>.*?</pre>", "", response.text, flags=re.DOTALL)  # examples name URLs
    assert not re.search(r"<script|https?://|<link|<img|style=|\son\w+=", loaded)
    [style] = re.findall(r"<style>(.*?)</style>", response.text, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in response.headers["content-security-policy"]
    for resource in all_resources():
        assert resource.path in response.text
    ids = re.findall(r' id="([^"]+)"', response.text)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'href="#([^"]+)"', response.text)) <= set(ids)


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
