"""What an endpoint missed is found, listed and sent again, once, within bounds."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from arachne.errors import Conflict, NotFound
from arachne.schemas.webhook import EndpointChange
from arachne.webhooks.delivery import DeliveryEngine
from arachne.webhooks.endpoints import update_endpoint
from arachne.webhooks.history import erase_events
from arachne.webhooks.outbox import emit_endpoint_disabled
from arachne.webhooks.recovery import Recovery, recover

if TYPE_CHECKING:
    from .conftest import Receivers, World

LONG_AGO = datetime.now(UTC) - timedelta(days=3)


def switch(world: "World", endpoint_id: str, *, enabled: bool) -> None:
    """The endpoint is enabled or disabled."""
    change = EndpointChange(enabled=enabled)
    world.database.run(lambda tx: update_endpoint(tx.session, world.account_id, endpoint_id, change, None))


def call(world: "World", endpoint_id: str, *, dry_run: bool = False, limit: int = 100, **times: datetime) -> Recovery:
    """A recovery of all since long ago, unless `times` say otherwise."""
    since, until = times.get("since", LONG_AGO), times.get("until")
    return world.database.run(
        lambda tx: recover(
            tx.session, world.account_id, endpoint_id, since=since, until=until, dry_run=dry_run, limit=limit
        )
    )


async def test_after_an_outage_all_that_was_missed_arrives_once(
    world: "World", engine: DeliveryEngine, receivers: "Receivers"
) -> None:
    """Cancelled by disabling and never written while disabled: both come, with the ids and bytes they always had."""
    receiver = await receivers.flaky_receiver(204, 500)
    endpoint = world.endpoint(receiver.url()).endpoint_id
    world.finish_job()
    await engine.deliver_due()
    failed = world.finish_job()
    await engine.deliver_due()
    switch(world, endpoint, enabled=False)
    unwritten = world.finish_job()
    with pytest.raises(Conflict):
        call(world, endpoint)
    switch(world, endpoint, enabled=True)
    listed = call(world, endpoint, dry_run=True)
    assert [(one.status, one.event) for one in listed.missed] == [
        ("cancelled", "job.completed"),
        (None, "job.completed"),
    ]
    assert await engine.deliver_due() == 0
    assert call(world, endpoint) == listed
    assert call(world, endpoint).missed == []  # the second click
    assert await engine.deliver_due() == 2
    assert call(world, endpoint).missed == []
    first, second = receiver.received[1], receiver.received[2:]
    stored = dict(world.sql("SELECT job_id, message_id FROM webhook_message"))  # type: ignore[arg-type]
    assert {one.message_id for one in second} == {stored[failed.job_id], stored[unwritten.job_id]}
    again = next(one for one in second if one.message_id == first.message_id)
    assert again.body == first.body
    causes = world.sql("SELECT cause, number FROM webhook_attempt ORDER BY at")
    assert [cause for cause, _ in causes] == ["event", "event", "recovery", "recovery"]


def test_two_clicks_at_once_send_once(world: "World") -> None:
    """Calls at the same time share what was missed; nothing is due twice."""
    endpoint = world.endpoint("http://127.0.0.1:9/hook").endpoint_id
    for _ in range(5):
        world.finish_job()
    world.sql("UPDATE webhook_delivery SET state = 'failed', charged = 10, finished_at = now()")

    async def both() -> list[Recovery]:
        return await asyncio.gather(*(asyncio.to_thread(call, world, endpoint) for _ in range(2)))

    found = asyncio.run(both())
    assert sorted(len(one.missed) for one in found) == [0, 5]
    rows = world.sql("SELECT state, charged, cause FROM webhook_delivery")
    assert rows == [("pending", 0, "recovery")] * 5


def test_only_what_the_endpoint_wants_and_may_have(world: "World") -> None:
    """Filters, times and accounts hold; no tests, no deleted jobs, nothing delivered or on its way, not its own end."""
    endpoint = world.endpoint("http://127.0.0.1:9/hook", events=["job.completed", "webhook.*"]).endpoint_id
    other = world.endpoint("http://127.0.0.1:9/other", events=["job.failed"]).endpoint_id
    delivered, pending, deleted, wanted = (world.finish_job() for _ in range(4))
    unwanted = world.finish_job(state="failed")
    world.sql("UPDATE webhook_delivery SET state = 'failed'")
    for job, state in ((delivered, "succeeded"), (pending, "pending")):
        world.sql(
            "UPDATE webhook_delivery d SET state = :state FROM webhook_message m "
            "WHERE m.message_id = d.message_id AND m.job_id = :job_id", state=state, job_id=job.job_id,
        )  # fmt: skip
    world.database.run(lambda tx: erase_events(tx.session, deleted.job_id))
    for disabled in (endpoint, other):
        world.database.run(lambda tx, one=disabled: emit_endpoint_disabled(tx.session, world.account_id, one, "why"))
    world.sql("UPDATE webhook_delivery SET state = 'failed' WHERE message_id IN "
              "(SELECT message_id FROM webhook_message WHERE type LIKE 'webhook.%')")  # fmt: skip
    ids = dict(world.sql("SELECT job_id, message_id FROM webhook_message WHERE job_id IS NOT NULL"))  # type: ignore[arg-type]
    missed = call(world, endpoint, dry_run=True).missed
    assert [one.event for one in missed] == ["job.completed", "webhook.endpoint.disabled"]
    assert missed[0].message_id == ids[wanted.job_id]
    assert [one.message_id for one in call(world, other, dry_run=True).missed] == [ids[unwanted.job_id]]
    cut = missed[1].created_at
    assert call(world, endpoint, dry_run=True, until=cut).missed == missed[:1]
    assert call(world, endpoint, dry_run=True, since=cut).missed == missed[1:]
    with pytest.raises(NotFound):
        world.database.run(
            lambda tx: recover(tx.session, "acc_other", endpoint, since=LONG_AGO, until=None, dry_run=True)
        )


def test_a_call_is_bounded_and_the_next_goes_on(world: "World") -> None:
    """Of more than a call takes the oldest come first, and it says that there is more."""
    endpoint = world.endpoint("http://127.0.0.1:9/hook").endpoint_id
    for _ in range(5):
        world.finish_job()
    world.sql("UPDATE webhook_delivery SET state = 'failed'")
    calls = [call(world, endpoint, limit=2) for _ in range(3)]
    assert [(len(one.missed), one.more) for one in calls] == [(2, True), (2, True), (1, False)]
    sent = [missed.message_id for one in calls for missed in one.missed]
    assert [(message_id,) for message_id in sent] == world.sql(
        "SELECT message_id FROM webhook_message ORDER BY created_at, message_id"
    )


async def test_an_enabled_endpoint_is_probed_before_it_gets_everything(
    world: "World", engine: DeliveryEngine, receivers: "Receivers"
) -> None:
    """Enabled again, an endpoint gets one request at a time; once it has taken one, several."""
    release, stop = asyncio.Event(), asyncio.Event()
    receiver = await receivers.slow_receiver(release)
    endpoint = world.endpoint(receiver.url()).endpoint_id
    for enabled in (False, True):
        switch(world, endpoint, enabled=enabled)
    for _ in range(6):
        world.finish_job()
    running = asyncio.create_task(engine.run(stop))
    await receiver.wait_for(1)
    engine.wake()
    in_flight = "SELECT count(*) FROM webhook_delivery WHERE claim_id IS NOT NULL AND state = 'pending'"
    assert await asyncio.to_thread(world.sql, in_flight) == [(1,)]
    release.set()
    await receiver.wait_for(6)
    stop.set()
    await running
    assert world.sql("SELECT half_open FROM webhook_endpoint") == [(False,)]


async def test_a_disabled_endpoint_that_still_fails_stays_probed(
    world: "World", engine: DeliveryEngine, receivers: "Receivers"
) -> None:
    """A failure after enabling leaves it at one request at a time, and its deliveries on their schedule."""
    receiver = await receivers.flaky_receiver(500)
    endpoint = world.endpoint(receiver.url()).endpoint_id
    for enabled in (False, True):
        switch(world, endpoint, enabled=enabled)
    for _ in range(3):
        world.finish_job()
    await engine.deliver_due()
    assert len(receiver.received) == 3
    assert sorted(world.sql("SELECT state FROM webhook_delivery")) == [("pending",), ("succeeded",), ("succeeded",)]
    assert world.sql("SELECT half_open, first_failure_at FROM webhook_endpoint") == [(False, None)]


def test_a_disabled_endpoint_may_be_asked_what_it_missed(world: "World") -> None:
    """Looking needs no enabled endpoint; sending does."""
    endpoint = world.endpoint("http://127.0.0.1:9/hook").endpoint_id
    switch(world, endpoint, enabled=False)
    world.finish_job()
    assert len(call(world, endpoint, dry_run=True).missed) == 1
    with pytest.raises(Conflict):
        call(world, endpoint)
