"""What integrators do: rotate secrets, send tests, read the log, send again, give a job its own URL."""

import json
from typing import TYPE_CHECKING

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from arachne.errors import Conflict, NotFound
from arachne.schemas.webhook import EndpointChange, SecretView
from arachne.webhooks.delivery import DeliveryEngine
from arachne.webhooks.endpoint_secrets import MAX_OLD, get_default_secret, rotate_default_secret, rotate_endpoint_secret
from arachne.webhooks.endpoints import ensure_job_endpoint, update_endpoint
from arachne.webhooks.log import get_delivery, list_deliveries, redeliver

if TYPE_CHECKING:
    from .conftest import Receivers, World


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
    world.sql("UPDATE webhook_endpoint SET secrets_old_until = ARRAY[now()]")
    world.finish_job()
    await engine.deliver_due()
    during, after = receiver.received
    for secret in (new.secret, endpoint.secret):
        Webhook(secret).verify(during.body, during.headers)
    Webhook(new.secret).verify(after.body, after.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(endpoint.secret).verify(after.body, after.headers)


@pytest.mark.parametrize("of_account", [False, True])
async def test_rotating_twice_ends_nobodys_grace(
    world: "World", engine: DeliveryEngine, receivers: "Receivers", of_account: bool
) -> None:
    """After a rotation repeated for a lost answer the first secret still signs; one without grace ends all others."""
    receiver = await receivers.healthy_receiver()
    if of_account:
        first = world.database.run(lambda tx: get_default_secret(tx.session, world.box, world.account_id)).secret
        with world.database.transaction() as transaction:
            own = ensure_job_endpoint(transaction.session, world.account_id, world.checked(receiver.url()))
    else:
        endpoint = world.endpoint(receiver.url())
        own, first = None, endpoint.secret

    def rotate(grace_s: int) -> str:
        with world.database.transaction() as transaction:
            whose = (transaction.session, world.box, world.account_id)
            if of_account:
                return rotate_default_secret(*whose, grace_s=grace_s).secret
            return rotate_endpoint_secret(*whose, endpoint.endpoint_id, grace_s=grace_s).secret

    lost, second = rotate(3600), rotate(60)
    for _ in range(2):
        world.finish_job(webhook_endpoint_id=own)
        await engine.deliver_due()
        last = rotate(0)
    during, after = receiver.received
    for secret in (first, lost, second):
        Webhook(secret).verify(during.body, during.headers)
    assert len(after.headers["webhook-signature"].split()) == 1
    assert last != second


@pytest.mark.parametrize("of_account", [False, True])
def test_no_rotation_ends_a_grace_it_does_not_name(world: "World", *, of_account: bool) -> None:
    """Where as many old secrets sign as may, rotating is refused and changes nothing; without a grace it ends them."""
    endpoint = world.endpoint("http://127.0.0.1:9/hook").endpoint_id
    world.database.run(lambda tx: get_default_secret(tx.session, world.box, world.account_id))

    def rotate(grace_s: int) -> SecretView:
        if of_account:
            return world.database.run(
                lambda tx: rotate_default_secret(tx.session, world.box, world.account_id, grace_s=grace_s)
            )
        return world.database.run(
            lambda tx: rotate_endpoint_secret(tx.session, world.box, world.account_id, endpoint, grace_s=grace_s)
        )

    table, prefix = ("account", "webhook_secret") if of_account else ("webhook_endpoint", "secret")
    for _ in range(MAX_OLD):
        rotate(3600)
    before = world.sql(f"SELECT {prefix}, {prefix}s_old, {prefix}s_old_until FROM {table}")
    with pytest.raises(Conflict, match="grace_seconds 0"):
        rotate(3600)
    assert world.sql(f"SELECT {prefix}, {prefix}s_old, {prefix}s_old_until FROM {table}") == before
    ends = f"UPDATE {table} SET {prefix}s_old_until[1] = now() - interval '1 second'"
    world.sql(ends)
    rotate(3600)  # one grace is over: there is room
    assert rotate(0).old_secret_until is None
    assert world.sql(f"SELECT cardinality({prefix}s_old) FROM {table}") == [(0,)]


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
