"""Delivery over real HTTP from a real database: what is sent, what follows from each answer."""

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from standardwebhooks import Webhook

from arachne import tracing
from arachne.database import AsyncDatabase
from arachne.metrics import REGISTRY
from arachne.schemas.webhook import EndpointChange
from arachne.secretbox import SecretBox
from arachne.webhooks.delivery import DeliveryEngine
from arachne.webhooks.endpoints import update_endpoint
from arachne.webhooks.log import get_delivery

if TYPE_CHECKING:
    from .conftest import Receivers, World


async def test_an_event_arrives_signed_as_the_public_library_expects(
    world: "World", engine: DeliveryEngine, receivers: "Receivers"
) -> None:
    """One request with the documented headers, verified by the public library over the raw body."""
    receiver = await receivers.healthy_receiver()
    endpoint = world.endpoint(receiver.url())
    job = world.finish_job(2, labels={"order": "7"})
    assert await engine.deliver_due() == 1
    [got] = receiver.received
    assert Webhook(endpoint.secret).verify(got.body, got.headers)["type"] == "job.completed"
    assert got.headers["content-type"] == "application/json"
    assert got.headers["user-agent"].startswith("Arachne-Webhooks/")
    data = got.event["data"]
    assert isinstance(data, dict)
    assert (data["job_id"], data["sequence"], data["metadata"]) == (job.job_id, 1, {"order": "7"})
    assert [image["result"]["text"] for image in data["images"]] == ["page 0", "page 1"]
    assert data["job_url"] == f"https://a.example/api/extract/image-jobs/{job.job_id}"
    assert await engine.deliver_due() == 0


async def test_a_delivery_names_its_request_in_log_span_and_count_but_not_to_the_receiver(
    world: "World", engine: DeliveryEngine, receivers: "Receivers", caplog: pytest.LogCaptureFixture
) -> None:
    """Job, request, message and endpoint; what the receiver gets has no further header."""
    receiver = await receivers.flaky_receiver(500)
    endpoint = world.endpoint(receiver.url("/hook?token=hidden"))
    trace = "0af7651916cd43dd8448eb211c80319c"
    job = world.finish_job(request_id="req_1", traceparent=f"00-{trace}-b7ad6b7169203331-01")
    exporter, outcomes = InMemorySpanExporter(), ("http", "succeeded")
    before = [REGISTRY.get_sample_value("arachne_deliveries_total", {"outcome": one}) or 0 for one in outcomes]
    with tracing.exporting(exporter, "worker io"), caplog.at_level("INFO", "arachne.webhooks.delivery"):
        for _ in outcomes:
            await engine.deliver_due()
            world.make_due()
    ids = {
        "request_id": "req_1", "job_id": job.job_id, "endpoint_id": endpoint.endpoint_id,
        "message_id": receiver.received[0].message_id,
    }  # fmt: skip
    for span, failure in zip(exporter.get_finished_spans(), ("http", None), strict=True):
        assert f"{span.context.trace_id:032x}" == trace
        told = {name.removeprefix("arachne."): value for name, value in span.attributes.items()}
        assert ids.items() <= told.items()
        assert told.get("failure") == failure
        assert "hidden" not in span.to_json()
    assert [record.getMessage() for record in caplog.records] == ["webhook not taken", "webhook sent"]
    assert [REGISTRY.get_sample_value("arachne_deliveries_total", {"outcome": outcome}) for outcome in outcomes] == [
        number + 1 for number in before
    ]
    assert not {"traceparent", "tracestate", "x-request-id"} & {name.lower() for name in receiver.received[0].headers}


async def test_attempts_repeat_the_same_bytes(world: "World", engine: DeliveryEngine, receivers: "Receivers") -> None:
    """Retries carry the same id and body; each is signed anew; the log has them all."""
    receiver = await receivers.flaky_receiver(500, 302, 429)
    endpoint = world.endpoint(receiver.url())
    world.finish_job()
    for _ in range(5):
        await engine.deliver_due()
        world.make_due()
    assert len(receiver.received) == 4
    assert len({(got.message_id, got.body) for got in receiver.received}) == 1
    with world.database.transaction() as transaction:
        detail = get_delivery(
            transaction.session, world.account_id, endpoint.endpoint_id, receiver.received[0].message_id
        )
    assert detail.status == "succeeded"
    assert [(a.number, a.status_code, a.failure) for a in detail.attempts] == [
        (1, 500, "http"),
        (2, 302, "http"),
        (3, 429, "http"),
        (4, 204, None),
    ]
    assert detail.body.encode() == receiver.received[0].body


