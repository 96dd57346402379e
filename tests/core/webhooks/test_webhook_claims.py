"""Who is served when there is more to send than may be in flight: every endpoint, every account, within bounds."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from arachne import resident_loop
from arachne.accounts import create_account
from arachne.webhooks import claim
from arachne.webhooks.claim import Claim, claim_due
from arachne.webhooks.delivery import DeliveryEngine

if TYPE_CHECKING:
    from .conftest import Receivers, World

CLOSED = "http://127.0.0.1:9"


@dataclass
class Crowd:
    """Requests that hang until they are released, and how many did at once."""

    release: asyncio.Event = field(default_factory=asyncio.Event)
    under_way: int = 0
    most: int = 0

    async def hang(self, _: web.Request) -> web.Response:
        """An answer, then."""
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await self.release.wait()
        self.under_way -= 1
        return web.Response()


def take(world: "World", limit: int, *, nearly_full: bool = False) -> list[Claim]:
    """What one claim gets."""
    with world.database.transaction() as transaction:
        session = transaction.session
        return claim_due(session, world.box, cursor="", limit=limit, lease_s=30, nearly_full=nearly_full).claims


@pytest.mark.parametrize("fails", [True, False])
async def test_endpoints_that_hang_never_take_the_last_places(
    world: "World", engine: DeliveryEngine, receivers: "Receivers", monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Whether they are known to fail or not yet, with more of theirs due than may be in flight at all."""
    monkeypatch.setattr(resident_loop, "PLACES", 8)
    monkeypatch.setattr(resident_loop, "LAST_PLACES", 4)
    crowd, stop = Crowd(), asyncio.Event()
    slow, healthy = await receivers.start(crowd.hang), await receivers.healthy_receiver()
    number = 12 if fails else 2
    for n in range(number):
        world.endpoint(slow.url(f"/{n}"))
    if fails:
        world.sql("UPDATE webhook_endpoint SET first_failure_at = now()")
    for _ in range(10):
        world.finish_job()
    running = asyncio.create_task(engine.run(stop))
    await slow.wait_for(4)
    world.endpoint(healthy.url())
    for _ in range(5):
        await asyncio.to_thread(world.finish_job)
    await healthy.wait_for(5)
    assert len(slow.received) == 4
    crowd.release.set()
    await slow.wait_for(15 * number)
    assert crowd.most <= 8
    stop.set()
    await running


def test_the_account_with_the_fewest_in_flight_is_first(world: "World") -> None:
    """However many endpoints another has, and however long its events have waited."""
    for n in range(6):
        world.endpoint(f"{CLOSED}/{n}")
    for _ in range(2):
        world.finish_job()
    assert len(take(world, 3)) == 3
    with world.database.transaction() as transaction:
        account_id = create_account(transaction.session, "modest").account_id
    modest = replace(world, account_id=account_id)
    modest.endpoint(f"{CLOSED}/modest")
    for _ in range(3):
        modest.finish_job()
    assert [one.account_id for one in take(world, 3)] == [account_id] * 3
    assert [one.account_id for one in take(world, 3)] == [world.account_id] * 3


def test_a_nearly_full_engine_gives_each_endpoint_one_place(world: "World") -> None:
    """Those that fail get none."""
    failing = world.endpoint(f"{CLOSED}/failing").endpoint_id
    world.sql("UPDATE webhook_endpoint SET first_failure_at = now()")
    others = {world.endpoint(f"{CLOSED}/{n}").endpoint_id for n in range(3)}
    for _ in range(3):
        world.finish_job()
    found = [one.endpoint_id for one in take(world, 100, nearly_full=True)]
    assert (len(found), set(found)) == (3, others)
    assert take(world, 100, nearly_full=True) == []
    assert {one.endpoint_id for one in take(world, 100)} == {failing, *others}


async def test_every_endpoint_comes_into_view(
    world: "World", engine: DeliveryEngine, receivers: "Receivers", monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more endpoints than one claim walks, the walk goes on where it ended, and comes round."""
    monkeypatch.setattr(claim, "WINDOW", 4)
    receiver = await receivers.healthy_receiver()
    for n in range(10):
        world.endpoint(receiver.url(f"/{n}"))
    for _ in range(2):
        world.finish_job()
    assert await engine.deliver_due() == 20
    assert {one.path for one in receiver.received} == {f"/{n}" for n in range(10)}
