"""Waiting for jobs: all long polls and streams of this process are served by one look a tick, however many there are.

A notification names the jobs that moved, and only those are looked at; one that was lost is made up for by a look at
all of them every now and then.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from arachne.announcer import JOBS_CHANNEL
from arachne.database import AsyncDatabase, Transaction, notifications
from arachne.errors import ArachneError, Unavailable
from arachne.http.gathering import Gathered
from arachne.jobs.views import IS_SHOWN, find_job
from arachne.schemas.job import TERMINAL
from arachne.webhooks.history import JobEvent, read_job_events

log = logging.getLogger(__name__)
PAUSE_S = 0.05  # between two looks: what is notified meanwhile is looked at together
TICK_S = 2.0
AGAIN_S = 1.0
MAX_WAIT_S = 60
MAX_SUBSCRIPTIONS = 10_000
EVENTFUL = 64  # jobs whose events are read in one look; the others' come in the next
_STANDS = text(f"""
SELECT job_id, sequence, state, completed, failed, cancelled, cached, degraded FROM job
WHERE job_id = ANY(:job_ids) AND {IS_SHOWN}
""")  # noqa: S608  # a condition of our own
Wanted = tuple[str, int | None]
"""A job, and the sequence number after which its events are wanted; None where only its stand is."""


class Stand(NamedTuple):
    """A job's status and progress, by which polls tell whether anything happened."""

    state: str
    completed: int
    failed: int
    cancelled: int
    cached: int
    degraded: int

    @property
    def finished(self) -> bool:
        """Whether the state is terminal."""
        return self.state in TERMINAL


class Sight(NamedTuple):
    """What a look found: the job's stand, None once it is gone; its last event's number; the next ones wanted."""

    stand: Stand | None
    sequence: int = 0
    events: tuple[JobEvent, ...] = ()


@dataclass(eq=False)
class Subscription:
    """Somebody's interest in a job. It is looked at only while its owner waits, so a slow one holds one sight."""

    job_id: str
    after: int | None
    waits: bool = False
    missed: bool = True
    sight: Sight | None = None
    seen: asyncio.Event = field(default_factory=asyncio.Event)


