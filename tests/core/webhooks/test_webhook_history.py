"""Events read back: the feed misses nothing whoever commits when, streams go on where they were, deletion erases."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from random import Random
from threading import Barrier, Event
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from sqlmodel import Session

from arachne.accounts import create_account
from arachne.errors import Gone
from arachne.ids import new_id
from arachne.webhooks.delivery import DeliveryEngine
from arachne.webhooks.history import STREAM_BATCH, FeedEvent, Position, erase_events, read_feed, read_job_events
from arachne.webhooks.log import redeliver
from arachne.webhooks.outbox import emit_job_event, write_message

from .conftest import add_job

if TYPE_CHECKING:
    from .conftest import Receivers, World

START = Position()


def read(world: "World", after: Position, limit: int = 50) -> list[FeedEvent]:
    """What the feed shows after a position."""
    return world.database.run(lambda tx: read_feed(tx.session, world.account_id, after, limit))


def write(session: Session, account_id: str) -> str:
    """Id of an event just written."""
    message_id = write_message(session, account_id, "webhook.test", b'{"type":"webhook.test"}')
    assert message_id is not None
    return message_id


def test_four_writers_at_once_and_nothing_is_missed(world: "World") -> None:
    """A reader that goes on from its last cursor sees each event once, though transactions commit out of order.

    The same reader going by ids alone misses some, which shows that the writers overlap.
    """
    begin, over = Barrier(5), Event()

    def write_many(seed: int) -> list[str]:
        random, written = Random(seed), []
        begin.wait()
        for _ in range(100):
            with world.database.transaction() as transaction:
                for _ in range(random.randint(1, 3)):
                    written.append(write(transaction.session, world.account_id))
                    transaction.session.connection().exec_driver_sql(f"SELECT pg_sleep({random.random() / 200})")
        return written

    def follow() -> tuple[list[str], set[str]]:
        begin.wait()
        seen: list[str] = []
        by_id: set[str] = set()
        position, last_id, done = START, "", False
        while True:
            events = read(world, position, 20)
            seen += [event.message_id for event in events]
            position = events[-1].position if events else position
            newer = world.sql("SELECT message_id FROM webhook_message WHERE message_id > :id ORDER BY 1", id=last_id)
            by_id |= {str(row[0]) for row in newer}
            last_id = max([last_id, *by_id])
            if done and not events:
                return seen, by_id
            done = over.is_set()

    with ThreadPoolExecutor(5) as threads:
        reader = threads.submit(follow)
        written = [future.result() for future in [threads.submit(write_many, seed) for seed in range(4)]]
        over.set()
        seen, by_id = reader.result()
    everything = {message_id for each in written for message_id in each}
    assert len(seen) == len(set(seen))
    assert set(seen) == everything
    assert by_id != everything


def test_nothing_appears_before_a_cursor_already_given(world: "World") -> None:
    """While an older transaction with an event is open, younger ones that have committed wait for it."""
    with world.database.transaction() as older:
        first = write(older.session, world.account_id)
        with world.database.transaction() as younger:
            second = write(younger.session, world.account_id)
        assert read(world, START) == []
    assert [event.message_id for event in read(world, START)] == [first, second]


def test_pages_go_on_where_the_last_one_ended(world: "World") -> None:
    """Pages of any size give the same events in the same order, of this account alone, also of one transaction."""
    with world.database.transaction() as transaction:
        stranger = create_account(transaction.session, "stranger").account_id
        for _ in range(7):
            write(transaction.session, world.account_id)
            write(transaction.session, stranger)
    whole = read(world, START)
    assert len(whole) == 7
    found, position = list[FeedEvent](), START
    while page := read(world, position, 2):
        found += page
        position = page[-1].position
    assert found == whole
    assert all((a.position.txid, a.message_id) < (b.position.txid, b.message_id) for a, b in pairwise(found))


def test_a_jobs_events_come_in_batches_from_where_the_reader_is(world: "World") -> None:
    """Each reader gets its own next ones in their order; what is not there gives none."""
    with world.database.transaction() as transaction:
        job = add_job(transaction.session, world.account_id, 1, state="processing")
        for _ in range(STREAM_BATCH + 2):
            emit_job_event(transaction.session, world.settings, job, "job.started")
    last, other = STREAM_BATCH + 2, new_id("job")
    wanted = [(job.job_id, 0), (job.job_id, last - 1), (job.job_id, last), (other, 0)]
    found = world.database.run(lambda tx: read_job_events(tx.session, wanted))
    assert {pair: [event.sequence for event in events] for pair, events in found.items()} == {
        (job.job_id, 0): list(range(1, STREAM_BATCH + 1)),
        (job.job_id, last - 1): [last],
        (job.job_id, last): [],
        (other, 0): [],
    }


def test_deletion_leaves_no_more_than_that_it_happened(world: "World") -> None:
    """An erased job's events keep id, type, number and place; results, names and metadata are gone, sends cancelled."""
    endpoint = world.endpoint("http://127.0.0.1:9/hook")
    kept, job = world.finish_job(2), world.finish_job(2, labels={"order": "secret"})
    before = read(world, START)
    assert world.database.run(lambda tx: erase_events(tx.session, job.job_id)) == 1
    after = read(world, START)
    assert [event.position for event in after] == [event.position for event in before]
    assert after[0].body == before[0].body
    event = json.loads(after[1].body)
    assert event["data"] == {"job_id": job.job_id, "sequence": 1, "redacted": True}
    assert (event["type"], event["timestamp"][:10]) == ("job.completed", json.loads(before[1].body)["timestamp"][:10])
    states = world.sql("SELECT m.job_id, d.state FROM webhook_delivery d JOIN webhook_message m USING (message_id)")
    assert dict(states) == {kept.job_id: "pending", job.job_id: "cancelled"}  # type: ignore[arg-type]
    assert world.database.run(lambda tx: erase_events(tx.session, job.job_id)) == 0
    with pytest.raises(Gone):
        world.database.run(
            lambda tx: redeliver(tx.session, world.account_id, endpoint.endpoint_id, after[1].message_id)
        )


@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_receivers_answered_is_forgotten(
    world: "World", engine: DeliveryEngine, receivers: "Receivers", monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """It may be what they were sent. The attempt stays on record, also one that ends after the erasure."""
    monkeypatch.setattr("arachne.net.client.is_public", lambda _address: True)
    job_ids: list[str] = []

    async def echo(request: web.Request) -> web.Response:
        if when == "before":
            await asyncio.to_thread(world.database.run, lambda tx: erase_events(tx.session, job_ids[0]))
        return web.Response(status=500, body=await request.read())

    world.endpoint((await receivers.start(echo)).url())
    job_ids.append(world.finish_job(result={"text": "hush"}).job_id)
    await engine.deliver_due()
    if when == "after":
        assert "hush" in str(world.sql("SELECT response FROM webhook_attempt"))
        world.database.run(lambda tx: erase_events(tx.session, job_ids[0]))
    assert world.sql("SELECT status_code, response FROM webhook_attempt") == [(500, None)]
    assert world.sql("SELECT state FROM webhook_delivery") == [("cancelled",)]
