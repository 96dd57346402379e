"""Waiting for jobs: thousands wait at the cost of one look; a lost notification makes it late, and no worse."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
from sqlalchemy import event
from sqlalchemy.pool import QueuePool

from arachne.accounts import create_account
from arachne.announcer import Announcer
from arachne.database import AsyncDatabase, Database, Transaction
from arachne.errors import Unavailable
from arachne.http import waiting
from arachne.http.waiting import EVENTFUL, JobWatcher, Sight
from arachne.schemas.tables import Job
from arachne.settings import Settings
from arachne.webhooks.history import STREAM_BATCH, JobEvent
from arachne.webhooks.outbox import emit_job_event
from tests.core.webhooks.conftest import add_job

LIMIT_S = 20


def add_jobs(transaction: Transaction, number: int) -> list[str]:
    """Ids of new jobs that are being worked on."""
    account_id = create_account(transaction.session, "acme").account_id
    changes = {"state": "processing", "completed": 0}
    return [add_job(transaction.session, account_id, 1, **changes).job_id for _ in range(number)]


def move(transaction: Transaction, job_ids: list[str], settings: Settings, *, finish: bool = False) -> None:
    """An event of each of these jobs."""
    for job_id in job_ids:
        job = transaction.session.get_one(Job, job_id, with_for_update=True)
        if finish:
            job.state, job.completed = "completed", 1
            transaction.session.flush()
        emit_job_event(transaction.session, settings, job, "job.completed" if finish else "job.started")


@pytest.fixture
def told(database_url: str) -> Iterator[Database]:
    """A writer whose commits are announced."""
    announcer = Announcer(database_url, lambda: None)
    database = Database(database_url, on_commit=announcer.tell)
    yield database
    announcer.close()
    database.close()


@asynccontextmanager
async def running(watcher: JobWatcher, *, follows: bool = True) -> AsyncIterator[None]:
    """The watcher at work, with or without ears for notifications."""
    tasks = [asyncio.create_task(watcher.run())] + [asyncio.create_task(watcher.follow())] * follows
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def counted(database: AsyncDatabase) -> Iterator[list[str]]:
    """The statements that are executed meanwhile."""
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    yield statements
    event.remove(database.engine.sync_engine, "before_cursor_execute", note)


async def follow(watcher: JobWatcher, job_id: str, number: int) -> list[JobEvent]:
    """The first events of a job, as a stream reads them."""
    found: list[JobEvent] = []
    with watcher.subscribe(job_id, 0) as subscription:
        while len(found) < number:
            sight = await watcher.next_sight(subscription, LIMIT_S)
            assert sight is not None
            found += sight.events
            subscription.after = found[-1].sequence if found else 0
    return found


async def until_waiting(watcher: JobWatcher, number: int) -> None:
    """Return once so many have been looked at and wait for more."""
    async with asyncio.timeout(LIMIT_S):
        while watcher.count < number or any(one.missed for one in everybody(watcher)) or is_looking(watcher):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def is_looking(watcher: JobWatcher) -> bool:
    pool = watcher._database.engine.pool
    assert isinstance(pool, QueuePool)
    return pool.checkedout() > 0


def everybody(watcher: JobWatcher) -> list[waiting.Subscription]:
    return [one for subscriptions in watcher._of_job.values() for one in subscriptions]


async def test_a_thousand_that_wait_cost_a_handful_of_queries(
    async_database: AsyncDatabase, told: Database, settings: Settings
) -> None:
    """600 polls and 600 streams of 300 jobs ask nothing while nothing moves; when all do, a few looks serve them."""
    job_ids = await asyncio.to_thread(told.run, add_jobs, 300)
    watcher = JobWatcher(async_database, tick_s=3600)
    async with running(watcher):
        polls = [
            asyncio.create_task(watcher.wait(job_id, lambda stand: stand.finished, LIMIT_S)) for job_id in job_ids * 2
        ]
        streams = [asyncio.create_task(follow(watcher, job_id, 1)) for job_id in job_ids * 2]
        await until_waiting(watcher, 1200)
        with counted(async_database) as statements:
            await asyncio.sleep(4 * waiting.PAUSE_S)
            assert statements == []
            await asyncio.to_thread(told.run, move, job_ids, settings, finish=True)
            found = await asyncio.gather(*streams)
            await asyncio.gather(*polls)
        assert {one.type for events in found for one in events} == {"job.completed"}
        # One read of the stands a look and one of the events of so many jobs; a few more where news came in parts.
        assert len(statements) <= 2 * (len(job_ids) / EVENTFUL + 8)
    assert watcher.count == 0


async def test_a_lost_notification_costs_a_tick(
    async_database: AsyncDatabase, database: Database, settings: Settings
) -> None:
    """Without any notification a change is seen at the next look at everything, by polls and streams."""
    [job_id] = database.run(add_jobs, 1)
    watcher = JobWatcher(async_database, tick_s=0.2)
    async with running(watcher, follows=False):
        poll = asyncio.create_task(watcher.wait(job_id, lambda stand: stand.finished, LIMIT_S))
        stream = asyncio.create_task(follow(watcher, job_id, 1))
        await until_waiting(watcher, 2)
        await asyncio.to_thread(database.run, move, [job_id], settings, finish=True)
        [event] = await stream
        await poll
    assert (event.type, event.sequence) == ("job.completed", 1)


async def test_others_news_put_no_tick_off(
    async_database: AsyncDatabase, database: Database, settings: Settings
) -> None:
    """However often other jobs are told of, everything is looked at once a tick."""
    quiet, busy = database.run(add_jobs, 2)
    watcher = JobWatcher(async_database, tick_s=0.2, pause_s=0.01)

    async def chatter() -> None:
        while True:
            watcher.tell([busy])
            await asyncio.sleep(0.01)

    async with running(watcher, follows=False):
        noise = [asyncio.create_task(chatter()), asyncio.create_task(watcher.wait(busy, lambda _: False, LIMIT_S))]
        stream = asyncio.create_task(follow(watcher, quiet, 1))
        await until_waiting_for(watcher, quiet)
        await asyncio.to_thread(database.run, move, [quiet], settings)
        assert len(await stream) == 1
        for task in noise:
            task.cancel()
        await asyncio.gather(*noise, return_exceptions=True)


async def until_waiting_for(watcher: JobWatcher, job_id: str) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not any(one.job_id == job_id and not one.missed for one in everybody(watcher)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_slow_reader_holds_one_batch_and_misses_nothing(
    async_database: AsyncDatabase, told: Database, settings: Settings
) -> None:
    """What happens while a reader is busy is neither kept for it nor lost: it comes in batches when it asks."""
    [job_id] = await asyncio.to_thread(told.run, add_jobs, 1)
    watcher = JobWatcher(async_database, tick_s=3600)
    number = 2 * STREAM_BATCH + 3
    async with running(watcher):
        with watcher.subscribe(job_id, 0) as subscription:
            await asyncio.to_thread(told.run, move, [job_id] * number, settings)
            sizes, sequences = [], []
            while len(sequences) < number:
                sight = await watcher.next_sight(subscription, LIMIT_S)
                assert sight is not None
                sizes.append(len(sight.events))
                sequences += [one.sequence for one in sight.events]
                subscription.after = sequences[-1]
                subscription.missed = True
                await asyncio.sleep(0)  # busy with sending
    assert sequences == list(range(1, number + 1))
    assert max(sizes) <= STREAM_BATCH


async def test_news_between_two_waits_are_seen_by_the_next(
    async_database: AsyncDatabase, database: Database, settings: Settings
) -> None:
    """A notification that comes while nobody waits yet, or just now not, is not forgotten."""
    [job_id] = database.run(add_jobs, 1)
    watcher = JobWatcher(async_database, tick_s=3600)
    async with running(watcher, follows=False):
        with watcher.subscribe(job_id, 0) as subscription:
            first = await watcher.next_sight(subscription, LIMIT_S)
            assert first is not None
            assert first.events == ()
            await asyncio.to_thread(database.run, move, [job_id], settings)
            watcher.tell([job_id])
            second = await watcher.next_sight(subscription, LIMIT_S)
            assert second is not None
            assert [one.sequence for one in second.events] == [1]


async def test_draining_ends_every_wait_at_once(async_database: AsyncDatabase, database: Database) -> None:
    """Polls and streams end when the process is about to stop, those that begin then too."""
    [job_id] = database.run(add_jobs, 1)
    watcher = JobWatcher(async_database)
    async with running(watcher):
        waits = [asyncio.create_task(watcher.wait(job_id, lambda _: False, 3600)) for _ in range(3)]
        await until_waiting(watcher, 3)
        watcher.drain()
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(*waits)
            await watcher.wait(job_id, lambda _: False, 3600)
    assert watcher.count == 0


async def test_what_is_gone_ends_the_wait(async_database: AsyncDatabase, database: Database) -> None:
    """A job that was deleted, or never was, is no job to wait for."""
    watcher = JobWatcher(async_database)
    async with running(watcher), asyncio.timeout(LIMIT_S):
        await watcher.wait("job_none", lambda _: False, 3600)
        with watcher.subscribe("job_none", 0) as subscription:
            assert await watcher.next_sight(subscription, 3600) == Sight(None)


async def test_waiters_are_bounded(async_database: AsyncDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream more than there is room for is told to come again, a poll is answered at once; who leaves makes room."""
    monkeypatch.setattr(waiting, "MAX_SUBSCRIPTIONS", 1)
    watcher = JobWatcher(async_database)
    with watcher.subscribe("job_a"):
        await asyncio.wait_for(watcher.wait("job_a", lambda _: False, 3600), LIMIT_S)
        with pytest.raises(Unavailable), watcher.subscribe("job_a"):
            pass
    with watcher.subscribe("job_a"):
        assert watcher.count == 1
