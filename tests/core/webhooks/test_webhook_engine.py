"""The resident engine: fairness between endpoints, wake-ups and ticks, loss of workers, other engines."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from arachne.database import AsyncDatabase
from arachne.errors import NotFound
from arachne.jobs.reconcile import reconcile, release_worker
from arachne.jobs.workers import register
from arachne.schemas.webhook import EndpointChange
from arachne.webhooks.claim import Batch, claim_due
from arachne.webhooks.delivery import DeliveryEngine
from arachne.webhooks.endpoints import delete_endpoint, update_endpoint
from arachne.webhooks.log import list_deliveries

if TYPE_CHECKING:
    from .conftest import Receivers, World


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
    await slow.wait_for(60)
    assert len(slow.received) == 60
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


async def test_what_a_lost_worker_was_sending_is_due_at_once(
    world: "World", async_database: AsyncDatabase, receivers: "Receivers"
) -> None:
    """With the same id and bytes, long before the lease ends; one that lives keeps what it is sending."""
    receiver = await receivers.healthy_receiver()
    world.endpoint(receiver.url())
    world.finish_job()
    worker_id = world.database.run(register, "io")
    with world.database.transaction() as transaction:
        batch = claim_due(transaction.session, world.box, cursor="", limit=10, lease_s=3600, worker_id=worker_id)
    engine = DeliveryEngine(async_database, world.box, world.settings)
    assert reconcile(world.database, world.settings, thorough=False).unsent == 0
    assert await engine.deliver_due() == 0
    world.database.run(release_worker, host=os.uname().nodename, pid=os.getpid())
    assert reconcile(world.database, world.settings, thorough=False).unsent == 1
    assert await engine.deliver_due() == 1
    assert [(got.message_id, got.body) for got in receiver.received] == [
        (claim.message_id, claim.body) for claim in batch.claims
    ]


async def test_what_ends_while_a_claim_is_made_is_seen(
    world: "World", async_database: AsyncDatabase, receivers: "Receivers"
) -> None:
    """The room it leaves is used, although that claim, the last one otherwise, did not count it."""
    release = asyncio.Event()
    healthy, slow = await receivers.healthy_receiver(), await receivers.slow_receiver(release)
    world.endpoint(slow.url())
    world.finish_job()
    world.endpoint(healthy.url())
    world.finish_job()
    world.sql("UPDATE webhook_endpoint SET max_in_flight = 1")

    class Slow(DeliveryEngine):
        async def _claim(self, limit: int, *, nearly_full: bool) -> Batch:
            batch = await super()._claim(limit, nearly_full=nearly_full)
            if healthy.received and self._sends._under_way and not batch.claims:
                release.set()
                await asyncio.wait(self._sends._under_way)
            return batch

    assert await Slow(async_database, world.box, world.settings).deliver_due() == 3


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
    """An endpoint deleted while its delivery is under way: it arrived, is logged, and is never sent again."""
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
    assert world.sql("SELECT state, reason FROM webhook_delivery") == [("succeeded", None)]
    assert world.sql("SELECT count(*) FROM webhook_attempt") == [(1,)]
    with world.database.transaction() as transaction, pytest.raises(NotFound):
        list_deliveries(transaction.session, world.account_id, endpoint.endpoint_id)


async def test_a_wake_up_from_a_thread_is_acted_on(
    world: "World", async_database: AsyncDatabase, receivers: "Receivers"
) -> None:
    """With ticks ten minutes apart, a wake-up alone brings the delivery; one before the start does no harm."""
    receiver, stop = await receivers.healthy_receiver(), asyncio.Event()
    world.endpoint(receiver.url())
    engine = DeliveryEngine(async_database, world.box, world.settings, tick_s=600)
    engine.wake()
    world.finish_job()
    running = asyncio.create_task(engine.run(stop))
    for count in (1, 2, 3):
        await receiver.wait_for(count)
        await asyncio.to_thread(world.finish_job)
        await asyncio.to_thread(engine.wake)
    await receiver.wait_for(4)
    stop.set()
    await running
    engine.wake()


async def test_the_tick_alone_delivers(world: "World", async_database: AsyncDatabase, receivers: "Receivers") -> None:
    """Without any wake-up, as when Redis is down, due deliveries are sent within a tick."""
    receiver, stop = await receivers.healthy_receiver(), asyncio.Event()
    world.endpoint(receiver.url())
    engine = DeliveryEngine(async_database, world.box, world.settings, tick_s=0.05)
    running = asyncio.create_task(engine.run(stop))
    for count in (1, 2):
        await asyncio.to_thread(world.finish_job)
        await receiver.wait_for(count)
    stop.set()
    await running


async def test_stopping_leaves_what_hangs_to_its_lease(
    world: "World", engine: DeliveryEngine, receivers: "Receivers", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop doesn't wait for a receiver that hangs, and its delivery stays claimed until the lease ends."""
    monkeypatch.setattr("arachne.resident_loop._STOP_GRACE_S", 0.01)
    release, stop = asyncio.Event(), asyncio.Event()
    slow = await receivers.slow_receiver(release)
    world.endpoint(slow.url())
    world.finish_job()
    running = asyncio.create_task(engine.run(stop))
    await slow.wait_for(1)
    stop.set()
    await running
    assert world.sql("SELECT state, attempts, claim_id IS NULL FROM webhook_delivery") == [("pending", 0, False)]
    release.set()


