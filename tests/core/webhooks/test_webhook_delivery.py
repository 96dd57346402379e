"""Delivery over real HTTP from a real database: signatures, retries, disabling, fairness, and loss of workers."""

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from arachne.database import AsyncDatabase
from arachne.errors import Conflict, NotFound
from arachne.schemas.webhook import EndpointChange
from arachne.secretbox import SecretBox
from arachne.webhooks.claim import claim_due
from arachne.webhooks.delivery import DeliveryEngine
from arachne.webhooks.endpoint_secrets import get_default_secret, rotate_default_secret, rotate_endpoint_secret
from arachne.webhooks.endpoints import delete_endpoint, ensure_job_endpoint, update_endpoint
from arachne.webhooks.log import get_delivery, list_deliveries, redeliver

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


async def test_the_schedule_ends(world: "World", engine: DeliveryEngine, receivers: "Receivers") -> None:
    """After the last retry the delivery has failed; a manual one is sent once more and leaves the schedule alone."""
    receiver = await receivers.healthy_receiver(503)
    endpoint = world.endpoint(receiver.url())
    world.finish_job()
    retries = len(world.settings.webhook_retry_seconds)
    for _ in range(retries + 3):
        await engine.deliver_due()
        world.make_due()
    assert len(receiver.received) == retries + 1
    assert world.sql("SELECT state, attempts FROM webhook_delivery") == [("failed", retries + 1)]
    with world.database.transaction() as transaction:
        redeliver(transaction.session, world.account_id, endpoint.endpoint_id, receiver.received[0].message_id)
    assert await engine.deliver_due() == 1
    assert world.sql("SELECT state FROM webhook_delivery") == [("failed",)]
    assert len({got.body for got in receiver.received}) == 1


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
    world.settings = world.settings.model_copy(update={"webhook_timeout_s": 0.3})

    def lookup(host: str, _port: int) -> list[str]:
        if host == "nowhere.example.com":
            raise OSError("no such name")
        return ["127.0.0.1"]

    engine = DeliveryEngine(async_database, world.box, world.settings, lookup=lookup)
    urls = {
        "refused": "http://127.0.0.1:9/",
        "tls": receiver.url().replace("http:", "https:"),
        "dns": "http://nowhere.example.com/",
        "timeout": slow.url(),
    }
    ids = {world.endpoint(url).endpoint_id: failure for failure, url in urls.items()}
    world.finish_job()
    assert await engine.deliver_due() == len(urls)
    found = dict(world.sql("SELECT endpoint_id, failure FROM webhook_attempt"))
    assert found == ids
    assert world.sql("SELECT DISTINCT state, attempts FROM webhook_delivery") == [("pending", 1)]
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
    assert world.sql("SELECT state, attempts FROM webhook_delivery") == [("pending", 0)]
    assert world.sql("SELECT first_failure_at FROM webhook_endpoint") == [(None,)]
    world.make_due()
    assert await DeliveryEngine(async_database, world.box, world.settings).deliver_due() == 1
    assert len(receiver.received) == 1


async def test_hanging_endpoints_delay_nobody(world: "World", engine: DeliveryEngine, receivers: "Receivers") -> None:
    """While endpoints with many due deliveries hang, a healthy one gets all of its own."""
    release, stop = asyncio.Event(), asyncio.Event()
    slow = await receivers.slow_receiver(release)
    for n in range(6):
        world.endpoint(slow.url(f"/{n}"))
    for _ in range(30):
        world.finish_job()
    healthy = await receivers.healthy_receiver()
    world.endpoint(healthy.url())
    for _ in range(30):
        world.finish_job()
    running = asyncio.create_task(engine.run(stop))
    await healthy.wait_for(30, limit_s=25)  # less than the time limit of those that hang
    assert len(slow.received) == 60
    assert not release.is_set()
    release.set()
    stop.set()
    await running


async def test_a_lost_worker_loses_nothing(world: "World", engine: DeliveryEngine, receivers: "Receivers") -> None:
    """What a dead worker had claimed is sent when its lease ends, not before, with the same id."""
    receiver = await receivers.healthy_receiver()
    world.endpoint(receiver.url())
    world.finish_job()
    with world.database.transaction() as transaction:
        batch = claim_due(transaction.session, world.box, cursor="", limit=10, lease_s=30)
    assert len(batch.claims) == 1
    assert await engine.deliver_due() == 0
    world.sql("UPDATE webhook_delivery SET lease_until = now(), next_attempt_at = now()")
    assert await engine.deliver_due() == 1
    assert receiver.received[0].message_id == batch.claims[0].message_id


