"""News after a commit: told once it has committed and never before, many together, and by a connection that broke."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from threading import Event

import pytest
from sqlalchemy import text

from arachne import database as database_module
from arachne.announcer import JOBS_CHANNEL, Announcer, payloads
from arachne.database import AsyncDatabase, Database, Transaction, notifications
from arachne.ids import new_id
from arachne.news import News, news_of

Told = Callable[[], "asyncio.Future[str]"]


@pytest.fixture
def woken() -> Event:
    """Set when deliveries were said to be due."""
    return Event()


@pytest.fixture
def announcer(database_url: str, woken: Event) -> Iterator[Announcer]:
    """An announcer of this database."""
    running = Announcer(database_url, woken.set)
    yield running
    running.close()


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[AsyncIterator[str]]:
    """Notifications, once they are heard."""
    heard = notifications(url, JOBS_CHANNEL)
    assert await anext(heard) == ""
    yield heard
    await heard.aclose()  # type: ignore[attr-defined]


async def next_ids(heard: AsyncIterator[str]) -> set[str]:
    async with asyncio.timeout(10):
        return set((await anext(heard)).split(","))


def write(transaction: Transaction, job_id: str, *, deliveries: bool = False, fails: bool = False) -> None:
    transaction.session.execute(text("SELECT 1"))
    news = news_of(transaction.session)
    news.job_ids.add(job_id)
    news.deliveries |= deliveries
    if fails:
        raise RuntimeError


@pytest.mark.parametrize("is_async", [False, True])
async def test_what_committed_is_told_and_what_was_rolled_back_is_not(
    database_url: str, announcer: Announcer, woken: Event, is_async: bool
) -> None:
    """From threads and event loops alike; deliverers are woken only where deliveries were written."""
    first, second, failed = new_id("job"), new_id("job"), new_id("job")
    threads = Database(database_url, on_commit=announcer.tell)
    loop = AsyncDatabase(database_url, on_commit=announcer.tell)

    async def run(job_id: str, **how: bool) -> None:
        if is_async:
            await loop.run(write, job_id, **how)
        else:
            await asyncio.to_thread(threads.run, write, job_id, **how)

    async with listening(database_url) as heard:
        with pytest.raises(RuntimeError):
            await run(failed, deliveries=True, fails=True)
        await run(first)
        assert await next_ids(heard) == {first}
        assert not woken.is_set()
        await run(second, deliveries=True)
        assert await next_ids(heard) == {second}
        assert woken.is_set()
    threads.close()
    await loop.close()


def test_payloads_fit_however_many_jobs_there_are() -> None:
    """Postgres takes payloads of less than 8,000 bytes; each id is in one of them."""
    job_ids = {new_id("job") for _ in range(1001)}
    made = payloads(job_ids)
    assert all(len(payload.encode()) <= 7999 for payload in made)
    assert [one for payload in made for one in payload.split(",")] == sorted(job_ids)
    assert len(made) == 5
    assert payloads(set()) == []


async def test_broken_connections_are_made_anew(
    database_url: str, database: Database, announcer: Announcer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """News after a cut are told all the same; a listener that was cut off hears that it may have missed some."""
    monkeypatch.setattr(database_module, "_AGAIN_S", 0)
    async with listening(database_url) as heard:
        first, second = new_id("job"), new_id("job")
        announcer.tell(News({first}))
        assert await next_ids(heard) == {first}
        await asyncio.to_thread(database.run, cut, "SELECT pg_notify%")
        announcer.tell(News({second}))
        assert await next_ids(heard) == {second}
        await asyncio.to_thread(database.run, cut, "LISTEN%")
        async with asyncio.timeout(10):
            assert await anext(heard) == ""
        announcer.tell(News({first}))
        assert await next_ids(heard) == {first}


def cut(transaction: Transaction, query: str) -> None:
    """Whoever did this last is cut off."""
    found = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE :it AND pid <> pg_backend_pid()"
    transaction.session.execute(text(found), {"it": query})


def test_telling_never_waits_for_a_database_that_is_away(woken: Event) -> None:
    """Nor does closing wait for long; waking deliverers doesn't depend on it."""
    announcer = Announcer("postgresql://127.0.0.1:1/none", woken.set)
    announcer.tell(News({new_id("job")}, deliveries=True))
    assert woken.is_set()
    announcer.close()


class StoppedMeanwhile(Event):
    """A signal whose owner is told to stop, and the signal set, just before it is cleared for the first time."""

    def __init__(self, stopped: Event) -> None:
        super().__init__()
        self._stopped = stopped

    def clear(self) -> None:
        """Whoever stops us was faster."""
        if not self._stopped.is_set():
            self._stopped.set()
            self.set()
        super().clear()


def test_a_stop_while_news_are_taken_is_not_missed(database_url: str) -> None:
    """Whatever the moment in which it is told to stop, it ends."""
    announcer = Announcer(database_url, lambda: None)
    waits, announcer._signal = announcer._signal, StoppedMeanwhile(announcer._stopped)
    waits.set()  # what it began with; the next one is ours
    announcer.tell(News({new_id("job")}))
    announcer._thread.join(20)
    assert not announcer._thread.is_alive()