@pytest.mark.parametrize("how", ["moved", "switched off and on"])
async def test_a_late_answer_says_nothing_of_the_endpoint_as_it_is_now(
    world: "World", engine: DeliveryEngine, receivers: "Receivers", how: str
) -> None:
    """A 410 of the former URL neither disables the endpoint nor takes its delivery from the new one."""
    release = asyncio.Event()

    async def answer(_request: web.Request) -> web.Response:
        await release.wait()
        return web.Response(status=410)

    gone, healthy = await receivers.start(answer), await receivers.healthy_receiver()
    endpoint = world.endpoint(gone.url())
    world.finish_job()
    sending = asyncio.create_task(engine.deliver_due())
    await gone.wait_for(1)
    changes = (
        [{"enabled": False}, {"enabled": True, "url": healthy.url()}] if how != "moved" else [{"url": healthy.url()}]
    )
    for change in changes:
        url = world.checked(str(change["url"])) if "url" in change else None
        with world.database.transaction() as transaction:
            wanted = EndpointChange.model_validate(change)
            update_endpoint(transaction.session, world.account_id, endpoint.endpoint_id, wanted, url)
    release.set()
    await sending
    assert world.sql("SELECT enabled, first_failure_at FROM webhook_endpoint") == [(True, None)]
    assert len(healthy.received) == (how == "moved")
    assert len(gone.received) == 1


@pytest.mark.parametrize("step", ["claim_due", "cancel_orphans"])
async def test_an_unexpected_fault_does_not_end_the_engine(
    world: "World",
    async_database: AsyncDatabase,
    receivers: "Receivers",
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    """Whatever goes wrong while looking for deliveries, the next tick delivers."""
    receiver, stop, faults = await receivers.healthy_receiver(), asyncio.Event(), 0

    def fail(*_args: object, **_options: object) -> None:
        nonlocal faults
        faults += 1
        monkeypatch.undo()
        raise ValueError("nobody thought of this")

    monkeypatch.setattr(f"arachne.webhooks.delivery.{step}", fail)
    world.endpoint(receiver.url())
    engine = DeliveryEngine(async_database, world.box, world.settings, tick_s=0.05)
    running = asyncio.create_task(engine.run(stop))
    await asyncio.to_thread(world.finish_job)
    await receiver.wait_for(1)
    stop.set()
    await running
    assert faults == 1


def test_engines_together_keep_to_what_an_endpoint_may_have_in_flight(world: "World") -> None:
    """A claim counts what another one, not committed yet, has taken."""
    world.endpoint("http://127.0.0.1:9/")
    world.sql("UPDATE webhook_endpoint SET max_in_flight = 2")
    for _ in range(4):
        world.finish_job()

    def claim() -> int:
        with world.database.transaction() as transaction:
            return len(claim_due(transaction.session, world.box, cursor="", limit=10, lease_s=30).claims)

    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()"
    with ThreadPoolExecutor(1) as other:
        with world.database.transaction() as transaction:
            mine = claim_due(transaction.session, world.box, cursor="", limit=10, lease_s=30).claims
            theirs = other.submit(claim)
            while not theirs.done() and not world.sql(waits):
                pass
        assert (len(mine), theirs.result()) == (2, 0)
