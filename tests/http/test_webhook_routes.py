"""Webhook endpoints over HTTP: their secrets, their life, their deliveries."""

import threading
from datetime import UTC, datetime

import httpx
import pytest
from standardwebhooks import Webhook

from arachne.http.routes import webhooks
from arachne.signatures.verification import Verification, verify
from tests.http.conftest import Service, Start
from tests.http.pictures import png
from tests.http.sending import ONE, send
from tests.http.worker import Worker

URL = "/api/webhooks"
TARGET = "https://hooks.example.com/x"


async def call(service: Service, method: str, path: str, **request: object) -> httpx.Response:
    return await service.client.request(method, f"{URL}{path}", headers=await service.headers(), **request)  # type: ignore[arg-type]


async def test_an_endpoint_lives_and_dies(service: Service) -> None:
    made = await call(service, "POST", "", json={"url": TARGET, "description": "mine"})
    assert made.status_code == 201
    endpoint = made.json()
    assert endpoint["secret"].startswith("whsec_")
    assert endpoint["events"] == [
        "job.completed",
        "job.partial",
        "job.failed",
        "job.cancelled",
        "webhook.endpoint.disabled",
    ]
    path = f"/{endpoint['endpoint_id']}"
    assert made.headers["location"].endswith(URL + path)
    shown = (await call(service, "GET", path)).json()
    assert "secret" not in shown
    changed = await call(service, "PATCH", path, json={"enabled": False, "description": None, "events": ["job.*"]})
    assert (changed.json()["enabled"], changed.json()["description"], changed.json()["events"]) == (
        False,
        None,
        ["job.*"],
    )
    assert (await call(service, "PATCH", path, json={"url": None})).status_code == 422
    listed = (await call(service, "GET", "")).json()
    assert [one["endpoint_id"] for one in listed["data"]] == [endpoint["endpoint_id"]]
    assert (await call(service, "DELETE", path)).status_code == 204
    assert (await call(service, "GET", path)).status_code == 404
    assert (await call(service, "GET", "")).json() == {"data": [], "next_cursor": None}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("rotate", {"grace_seconds": True}),
        ("rotate", {"grace_seconds": "60"}),
        ("rotate", {"grace_seconds": 60.0}),
        ("recover", {"since": 0}),
        ("recover", {"since": "0"}),
        ("recover", {"until": 1.5}),
        ("recover", {"since": "2026-01-31T00:00:00"}),
        ("recover", {"dry_run": "true"}),
        ("recover", {"dry_run": 1}),
    ],
)
@pytest.mark.asyncio(loop_scope="session")
async def test_nothing_is_taken_for_what_it_is_not(shared: Service, path: str, body: object) -> None:
    """A number is no time, a text no truth: what has another type than the documented one is refused."""
    response = await call(shared, "POST", f"/whe_01M8MCBQK32Z96E0JPN8CP9HNX/{path}", json=body)
    assert (response.status_code, response.json()["errors"][0]["loc"]) == (422, list(body)), response.text  # type: ignore[call-overload]


async def test_null_events_are_the_default_ones_whoever_says_so(service: Service) -> None:
    """Making and changing an endpoint read `events: null` alike; what can't be null is refused by both."""
    made = (await call(service, "POST", "", json={"url": TARGET, "events": None})).json()
    path = f"/{made['endpoint_id']}"
    await call(service, "PATCH", path, json={"events": ["job.*"]})
    assert (await call(service, "PATCH", path, json={"events": None})).json()["events"] == made["events"]
    for null in ("enabled", "url"):
        assert (await call(service, "PATCH", path, json={null: None})).status_code == 422
        assert (await call(service, "POST", "", json={"url": TARGET} | {null: None})).status_code == 422


async def test_a_disabled_endpoint_may_look_at_what_it_missed(service: Service) -> None:
    """Looking is 200, sending 409."""
    made = (await call(service, "POST", "", json={"url": TARGET, "enabled": False})).json()
    path = f"/{made['endpoint_id']}/recover"
    assert (await call(service, "POST", path, json={"dry_run": True})).status_code == 200
    assert (await call(service, "POST", path)).status_code == 409


async def test_the_fifth_rotation_within_a_grace_is_refused(service: Service) -> None:
    """No secret stops signing before its time unasked."""
    endpoint = (await call(service, "POST", "", json={"url": TARGET})).json()
    for path in (f"/{endpoint['endpoint_id']}/rotate", "/default/rotate"):
        await call(service, "GET", "/default/secret")
        answers = [await call(service, "POST", path) for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200] * 4 + [409]
        assert answers[-1].json()["code"] == "conflict"
        assert (await call(service, "POST", path, json={"grace_seconds": 0})).status_code == 200


@pytest.mark.asyncio(loop_scope="session")
async def test_a_long_body_without_images_is_told_nothing_of_images(shared: Service) -> None:
    """413 says what helps here."""
    response = await call(shared, "POST", "", json={"url": TARGET, "description": "x" * 1_100_000})
    assert response.status_code == 413
    assert "image" not in response.json()["detail"]


