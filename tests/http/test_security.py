"""Headers every answer carries, and which pages of other origins may call the API."""

from collections.abc import Mapping

import pytest

from arachne.errors import SetupError
from arachne.settings import Settings
from tests.http.conftest import Service, Start

on_shared = pytest.mark.asyncio(loop_scope="session")
APP, OTHER = "https://app.example.com", "https://evil.example.com"
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization, content-type, idempotency-key, prefer",
}


@on_shared
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/healthz", 200),
        ("GET", "/docs", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/.well-known/jwks.json", 200),
        ("GET", "/api/usage", 401),
        ("POST", "/api/auth/token", 400),
        ("GET", "/nothing", 404),
        ("OPTIONS", "/api/usage", 405),
    ],
)
async def test_every_answer_is_kept_to_what_it_is_for(shared: Service, method: str, path: str, status: int) -> None:
    """Not guessed to be something else, not framed, not run, and telling no other site where it was read."""
    response = await shared.client.request(method, path)
    assert response.status_code == status
    headers = response.headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    if path.startswith("/api/"):
        assert headers["cache-control"] == "no-store"
    assert "server" not in headers
    assert "strict-transport-security" not in headers


async def test_browsers_are_held_to_https_where_the_public_url_is_https(start: Start) -> None:
    async with start(public_url="https://arachne.test") as service:
        found = (await service.client.get("/healthz")).headers["strict-transport-security"]
    assert found == "max-age=31536000"


def cors(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("access-control-")}


@on_shared
async def test_without_the_setting_no_page_of_another_origin_is_answered(shared: Service) -> None:
    headers = {"Origin": APP}
    assert cors((await shared.client.get("/healthz", headers=headers)).headers) == {}
    refused = await shared.client.options("/api/extract/image", headers=headers | PREFLIGHT)
    assert (refused.status_code, cors(refused.headers)) == (405, {})


async def test_pages_of_the_named_origins_may_call(start: Start) -> None:
    """Those alone, also where an answer is an error; preflights need no token and name what may be sent."""
    async with start(cors_origins=[APP, "http://localhost:5173"]) as service:
        allowed = await service.client.options("/api/extract/image", headers={"Origin": APP} | PREFLIGHT)
        assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, APP)
        assert "POST" in allowed.headers["access-control-allow-methods"]
        assert "Idempotency-Key" in allowed.headers["access-control-allow-headers"]
        assert "x-request-id" in allowed.headers
        refused = await service.client.get("/api/usage", headers={"Origin": APP})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, APP)
        assert "Location" in refused.headers["access-control-expose-headers"]
        assert "Origin" in refused.headers["vary"]
        for origin in (OTHER, "null", APP + ".evil.com", APP + ":444", "http://app.example.com"):
            stranger = await service.client.options("/api/extract/image", headers={"Origin": origin} | PREFLIGHT)
            assert stranger.status_code == 400
            assert "access-control-allow-origin" not in stranger.headers
            seen = await service.client.get("/healthz", headers={"Origin": origin})
            assert "access-control-allow-origin" not in seen.headers
            assert "Origin" in seen.headers["vary"]
        odd = PREFLIGHT | {"Access-Control-Request-Method": "TRACE"}
        assert (await service.client.options("/api/usage", headers={"Origin": APP} | odd)).status_code == 400
        for response in (allowed, refused):
            assert "access-control-allow-credentials" not in response.headers


async def test_pages_may_send_and_read_every_header_that_the_description_names(start: Start) -> None:
    async with start(cors_origins=[APP]) as service:
        allowed = await service.client.options("/api/extract/image", headers={"Origin": APP} | PREFLIGHT)
        described = await service.client.get("/openapi.json", headers={"Origin": APP})
    document = described.json()
    sent = {
        parameter["name"].lower()
        for path in document["paths"].values()
        for method in path.keys() - {"parameters"}
        for parameter in path[method].get("parameters", ())
        if parameter["in"] == "header"
    }
    assert {"idempotency-key", "last-event-id"} < sent
    assert sent | {"authorization", "content-type"} <= listed(allowed.headers["access-control-allow-headers"])
    read = {name.lower() for name in document["components"]["headers"]}
    assert {"content-disposition", "etag", "retry-after"} < read
    assert read <= listed(described.headers["access-control-expose-headers"])


def listed(header: str) -> set[str]:
    return {name.strip().lower() for name in header.split(",")}


async def test_all_origins_may_call_where_the_setting_says_so_but_never_with_cookies(start: Start) -> None:
    async with start(cors_origins=["*"]) as service:
        for response in (
            await service.client.options("/api/usage", headers={"Origin": OTHER} | PREFLIGHT),
            await service.client.get("/api/usage", headers={"Origin": OTHER, "Cookie": "a=b"}),
        ):
            assert response.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in response.headers


@pytest.mark.parametrize("origin", ["app.example.com", "https://app.example.com/", "https://*.example.com", "null", ""])
def test_what_is_no_origin_is_told_at_start(origin: str) -> None:
    with pytest.raises(SetupError, match="ARACHNE_CORS_ORIGINS"):
        Settings.load(_env_file=None, cors_origins=[origin])