async def test_two_engines_share_and_never_double(
    world: "World", async_database: AsyncDatabase, engine: DeliveryEngine, receivers: "Receivers"
) -> None:
    """Two engines at once send each delivery exactly once."""
    receiver = await receivers.healthy_receiver()
    for n in range(3):
        world.endpoint(receiver.url(f"/{n}"))
    for _ in range(20):
        world.finish_job()
    other = DeliveryEngine(async_database, world.box, world.settings)
    sent = await asyncio.gather(engine.deliver_due(), other.deliver_due())
    while await engine.deliver_due():
        pass
    assert sum(sent) <= 60
    assert len({(got.message_id, got.path) for got in receiver.received}) == len(receiver.received) == 60


async def test_deleting_cancels_even_what_is_in_flight(
    world: "World", engine: DeliveryEngine, receivers: "Receivers"
) -> None:
    """An endpoint deleted while its delivery is under way: cancelled, logged, and never sent again."""
    release = asyncio.Event()
    slow = await receivers.slow_receiver(release)
    endpoint = world.endpoint(slow.url())
    world.finish_job()
    sending = asyncio.create_task(engine.deliver_due())
    await slow.wait_for(1)
    with world.database.transaction() as transaction:
        delete_endpoint(transaction.session, world.account_id, endpoint.endpoint_id)
    release.set()
    assert await sending == 1
    assert world.sql("SELECT state, reason FROM webhook_delivery") == [("cancelled", "the endpoint was deleted")]
    assert world.sql("SELECT count(*) FROM webhook_attempt") == [(1,)]
    with world.database.transaction() as transaction, pytest.raises(NotFound):
        list_deliveries(transaction.session, world.account_id, endpoint.endpoint_id)


