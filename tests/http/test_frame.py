"""What holds for every request: its id, errors in one form, methods, hosts, and a record of each call."""

import re

import pytest
from sqlmodel import select

from arachne.http import problems
from arachne.http.exchange import Exchange
from arachne.schemas.problem import Problem
from arachne.schemas.tables import ApiUsageLog
from tests.http.conftest import BASE_URL, Service, Start

on_shared = pytest.mark.asyncio(loop_scope="session")


@on_shared
@pytest.mark.parametrize(
    ("given", "kept"),
    [("abc-1.2_3", True), ("x" * 128, True), ("x" * 129, False), ("a b", False), ("", False), ("a;b", False)],
)
async def test_an_incoming_request_id_is_kept_if_its_form_is_right(shared: Service, given: str, kept: bool) -> None:
    response = await shared.client.get("/healthz", headers={"X-Request-Id": given})
    assert (response.headers["x-request-id"] == given) is kept
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,128}", response.headers["x-request-id"])


@on_shared
async def test_unknown_paths_and_methods_are_problems(shared: Service) -> None:
    missing = await shared.client.get("/api/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    wrong = await shared.client.delete("/api/extract/image")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"
    both = await shared.client.put("/api/webhooks")
    assert both.headers["allow"] == "GET, HEAD, POST"
    for response in (missing, wrong, both):
        assert response.headers["content-type"] == "application/problem+json"
        problem = Problem.model_validate(response.json())
        assert problem.request_id == response.headers["x-request-id"]
        assert problem.status == response.status_code
    slash = await shared.client.get("/healthz/")
    assert slash.status_code == 404


@on_shared
async def test_health_is_open_and_answers_head(shared: Service) -> None:
    assert (await shared.client.get("/healthz")).json() == {"status": "ok"}
    assert (await shared.client.head("/healthz")).status_code == 200
    ready = await shared.client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json() == {
        "status": "ok",
        "checks": {"postgres": "ok", "redis": "ok", "storage": "ok", "cache": "ok", "vlm": "not_configured"},
    }


def test_what_was_not_foreseen_is_a_500_that_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    response = problems.to_response(RuntimeError("secret detail"), Exchange("req_1"))
    assert response.status_code == 500
    assert b"secret detail" not in response.body
    assert b"req_1" in response.body
    assert "req_1" in caplog.text


async def test_other_hosts_are_not_answered(start: Start) -> None:
    """But to the health checks of whoever asks this very process, by the address it has."""
    async with start(trusted_hosts=["arachne.test", "*.example.com"]) as service:
        for host, status in (
            ("arachne.test:80", 200),
            ("a.example.com", 200),
            ("example.com", 400),
            ("evil.test", 400),
        ):
            response = await service.client.get("/openapi.json", headers={"Host": host})
            assert response.status_code == status, host
        assert "x-request-id" in response.headers
        for route in ("/healthz", "/readyz"):
            for host in ("127.0.0.1:8000", "[::1]:8000", "10.0.3.7:8000"):
                assert (await service.client.get(route, headers={"Host": host})).status_code == 200, host


async def test_absolute_urls_come_from_the_settings_alone(service: Service) -> None:
    response = await service.client.get(
        "/.well-known/oauth-authorization-server", headers={"Host": "evil.test", "X-Forwarded-Host": "evil.test"}
    )
    assert "evil" not in response.text
    assert response.json()["issuer"] == BASE_URL


async def test_each_api_call_is_on_record(start: Start) -> None:
    async with start() as service:
        account = await service.account()
        await service.client.get("/api/usage", headers=await service.headers() | {"X-Request-Id": "mine-1"})
        await service.client.get("/api/usage", headers={"X-Request-Id": "mine-2"})
        form = {"Content-Type": "application/x-www-form-urlencoded", "X-Request-Id": "mine-3"}
        await service.client.post("/api/auth/token", content=b"a=1", headers=form)
        await service.client.get("/healthz")
    rows = await service.database.run(
        lambda tx: {row.request_id: row for row in tx.session.exec(select(ApiUsageLog)).all()}
    )
    assert set(rows) == {"mine-1", "mine-2", "mine-3"}
    known = rows["mine-1"]
    assert (known.account_id, known.subject, known.method) == (account.account_id, "operator", "GET")
    assert (known.route, known.status) == ("/api/usage", 200)
    assert (known.ms > 0, known.bytes_in, known.bytes_out > 0) == (True, 0, True)
    assert (rows["mine-3"].method, rows["mine-3"].bytes_in) == ("POST", 3)
    assert (rows["mine-2"].account_id, rows["mine-2"].status) == (None, 401)


async def test_with_the_database_away_requests_are_503_and_readiness_too(start: Start) -> None:
    async with start(database_url="postgresql://nobody@127.0.0.1:1/nothing") as service:
        ready = await service.client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "unavailable")
        alive = await service.client.get("/healthz")
        assert alive.status_code == 200
        keys = await service.client.get("/.well-known/jwks.json")
        assert (keys.status_code, keys.json()["code"]) == (503, "unavailable")
        assert int(keys.headers["retry-after"]) >= 1