class JobWatcher:
    """Looks at the jobs somebody waits for when they move, and wakes the waiters."""

    def __init__(self, database: AsyncDatabase, *, tick_s: float = TICK_S, pause_s: float = PAUSE_S) -> None:
        self._database = database
        self._stands = Gathered(database, _find_stand)
        self._tick_s = tick_s
        self._pause_s = pause_s
        self._of_job: dict[str, set[Subscription]] = {}
        self._count = 0
        self._stale: set[Subscription] = set()
        self._wanted = asyncio.Event()
        self.draining = False

    @property
    def count(self) -> int:
        """Number of subscriptions."""
        return self._count

    async def look_up(self, account_id: str, job_id: str, tombstone_s: float) -> Sight:
        """How the account's job stands now, and its last event's number.

        Raises:
            NotFound: the account has no such job, or has had none for longer than `tombstone_s`.
            Gone: it was deleted or has expired.
        """
        return await self._stands.get((account_id, job_id, tombstone_s))

    def drain(self) -> None:
        """Let all waits end now: the process is about to stop."""
        self.draining = True
        for subscriptions in self._of_job.values():
            for subscription in subscriptions:
                subscription.sight = None
                subscription.seen.set()

    @contextmanager
    def subscribe(self, job_id: str, after: int | None = None) -> Iterator[Subscription]:
        """An interest in a job, to its end; in its events too where `after` says from which number on.

        Raises:
            Unavailable: too many wait already.
        """
        if self._count >= MAX_SUBSCRIPTIONS:
            raise Unavailable("Too many clients wait for jobs here; try again in a moment.", retry_after_s=5)
        subscription = Subscription(job_id, after)
        self._of_job.setdefault(job_id, set()).add(subscription)
        self._count += 1
        try:
            yield subscription
        finally:
            self._count -= 1
            self._stale.discard(subscription)
            self._of_job[job_id].discard(subscription)
            if not self._of_job[job_id]:
                del self._of_job[job_id]

    async def next_sight(self, subscription: Subscription, timeout_s: float) -> Sight | None:
        """What the next look finds; None where there is none within `timeout_s`, or all waits are to end."""
        subscription.seen.clear()
        subscription.sight = None
        subscription.waits = True
        if subscription.missed:
            self._put(subscription)
        try:
            async with asyncio.timeout(timeout_s):
                if not self.draining:
                    await subscription.seen.wait()
        except TimeoutError:
            return None
        finally:
            subscription.waits = False
        return subscription.sight

    async def wait(self, job_id: str, until: Callable[[Stand], bool], timeout_s: float) -> None:
        """Return when `until` holds for the job as it stands, when it is gone, or after `timeout_s`.

        At once where too many wait already: what is answered is right without waiting, too.
        """
        if self._count >= MAX_SUBSCRIPTIONS:
            return
        clock = asyncio.get_running_loop().time
        ends_s = clock() + timeout_s
        with self.subscribe(job_id) as subscription:
            while (left_s := ends_s - clock()) > 0:
                sight = await self.next_sight(subscription, left_s)
                if sight is None or sight.stand is None or until(sight.stand):
                    return

    def tell(self, job_ids: Iterable[str] | None = None) -> None:
        """These jobs have moved, or any may have."""
        for job_id in list(self._of_job) if job_ids is None else job_ids:
            for subscription in self._of_job.get(job_id, ()):
                subscription.missed = True
                if subscription.waits:
                    self._put(subscription)

    async def follow(self) -> None:
        """Hear of jobs that have moved, until cancelled."""
        while True:
            try:
                async for payload in notifications(self._database.url, JOBS_CHANNEL):
                    self.tell(payload.split(",") if payload else None)
            except Exception:  # whatever it is, the looks at all of them go on meanwhile
                log.exception("notifications can't be heard; jobs are looked at every %g s", self._tick_s)
            await asyncio.sleep(AGAIN_S)

    async def run(self) -> None:
        """Look at what moved while anybody waits, and at all of it once a tick, until cancelled."""
        clock = asyncio.get_running_loop().time
        tick_at_s = clock() + self._tick_s
        while True:
            try:
                async with asyncio.timeout_at(tick_at_s if self._of_job else None):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            if clock() >= tick_at_s:
                self.tell()
                tick_at_s = clock() + self._tick_s
            self._wanted.clear()
            await asyncio.sleep(self._pause_s if await self._look() else AGAIN_S)

    def _put(self, subscription: Subscription) -> None:
        self._stale.add(subscription)
        self._wanted.set()

    async def _look(self) -> bool:
        """Whether the jobs of stale subscriptions could be looked at."""
        looked, self._stale = {one for one in self._stale if one.waits}, set()
        for subscription in looked:
            subscription.missed = False
        found: dict[Wanted, Sight] = {}
        try:
            if looked:
                found = await self._database.run(read_sights, {(one.job_id, one.after) for one in looked})
        except (ArachneError, SQLAlchemyError) as error:
            log.warning("waiting jobs could not be looked at: %s", error)
        except Exception:  # whatever it is, the next look may pass, and without one every poll waits in vain
            log.exception("waiting jobs could not be looked at")
        for subscription in looked:
            self._show(subscription, found.get((subscription.job_id, subscription.after)))
        return bool(found) or not looked

    def _show(self, subscription: Subscription, sight: Sight | None) -> None:
        if sight is not None and subscription.waits and not self.draining:
            subscription.sight = sight
            subscription.seen.set()
            return
        subscription.missed = True
        if subscription.waits:
            self._put(subscription)


def _find_stand(transaction: Transaction, wanted: tuple[str, str, float]) -> Sight:
    job = find_job(transaction, *wanted)
    stand = Stand(job.state, job.completed, job.failed, job.cancelled, job.cached, job.degraded)
    return Sight(stand, job.sequence)


def read_sights(transaction: Transaction, wanted: Collection[Wanted]) -> dict[Wanted, Sight]:
    """How these jobs stand, with their next events where some are wanted; those there was no room for are left out."""
    rows = transaction.session.execute(_STANDS, {"job_ids": sorted({job_id for job_id, _ in wanted})})
    known = {row.job_id: Sight(Stand(*row[2:]), row.sequence) for row in rows}
    sights = {pair: known.get(pair[0], Sight(None)) for pair in wanted}
    behind = [
        (job_id, after) for (job_id, after), sight in sights.items() if after is not None and after < sight.sequence
    ]
    if not behind:
        return sights
    events = read_job_events(transaction.session, behind[:EVENTFUL])
    for pair in behind:
        if pair in events:
            sights[pair] = sights[pair]._replace(events=tuple(events[pair]))
        else:
            del sights[pair]
    return sights