async def test_rotation_signs_with_both_until_the_grace_ends(
    world: "World", engine: DeliveryEngine, receivers: "Receivers"
) -> None:
    """During the grace either secret verifies; afterwards only the new one."""
    receiver = await receivers.healthy_receiver()
    endpoint = world.endpoint(receiver.url())
    with world.database.transaction() as transaction:
        new = rotate_endpoint_secret(transaction.session, world.box, world.account_id, endpoint.endpoint_id, grace_s=60)
    world.finish_job()
    await engine.deliver_due()
    world.sql("UPDATE webhook_endpoint SET secret_old_until = now()")
    world.finish_job()
    await engine.deliver_due()
    during, after = receiver.received
    for secret in (new.secret, endpoint.secret):
        Webhook(secret).verify(during.body, during.headers)
    Webhook(new.secret).verify(after.body, after.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(endpoint.secret).verify(after.body, after.headers)


async def test_a_jobs_own_webhook(world: "World", engine: DeliveryEngine, receivers: "Receivers") -> None:
    """A job's own URL gets its events signed with the account's default secret; 410 doesn't disable it."""
    receiver = await receivers.flaky_receiver(410)
    with world.database.transaction() as transaction:
        hidden = ensure_job_endpoint(transaction.session, world.account_id, world.checked(receiver.url()))
        assert ensure_job_endpoint(transaction.session, world.account_id, world.checked(receiver.url())) == hidden
    world.finish_job(webhook_endpoint_id=hidden)
    await engine.deliver_due()
    assert world.sql("SELECT state FROM webhook_delivery") == [("failed",)]
    world.finish_job(webhook_endpoint_id=hidden)
    await engine.deliver_due()
    with world.database.transaction() as transaction:
        default = get_default_secret(transaction.session, world.box, world.account_id)
        assert get_default_secret(transaction.session, world.box, world.account_id) == default
    for got in receiver.received:
        Webhook(default.secret).verify(got.body, got.headers)
    with world.database.transaction() as transaction:
        rotated = rotate_default_secret(transaction.session, world.box, world.account_id)
    world.finish_job(webhook_endpoint_id=hidden, webhook_events=["job.*"])
    await engine.deliver_due()
    for secret in (default.secret, rotated.secret):
        Webhook(secret).verify(receiver.received[-1].body, receiver.received[-1].headers)
    world.finish_job(webhook_endpoint_id=hidden, webhook_events=["job.failed"])
    assert await engine.deliver_due() == 0


async def test_an_enabled_endpoint_replaces_the_jobs_own(
    world: "World", engine: DeliveryEngine, receivers: "Receivers"
) -> None:
    """With an enabled endpoint at the same URL only that one is used; once disabled, the job's own is."""
    receiver = await receivers.healthy_receiver()
    with world.database.transaction() as transaction:
        hidden = ensure_job_endpoint(transaction.session, world.account_id, world.checked(receiver.url()))
    endpoint = world.endpoint(receiver.url())
    world.finish_job(webhook_endpoint_id=hidden)
    assert await engine.deliver_due() == 1
    Webhook(endpoint.secret).verify(receiver.received[0].body, receiver.received[0].headers)
    with world.database.transaction() as transaction:
        update_endpoint(
            transaction.session, world.account_id, endpoint.endpoint_id, EndpointChange(enabled=False), None
        )
    world.finish_job(webhook_endpoint_id=hidden)
    assert await engine.deliver_due() == 1
    with pytest.raises(WebhookVerificationError):
        Webhook(endpoint.secret).verify(receiver.received[1].body, receiver.received[1].headers)


async def test_the_test_event(world: "World", engine: DeliveryEngine, receivers: "Receivers") -> None:
    """`webhook.test` is sent at once and once, to a disabled endpoint too, and changes no endpoint's health."""
    receiver = await receivers.flaky_receiver(500)
    endpoint = world.endpoint(receiver.url())
    with world.database.transaction() as transaction:
        update_endpoint(
            transaction.session, world.account_id, endpoint.endpoint_id, EndpointChange(enabled=False), None
        )
    failed = await engine.send_test(world.account_id, endpoint.endpoint_id)
    assert (failed.status_code, failed.failure) == (500, "http")
    passed = await engine.send_test(world.account_id, endpoint.endpoint_id)
    assert (passed.status_code, passed.failure) == (204, None)
    Webhook(endpoint.secret).verify(receiver.received[0].body, receiver.received[0].headers)
    assert receiver.received[0].event["type"] == "webhook.test"
    assert world.sql("SELECT state FROM webhook_delivery ORDER BY message_id") == [("failed",), ("succeeded",)]
    assert world.sql("SELECT first_failure_at FROM webhook_endpoint") == [(None,)]
    with pytest.raises(NotFound):
        await engine.send_test("acc_other", endpoint.endpoint_id)


async def test_wake_beats_the_tick(world: "World", async_database: AsyncDatabase, receivers: "Receivers") -> None:
    """A wake-up from another thread is acted on at once; without any, the tick alone delivers."""
    receiver, stop = await receivers.healthy_receiver(), asyncio.Event()
    world.endpoint(receiver.url())
    sleepy = DeliveryEngine(async_database, world.box, world.settings, tick_s=600)
    sleepy.wake()
    running = asyncio.create_task(sleepy.run(stop))
    await asyncio.sleep(0.2)
    await asyncio.to_thread(world.finish_job)
    await asyncio.sleep(0.1)
    assert receiver.received == []
    await asyncio.to_thread(sleepy.wake)
    await receiver.wait_for(1)
    stop.set()
    await running
    world.finish_job()
    stop.clear()
    ticking = DeliveryEngine(async_database, world.box, world.settings, tick_s=0.05)
    running = asyncio.create_task(ticking.run(stop))
    await receiver.wait_for(2)
    stop.set()
    await running


async def test_the_delivery_log(world: "World", engine: DeliveryEngine, receivers: "Receivers") -> None:
    """Deliveries are listed newest first, filtered, page by page; a disabled endpoint refuses to send again."""
    receiver = await receivers.healthy_receiver()
    endpoint = world.endpoint(receiver.url())
    jobs = [world.finish_job().job_id for _ in range(5)]
    await engine.deliver_due()
    failed = world.finish_job(state="failed", completed=0, failed=1)
    listed: list[str] = []
    cursor = None
    with world.database.transaction() as transaction:
        session, whose = transaction.session, (world.account_id, endpoint.endpoint_id)
        while True:
            page = list_deliveries(session, *whose, limit=2, cursor=cursor)
            listed += [view.event for view in page.data]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert listed == ["job.failed"] + ["job.completed"] * len(jobs)
        assert len(list_deliveries(session, *whose, status="succeeded").data) == 5
        [pending] = list_deliveries(session, *whose, event="job.failed").data
        assert (pending.status, pending.attempt_count) == ("pending", 0)
        assert json.loads(get_delivery(session, *whose, pending.message_id).body)["data"]["job_id"] == failed.job_id
        with pytest.raises(NotFound):
            get_delivery(session, *whose, "msg_none")
        update_endpoint(session, *whose, EndpointChange(enabled=False), None)
        with pytest.raises(Conflict):
            redeliver(session, *whose, pending.message_id)
