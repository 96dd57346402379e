"""Reads that many want at once: few transactions, each key once, nobody refused for want of a connection."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

import pytest

from arachne.database import AsyncDatabase, Transaction
from arachne.errors import NotFound, Unavailable
from arachne.http import parts
from arachne.http.gathering import AT_ONCE, LANES, Gathered
from tests.http.conftest import Start
from tests.http.pictures import png
from tests.http.sending import ONE, send
from tests.http.worker import Worker

NEWCOMERS = 300
CONNECTIONS = 12


class SlowDatabase:
    """Runs what it is given when it is released; tells how many transactions there were and ran at once."""

    def __init__(self) -> None:
        self.began, self.release = asyncio.Event(), asyncio.Event()
        self.total = self.running = self.most = 0
        self.fault: Exception | None = None

    async def run(self, work: Callable[..., object], *args: object) -> object:
        """What `work` returns, after the release."""
        self.total, self.running = self.total + 1, self.running + 1
        self.most = max(self.most, self.running)
        self.began.set()
        await self.release.wait()
        self.running -= 1
        if self.fault is not None:
            raise self.fault
        return work(cast("Transaction", None), *args)


def gathered(database: SlowDatabase, read: Callable[[Transaction, int], int]) -> Gathered[int, int]:
    """Reads of numbers."""
    return Gathered(cast("AsyncDatabase", database), read)


async def test_those_who_come_while_reads_are_made_share_the_next() -> None:
    """However many come, some transactions run at once and the others' keys are read together, each once."""
    read: list[int] = []

    def double(_: Transaction, key: int) -> int:
        read.append(key)
        return key * 2

    database = SlowDatabase()
    reads = gathered(database, double)
    tasks = [asyncio.create_task(reads.get(n % NEWCOMERS)) for n in range(NEWCOMERS * 10)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    database.release.set()
    assert await asyncio.gather(*tasks) == [n % NEWCOMERS * 2 for n in range(NEWCOMERS * 10)]
    assert sorted(read) == list(range(NEWCOMERS))
    assert database.most <= LANES
    assert database.total <= LANES + NEWCOMERS // AT_ONCE + 1


async def test_nobody_is_told_what_was_read_before_they_asked() -> None:
    """Who asks for a key that is being read gets it from the next transaction."""
    database = SlowDatabase()
    reads = gathered(database, lambda _tx, key: key)
    tasks = []
    for _ in range(3):
        tasks.append(asyncio.create_task(reads.get(7)))
        await database.began.wait()
        database.began.clear()
    database.release.set()
    assert await asyncio.gather(*tasks) == [7, 7, 7]
    assert database.total == 3


async def test_faults_are_told_to_those_they_concern() -> None:
    """One key's fault is its own; a database that is away is told to all, and asked again afterwards."""

    def picky(_: Transaction, key: int) -> int:
        if key == 3:
            raise NotFound("There is no three.")
        return key

    database = SlowDatabase()
    database.release.set()
    reads = gathered(database, picky)
    found = await asyncio.gather(*(reads.get(n) for n in range(5)), return_exceptions=True)
    assert [str(one) for one in found] == ["0", "1", "2", "There is no three.", "4"]
    database.fault = Unavailable("away")
    assert all(
        isinstance(one, Unavailable)
        for one in await asyncio.gather(*(reads.get(n) for n in range(5)), return_exceptions=True)
    )
    database.fault = None
    assert await reads.get(1) == 1


async def test_whoever_leaves_takes_nothing_from_the_others() -> None:
    """A reader who is cancelled leaves the read to those who want the same."""
    database = SlowDatabase()
    reads = gathered(database, lambda _tx, key: key)
    leaving, staying = asyncio.create_task(reads.get(1)), asyncio.create_task(reads.get(1))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    database.release.set()
    assert await staying == 1


async def test_hundreds_of_streams_at_once_are_served_on_few_connections(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a dozen connections, none of which anybody may wait for, no newcomer is refused."""

    def impatient(url: str, **options: object) -> AsyncDatabase:
        database = AsyncDatabase(url, pool_size=CONNECTIONS, **options)  # type: ignore[arg-type]  # passed on
        monkeypatch.setattr(database.engine.sync_engine.pool, "_timeout", 0.001)
        return database

    monkeypatch.setattr(parts, "AsyncDatabase", impatient)
    async with start(read_rate_limit="100000/minute") as service:
        await service.account()
        worker = await Worker(service).start()
        job_id = (await send(service, ONE, files={"file": ("a.png", png())})).json()["job_id"]
        await worker.read_all()
        headers = await service.headers()
        ask = partial(service.client.get, f"/api/extract/image-jobs/{job_id}/events", headers=headers, timeout=600)
        answers = await asyncio.gather(*(ask() for _ in range(NEWCOMERS)))
    assert {answer.status_code for answer in answers} == {200}
    assert all("event: job.completed" in answer.text for answer in answers)
