"""What is erased in PostgreSQL leaves the file of this machine within seconds, whoever erased it and wherever."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from threading import Event, Thread
from time import monotonic

from sqlalchemy import text

from arachne.cache.audit import drop_stale
from arachne.cache.local import VisionCache
from arachne.complaints import Complaints
from arachne.database import Database, Transaction
from arachne.errors import Unavailable

log = logging.getLogger(__name__)
_complaints = Complaints(log)
TICK_S = 5.0
WHOLE_S = 3600.0
# Each erasure is looked at for so long: a result that was finished before it may be put into the file after it.
OVERLAP_S = 300.0
_ERASED = text("""
SELECT result_id FROM erased_result
WHERE erased_at > CAST(:since AS timestamptz) - make_interval(secs => :overlap_s) ORDER BY result_id
""")
_NOW = text("SELECT now()")


class ErasureWatch:
    """Drops erased results from a cache that a process has open: new ones every few seconds, any once an hour."""

    def __init__(self, database: Database, cache: VisionCache, *, tick_s: float = TICK_S) -> None:
        self._database = database
        self._cache = cache
        self._tick_s = tick_s
        self._since: datetime | None = None
        self._whole_at_s = 0.0
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="arachne-erasures", daemon=True)

    def start(self) -> None:
        """Watch from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no more."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> int:
        """Number of results dropped just now.

        Raises:
            Unavailable: the database can't be reached.
        """
        now = self._database.run(_read_clock)
        if self._since is None or monotonic() >= self._whole_at_s:
            dropped = drop_stale(self._database, self._cache)
            self._whole_at_s = monotonic() + WHOLE_S
        else:
            dropped = self._cache.drop(self._database.run(_find_erased, self._since))
        self._since = now
        return dropped

    def _run(self) -> None:
        while not self._stopped.wait(self._tick_s):
            try:
                self.look()
            except Unavailable as error:
                _complaints.tell("erased results leave the cache later", error)
            except Exception:  # whatever it is, the next look may pass
                log.exception("erased results could not be looked for; it is tried again")


@contextmanager
def watching(database: Database, cache: VisionCache) -> Iterator[None]:
    """What is erased leaves the cache meanwhile."""
    watch = ErasureWatch(database, cache)
    watch.start()
    try:
        yield
    finally:
        watch.stop()


def _read_clock(transaction: Transaction) -> datetime:
    found: datetime = transaction.session.scalars(_NOW).one()
    return found


def _find_erased(transaction: Transaction, since: datetime) -> list[str]:
    return list(transaction.session.scalars(_ERASED, {"since": since, "overlap_s": OVERLAP_S}))
