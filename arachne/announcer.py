"""News after a commit: a notification in Postgres that names the jobs, and a wake-up for whoever sends webhooks.

A notification inside the transaction that writes would make the writers' commits wait for each other. So it goes out
afterwards, on a connection and a thread of its own. One that is lost costs time only: whoever waits looks by itself.
"""

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from threading import Event, Lock, Thread

from psycopg import Connection
from psycopg import Error as PsycopgError

from arachne.database import CONNECT_TIMEOUT_S, plain_url
from arachne.news import News

log = logging.getLogger(__name__)

JOBS_CHANNEL = "arachne_jobs"
COALESCE_S = 0.05
AGAIN_S = 1.0
IDS_AT_ONCE = 250  # of 30 bytes and a comma each: a payload has room for 7,999 bytes
_NOTIFY = "SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) AS payload"


class Announcer:
    """Tells news from a thread of its own; `tell` costs microseconds, whatever becomes of the connection."""

    def __init__(self, url: str, wake_deliveries: Callable[[], object]) -> None:
        self._url = plain_url(url)
        self._wake_deliveries = wake_deliveries
        self._job_ids: set[str] = set()
        self._lock = Lock()
        self._signal = Event()
        self._stopped = Event()
        self._connection: Connection | None = None
        self._thread = Thread(target=self._run, name="arachne-announcer", daemon=True)
        self._thread.start()

    def tell(self, news: News) -> None:
        """Have the news told soon, many together."""
        if news.deliveries:
            self._wake_deliveries()
        if news.job_ids:
            with self._lock:
                self._job_ids |= news.job_ids
            self._signal.set()

    def close(self) -> None:
        """Tell what is left, if the database lets us, and end."""
        self._stopped.set()
        self._signal.set()
        self._thread.join(2 * CONNECT_TIMEOUT_S)

    def _run(self) -> None:
        while True:
            self._signal.wait()
            self._signal.clear()
            last = self._stopped.is_set()  # asked after clearing: whoever stops us later sets the signal anew
            with self._lock:
                job_ids, self._job_ids = self._job_ids, set()
            told = self._send(payloads(job_ids)) if job_ids else True
            if last:
                break
            self._stopped.wait(COALESCE_S if told else AGAIN_S)
        self._disconnect()

    def _send(self, texts: list[str]) -> bool:
        """Whether it was told, at once or on a new connection; what was not is forgotten."""
        for _ in range(2):
            try:
                if self._connection is None:
                    self._connection = Connection.connect(self._url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S)
                self._connection.execute(_NOTIFY, (JOBS_CHANNEL, texts))
            except (PsycopgError, OSError) as error:
                self._disconnect()
                fault = error
            else:
                return True
        log.warning("jobs' news are not notified, whoever waits for them looks by itself: %s", fault)
        return False

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def payloads(job_ids: set[str]) -> list[str]:
    """The ids, joined with commas, in as few payloads as hold them."""
    left = iter(sorted(job_ids))

    def parts() -> Iterator[str]:
        while part := list(islice(left, IDS_AT_ONCE)):
            yield ",".join(part)

    return list(parts())