async def test_responses_of_private_addresses_are_not_shown(
    world: "World", engine: DeliveryEngine, receivers: "Receivers"
) -> None:
    """What an internal host answers stays out of the log."""
    receiver = await receivers.healthy_receiver(500)
    world.endpoint(receiver.url())
    world.finish_job()
    await engine.deliver_due()
    assert world.sql("SELECT status_code, response FROM webhook_attempt") == [(500, None)]


async def test_responses_of_public_addresses_are_kept_short_and_as_sent(
    world: "World", engine: DeliveryEngine, receivers: "Receivers", monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 2 kB of an answer is logged: never decompressed, and storable whatever its bytes."""
    monkeypatch.setattr("arachne.net.client.is_public", lambda _address: True)
    body = b"\x1f\x8b\x00" + "ไ".encode() * 5000

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=500, body=body, headers={"Content-Encoding": "gzip"})

    receiver = await receivers.start(answer)
    world.endpoint(receiver.url())
    world.finish_job()
    await engine.deliver_due()
    [(response,)] = world.sql("SELECT response FROM webhook_attempt")
    assert str(response).startswith("\x1f\ufffd\ufffdไไ")
    assert 2000 < len(str(response).encode()) <= 2048


async def test_a_status_counts_even_if_its_body_never_ends(
    world: "World", engine: DeliveryEngine, receivers: "Receivers", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 2xx is a success once its status is here; a body that never ends holds nobody up."""
    monkeypatch.setattr("arachne.net.client.is_public", lambda _address: True)
    monkeypatch.setattr("arachne.webhooks.sending._EXCERPT_TIMEOUT_S", 0.05)
    release = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await release.wait()
        return response

    receiver = await receivers.start(answer)
    world.endpoint(receiver.url())
    world.finish_job()
    assert await engine.deliver_due() == 1
    assert world.sql("SELECT state FROM webhook_delivery") == [("succeeded",)]
    release.set()


async def test_redirects_are_failures(world: "World", engine: DeliveryEngine, receivers: "Receivers") -> None:
    """A redirect isn't followed, wherever it leads."""
    elsewhere = await receivers.healthy_receiver()
    receiver = await receivers.redirecting_receiver(elsewhere.url())
    world.endpoint(receiver.url())
    world.finish_job()
    await engine.deliver_due()
    assert elsewhere.received == []
    assert world.sql("SELECT status_code, failure FROM webhook_attempt") == [(308, "http")]


async def test_410_disables_and_tells_the_others(
    world: "World", engine: DeliveryEngine, receivers: "Receivers"
) -> None:
    """A gone receiver's endpoint is disabled at once, its pending deliveries cancelled, the account's others told."""
    gone, other = await receivers.gone_receiver(), await receivers.healthy_receiver()
    endpoint = world.endpoint(gone.url())
    world.endpoint(other.url(), events=["webhook.*"])
    world.finish_job()
    world.sql("UPDATE webhook_endpoint SET max_in_flight = 1")
    world.finish_job()
    await engine.deliver_due()
    assert len(gone.received) == 1
    assert other.received[0].event["type"] == "webhook.endpoint.disabled"
    assert other.received[0].event["data"] == {
        "endpoint_id": endpoint.endpoint_id,
        "reason": "The receiver answered 410 Gone.",
    }
    states = world.sql("SELECT state FROM webhook_delivery WHERE endpoint_id = :id", id=endpoint.endpoint_id)
    assert states == [("cancelled",)] * 2
    world.finish_job()
    assert await engine.deliver_due() == 0


async def test_five_days_of_failure_disable(world: "World", engine: DeliveryEngine, receivers: "Receivers") -> None:
    """Five days after the first failure since the last success a failing attempt disables, and not before."""
    receiver = await receivers.flaky_receiver(500, 204, 500, 500, 500)
    endpoint = world.endpoint(receiver.url())
    age = "UPDATE webhook_endpoint SET first_failure_at = first_failure_at - interval '4 days 23 hours 59 minutes'"
    world.finish_job()
    for _ in range(4):  # fails, succeeds (which forgets), then a new job's fails twice
        await engine.deliver_due()
        world.sql(age)
        world.make_due()
        if world.sql("SELECT 1 FROM webhook_delivery WHERE state = 'pending'") == []:
            world.finish_job()
    assert world.sql("SELECT enabled FROM webhook_endpoint") == [(True,)]
    world.sql("UPDATE webhook_endpoint SET first_failure_at = now() - interval '5 days'")
    await engine.deliver_due()
    [(enabled, reason)] = world.sql("SELECT enabled, disabled_reason FROM webhook_endpoint")
    assert not enabled
    assert "Every delivery failed since" in str(reason)
    with world.database.transaction() as transaction:
        change = EndpointChange(enabled=True)
        view = update_endpoint(transaction.session, world.account_id, endpoint.endpoint_id, change, None)
    assert (view.enabled, view.disabled_reason) == (True, None)
    assert world.sql("SELECT first_failure_at FROM webhook_endpoint") == [(None,)]


async def test_a_blocked_address_is_final(world: "World", engine: DeliveryEngine) -> None:
    """A URL that leads inside by the time of sending is not called and not tried again."""
    world.endpoint("http://127.0.0.1:9/")
    world.sql("UPDATE webhook_endpoint SET url = 'http://169.254.169.254/latest/'")
    world.finish_job()
    assert await engine.deliver_due() == 1
    assert world.sql("SELECT state, next_attempt_at FROM webhook_delivery") == [("failed", None)]
    assert world.sql("SELECT failure, status_code FROM webhook_attempt") == [("blocked", None)]


async def test_failure_classes(world: "World", async_database: AsyncDatabase, receivers: "Receivers") -> None:
    """Refused, TLS, DNS and timeout are told apart, and all are tried again."""
    receiver = await receivers.healthy_receiver()
    release = asyncio.Event()
    slow = await receivers.slow_receiver(release)

    def lookup(host: str, _port: int) -> list[str]:
        if host == "nowhere.example.com":
            raise OSError("no such name")
        return ["127.0.0.1"]

    urls = {
        "refused": "http://127.0.0.1:9/",
        "tls": receiver.url().replace("http:", "https:"),
        "dns": "http://nowhere.example.com/",
    }
    ids = {world.endpoint(url, events=["job.completed"]).endpoint_id: failure for failure, url in urls.items()}
    world.finish_job()
    engine = DeliveryEngine(async_database, world.box, world.settings, lookup=lookup)
    assert await engine.deliver_due() == len(urls)
    world.sql("UPDATE webhook_delivery SET next_attempt_at = now() + interval '1 day'")
    ids[world.endpoint(slow.url(), events=["job.failed"]).endpoint_id] = "timeout"
    world.finish_job(state="failed", completed=0, failed=1)
    hasty = world.settings.model_copy(update={"webhook_timeout_s": 0.3})  # which no other class depends on
    assert await DeliveryEngine(async_database, world.box, hasty, lookup=lookup).deliver_due() == 1
    found = dict(world.sql("SELECT endpoint_id, failure FROM webhook_attempt"))
    assert found == ids
    assert world.sql("SELECT DISTINCT state, charged FROM webhook_delivery") == [("pending", 1)]
    release.set()


async def test_our_own_faults_are_charged_to_nobody(
    world: "World", async_database: AsyncDatabase, receivers: "Receivers"
) -> None:
    """With the wrong key nothing can be signed: the receiver's health and schedule stay as they are."""
    receiver = await receivers.healthy_receiver()
    world.endpoint(receiver.url())
    world.finish_job()
    broken = DeliveryEngine(async_database, SecretBox([b"other" * 8]), world.settings)
    assert await broken.deliver_due() == 1
    assert receiver.received == []
    assert world.sql("SELECT failure FROM webhook_attempt") == [("ours",)]
    assert world.sql("SELECT state, attempts, charged FROM webhook_delivery") == [("pending", 1, 0)]
    assert world.sql("SELECT first_failure_at FROM webhook_endpoint") == [(None,)]
    world.make_due()
    assert await DeliveryEngine(async_database, world.box, world.settings).deliver_due() == 1
    assert len(receiver.received) == 1


async def test_attempts_are_numbered_through(
    world: "World", async_database: AsyncDatabase, receivers: "Receivers"
) -> None:
    """Attempts that are charged to nobody have numbers of their own in the log."""
    receiver = await receivers.healthy_receiver()
    world.endpoint(receiver.url())
    world.finish_job()
    broken = DeliveryEngine(async_database, SecretBox([b"other" * 8]), world.settings)
    for engine in (broken, broken, DeliveryEngine(async_database, world.box, world.settings)):
        world.make_due()
        assert await engine.deliver_due() == 1
    assert world.sql("SELECT number, failure FROM webhook_attempt ORDER BY at") == [(1, "ours"), (2, "ours"), (3, None)]
