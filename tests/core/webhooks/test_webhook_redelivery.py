"""Sending again by hand stands beside the retry schedule: it takes no slot of it and moves none."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from arachne.schemas.webhook import DeliveryDetailView, EndpointChange
from arachne.webhooks.delivery import DeliveryEngine
from arachne.webhooks.endpoints import update_endpoint
from arachne.webhooks.log import get_delivery, redeliver
from arachne.webhooks.recovery import recover

if TYPE_CHECKING:
    from .conftest import Receivers, World


def look(world: "World", endpoint_id: str) -> DeliveryDetailView:
    """The endpoint's only delivery."""
    [(message_id,)] = world.sql("SELECT message_id FROM webhook_delivery")
    return world.database.run(lambda tx: get_delivery(tx.session, world.account_id, endpoint_id, str(message_id)))


def ask_again(world: "World", endpoint_id: str) -> None:
    """Its delivery is wanted again."""
    message_id = look(world, endpoint_id).message_id
    world.database.run(lambda tx: redeliver(tx.session, world.account_id, endpoint_id, message_id))


async def test_redelivering_leaves_the_schedule_as_it_is(
    world: "World", engine: DeliveryEngine, receivers: "Receivers"
) -> None:
    """However often a failing delivery is asked for, its next retry keeps its time and all retries are made."""
    receiver = await receivers.healthy_receiver(500)
    endpoint = world.endpoint(receiver.url()).endpoint_id
    world.finish_job()
    await engine.deliver_due()
    planned = look(world, endpoint).next_attempt_at
    for _ in range(3):
        ask_again(world, endpoint)
        assert await engine.deliver_due() == 1
        shown = look(world, endpoint)
        assert (shown.status, shown.next_attempt_at, shown.cause) == ("pending", planned, "event")
    retries = len(world.settings.webhook_retry_seconds)
    for _ in range(retries + 2):
        world.make_due()
        await engine.deliver_due()
    shown = look(world, endpoint)
    causes = [attempt.cause for attempt in shown.attempts]
    assert (shown.status, causes.count("event"), causes.count("redelivery")) == ("failed", retries + 1, 3)
    assert shown.attempt_count == len(shown.attempts) == len(receiver.received)


async def test_asking_for_what_is_due_sends_it_once(
    world: "World", engine: DeliveryEngine, receivers: "Receivers"
) -> None:
    """A delivery that is due anyway is sent once, as its schedule has it; asking twice is like asking once."""
    receiver = await receivers.healthy_receiver(500)
    endpoint = world.endpoint(receiver.url()).endpoint_id
    world.finish_job()
    ask_again(world, endpoint)
    assert await engine.deliver_due() == 1
    for _ in range(2):
        ask_again(world, endpoint)
    assert await engine.deliver_due() == 1
    assert [attempt.cause for attempt in look(world, endpoint).attempts] == ["event", "redelivery"]


async def test_what_was_finished_goes_on_where_its_schedule_was(
    world: "World", engine: DeliveryEngine, receivers: "Receivers"
) -> None:
    """A delivered event asked for again and failing has the retries that its schedule had left."""
    receiver = await receivers.flaky_receiver(500, 200, *[500] * 50)
    endpoint = world.endpoint(receiver.url()).endpoint_id
    world.finish_job()
    await engine.deliver_due()
    world.make_due()
    await engine.deliver_due()
    assert look(world, endpoint).status == "succeeded"
    ask_again(world, endpoint)
    retries = len(world.settings.webhook_retry_seconds)
    for _ in range(retries + 2):
        await engine.deliver_due()
        world.make_due()
    shown = look(world, endpoint)
    assert shown.status == "failed"
    assert [attempt.cause for attempt in shown.attempts].count("event") == retries + 1
    assert [attempt.cause for attempt in shown.attempts].count("redelivery") == 1


async def test_attempts_are_counted_whatever_they_were_for(
    world: "World", engine: DeliveryEngine, receivers: "Receivers"
) -> None:
    """A test that failed was one attempt, and recovering begins a schedule anew without forgetting what was made."""
    receiver = await receivers.healthy_receiver(500)
    endpoint = world.endpoint(receiver.url()).endpoint_id
    await engine.send_test(world.account_id, endpoint)
    shown = look(world, endpoint)
    assert (shown.status, shown.attempt_count, len(shown.attempts)) == ("failed", 1, 1)
    world.sql("DELETE FROM webhook_delivery")
    world.finish_job()
    await engine.deliver_due()
    world.sql("UPDATE webhook_delivery SET state = 'failed', charged = 10")
    [(message_id,)] = world.sql("SELECT message_id FROM webhook_delivery")
    world.database.run(lambda tx: recover(tx.session, world.account_id, endpoint))
    assert await engine.deliver_due() == 1
    detail = world.database.run(lambda tx: get_delivery(tx.session, world.account_id, endpoint, str(message_id)))
    assert (detail.status, detail.attempt_count, len(detail.attempts)) == ("pending", 2, 2)


@pytest.mark.parametrize("moved", [False, True])
async def test_what_arrived_while_it_was_cancelled_has_arrived(
    world: "World", engine: DeliveryEngine, receivers: "Receivers", moved: bool
) -> None:
    """A 2xx that comes after disabling is a success that recovering doesn't send again, unless the URL is another."""
    release = asyncio.Event()
    receiver = await receivers.slow_receiver(release)
    endpoint = world.endpoint(receiver.url()).endpoint_id
    world.finish_job()
    sending = asyncio.create_task(engine.deliver_due())
    await receiver.wait_for(1)

    def switch(*, enabled: bool) -> None:
        change = EndpointChange(enabled=enabled)
        url = world.checked(receiver.url("/other")) if moved and not enabled else None
        world.database.run(lambda tx: update_endpoint(tx.session, world.account_id, endpoint, change, url))

    await asyncio.to_thread(lambda: switch(enabled=False))
    release.set()
    await sending
    shown = look(world, endpoint)
    assert (shown.status, shown.attempt_count) == ("cancelled" if moved else "succeeded", 1)
    switch(enabled=True)
    found = world.database.run(lambda tx: recover(tx.session, world.account_id, endpoint))
    assert len(found.missed) == moved
