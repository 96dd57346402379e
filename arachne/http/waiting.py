"""Waiting for jobs: all long polls of this process are served by one query a tick, however many there are."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from arachne.database import AsyncDatabase, Transaction
from arachne.errors import ArachneError
from arachne.schemas.job import TERMINAL

log = logging.getLogger(__name__)
TICK_S = 0.15
MAX_WAIT_S = 60
_STANDS = text("""
SELECT job_id, state, completed, failed, cancelled, cached, degraded FROM job WHERE job_id = ANY(:job_ids)
""")


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


class JobWatcher:
    """Looks at the jobs somebody waits for, once a tick, and wakes the waiters."""

    def __init__(self, database: AsyncDatabase, *, tick_s: float = TICK_S) -> None:
        self._database = database
        self._tick_s = tick_s
        self._waited: Counter[str] = Counter()
        self._stands: dict[str, Stand] = {}
        self._looked = asyncio.Event()
        self._wanted = asyncio.Event()
        self._draining = False

    def drain(self) -> None:
        """Let all waits end now: the process is about to stop."""
        self._draining = True
        self._looked.set()

    async def wait(self, job_id: str, until: Callable[[Stand], bool], timeout_s: float) -> None:
        """Return when `until` holds for the job as it stands, or after `timeout_s`."""
        self._waited[job_id] += 1
        self._wanted.set()
        try:
            async with asyncio.timeout(timeout_s):
                while not self._draining:
                    await self._looked.wait()  # a new event each look, so this is always the next one
                    stand = self._stands.get(job_id)
                    if stand is not None and until(stand):
                        return
        except TimeoutError:
            return
        finally:
            self._waited[job_id] -= 1
            if not self._waited[job_id]:
                del self._waited[job_id]
                self._stands.pop(job_id, None)

    async def run(self) -> None:
        """Look once a tick while anybody waits, until cancelled."""
        while True:
            await self._wanted.wait()
            if not self._waited:
                self._wanted.clear()
                continue
            try:
                await self._look()
            except (ArachneError, SQLAlchemyError) as error:
                log.warning("waiting jobs could not be looked at: %s", error)
            except Exception:  # whatever it is, the next look may pass, and without one every poll waits in vain
                log.exception("waiting jobs could not be looked at")
            await asyncio.sleep(self._tick_s)

    async def _look(self) -> None:
        found = await self._database.run(read_stands, list(self._waited))
        self._stands.update({job_id: stand for job_id, stand in found.items() if job_id in self._waited})
        looked, self._looked = self._looked, asyncio.Event()
        looked.set()


def read_stands(transaction: Transaction, job_ids: list[str]) -> dict[str, Stand]:
    """How these jobs stand."""
    rows = transaction.session.execute(_STANDS, {"job_ids": job_ids})
    return {row.job_id: Stand(*row[1:]) for row in rows}