async def test_secrets_rotate_with_and_without_grace(service: Service) -> None:
    endpoint = (await call(service, "POST", "", json={"url": TARGET})).json()
    path = f"/{endpoint['endpoint_id']}/rotate"
    graceful = (await call(service, "POST", path)).json()
    assert graceful["secret"] != endpoint["secret"]
    assert graceful["old_secret_until"] is not None
    at_once = (await call(service, "POST", path, json={"grace_seconds": 0})).json()
    assert at_once["old_secret_until"] is None
    default = (await call(service, "GET", "/default/secret")).json()
    assert default == (await call(service, "GET", "/default/secret")).json()
    rotated = (await call(service, "POST", "/default/rotate")).json()
    assert rotated["secret"] != default["secret"]


async def test_endpoints_are_listed_page_by_page(service: Service) -> None:
    ids = [(await call(service, "POST", "", json={"url": f"{TARGET}{n}"})).json()["endpoint_id"] for n in range(3)]
    first = (await call(service, "GET", "?limit=2")).json()
    rest = (await call(service, "GET", f"?limit=2&cursor={first['next_cursor']}")).json()
    assert [one["endpoint_id"] for one in first["data"] + rest["data"]] == ids
    assert (await call(service, "GET", "?cursor=nonsense")).status_code == 400


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "invalid_options"),
        ({"url": TARGET, "events": ["nothing"]}, 422, "invalid_options"),
        ({"url": TARGET, "events": []}, 422, "invalid_options"),
        ({"url": TARGET, "colour": "red"}, 422, "invalid_options"),
        ({"url": "http://hooks.example.com/x"}, 422, "invalid_url"),
        ({"url": "https://127.0.0.1/x"}, 422, "egress_blocked"),
        ({"url": "https://[fe80::1]/x"}, 422, "egress_blocked"),
        ({"url": TARGET, "description": "nul\0"}, 422, "invalid_options"),
        ({"url": TARGET, "enabled": "yes"}, 422, "invalid_options"),
        ({"url": TARGET, "enabled": 1}, 422, "invalid_options"),
        ([], 400, "malformed_request"),
    ],
)
@pytest.mark.asyncio(loop_scope="session")
async def test_what_can_be_no_endpoint_is_refused(shared: Service, body: object, status: int, code: str) -> None:
    response = await call(shared, "POST", "", json=body)
    assert (response.status_code, response.json()["code"]) == (status, code), response.text


async def test_deliveries_are_logged_and_a_failed_test_says_why(start: Start) -> None:
    async with start(webhook_egress_allow=["127.0.0.1:1"], egress_allow_http=True) as service:
        await service.account()
        endpoint = (await call(service, "POST", "", json={"url": "http://127.0.0.1:1/x", "events": ["*"]})).json()
        path = f"/{endpoint['endpoint_id']}"
        attempt = (await call(service, "POST", f"{path}/test")).json()
        assert (attempt["failure"], attempt["number"]) == ("refused", 1)
        worker = await Worker(service).start()
        await send(service, ONE, files={"file": ("a.png", png())})
        await worker.read_all()
        listed = (await call(service, "GET", f"{path}/deliveries?event=job.completed")).json()["data"]
        assert [one["status"] for one in listed] == ["pending"]
        detail = await call(service, "GET", f"{path}/deliveries/{listed[0]['message_id']}")
        assert detail.json()["attempts"] == []
        again = await call(service, "POST", f"{path}/deliveries/{listed[0]['message_id']}/redeliver")
        assert (again.status_code, again.json()["status"]) == (202, "pending")


@pytest.mark.asyncio(loop_scope="session")
async def test_signatures_can_be_checked_by_a_receiver_in_doubt(shared: Service) -> None:
    secret, message, body = (
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        '{"test": 2432232314}',
    )
    headers = {
        "webhook-id": message,
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    old = (await call(shared, "POST", "/verify", json={"secret": secret, "headers": headers, "body": body})).json()
    assert (old["valid"], old["reason"]) == (False, "timestamp_too_old")
    now = datetime.now(UTC)
    fresh = {
        **headers,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(message, now, body),
    }
    right = (await call(shared, "POST", "/verify", json={"secret": secret, "headers": fresh, "body": body})).json()
    assert right["valid"] is True
    wrong = (
        await call(shared, "POST", "/verify", json={"secret": secret, "headers": fresh, "body": body + " "})
    ).json()
    assert wrong["valid"] is False


@pytest.mark.asyncio(loop_scope="session")
async def test_signatures_are_checked_in_another_thread_and_large_bodies_not_at_all(
    shared: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body is parsed and written anew in several forms: a third of a second for a megabyte."""
    threads = list[threading.Thread]()

    def noted(*given: object) -> Verification:
        threads.append(threading.current_thread())
        return verify(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(webhooks, "verify", noted)
    wanted = {"secret": "whsec_AAAA", "headers": {}, "body": "{}"}
    assert (await call(shared, "POST", "/verify", json=wanted)).status_code == 200
    assert len(threads) == 1
    assert threading.current_thread() not in threads
    large = await call(shared, "POST", "/verify", json={**wanted, "body": "x" * 300_000})
    assert (large.status_code, large.json()["code"]) == (413, "request_too_large")
