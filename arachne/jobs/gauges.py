"""The queue as a whole, looked at when Prometheus asks: by one process, so that no sum counts it twice."""

import logging
from collections.abc import Iterator
from threading import Lock

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import text

from arachne.complaints import Complaints
from arachne.database import Database, Transaction
from arachne.errors import Unavailable
from arachne.metrics import family

log = logging.getLogger(__name__)
_complaints = Complaints(log)
KINDS = ("gpu", "io")
OPEN = ("fetching", "queued", "parked", "running")
_PATIENCE_S = 2.0
_OF = "scheduler"

QUEUE_IMAGES = family("arachne_queue_images", _OF, "Images that have not ended, by state", "state")
QUEUE_OLDEST = family("arachne_queue_oldest_seconds", _OF, "Age of the oldest of them since its submission", "state")
PENDING = family("arachne_deliveries_pending", _OF, "Webhooks still to be sent, those that wait for a retry included")
OVERDUE = family("arachne_delivery_overdue_seconds", _OF, "How long the webhook that is due longest has been so")
WORKERS = family("arachne_workers", _OF, "Workers with a beat within LEASE_S, by kind", "kind")

# A branch a state, since each has an index of its own and one condition over them all would use none.
_IMAGES = text(
    " UNION ALL ".join(
        f"SELECT '{state}' AS state, count(*) AS images,"  # noqa: S608  # the states are ours
        " coalesce(extract(epoch FROM now() - min(job.created_at)), 0)::float8 AS oldest_s"
        f" FROM image JOIN job USING (job_id) WHERE image.state = '{state}'"
        for state in OPEN
    )
)
_DELIVERIES = text("""
SELECT count(*) AS pending,
       coalesce(extract(epoch FROM now() - least(min(next_attempt_at), now())), 0)::float8 AS overdue_s
FROM webhook_delivery WHERE state = 'pending'
""")
_WORKERS = text("""
SELECT kind, count(*) AS n FROM worker WHERE beat_at > now() - make_interval(secs => :lease_s) GROUP BY kind
""")


class QueueGauges(Collector):
    """Gauges of the whole queue; none while the database can't be asked."""

    def __init__(self, database_url: str, lease_s: float) -> None:
        self._database = Database(database_url, pool_size=1)
        self._lease_s = lease_s
        self._lock = Lock()

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """What there is, told without asking the database."""
        return (make() for make in (QUEUE_IMAGES, QUEUE_OLDEST, PENDING, OVERDUE, WORKERS))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """How things stand; one look at a time, so that a slow database isn't asked by many."""
        if not self._lock.acquire(timeout=_PATIENCE_S):
            return
        try:
            yield from self._database.run(_look, self._lease_s)
        except Unavailable as error:
            _complaints.tell("the queue can't be measured", error)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the connection."""
        self._database.close()


def _look(transaction: Transaction, lease_s: float) -> list[GaugeMetricFamily]:
    execute = transaction.session.execute
    images, oldest, pending, overdue, workers = QUEUE_IMAGES(), QUEUE_OLDEST(), PENDING(), OVERDUE(), WORKERS()
    for row in execute(_IMAGES):
        images.add_metric([row.state], row.images)
        oldest.add_metric([row.state], row.oldest_s)
    deliveries = execute(_DELIVERIES).one()
    pending.add_metric([], deliveries.pending)
    overdue.add_metric([], deliveries.overdue_s)
    living: dict[str, int] = {row.kind: row.n for row in execute(_WORKERS, {"lease_s": lease_s})}
    for kind in KINDS:
        workers.add_metric([kind], living.get(kind, 0))
    return [images, oldest, pending, overdue, workers]
