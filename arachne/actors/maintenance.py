"""The periodic actors. Each is idempotent and safe to miss: the next one does what the last one did not."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import dramatiq
from dramatiq import Actor, Broker
from periodiq import cron

from arachne.actors.broker import MAINTENANCE
from arachne.cache import open_cache
from arachne.cache.audit import drop_stale
from arachne.complaints import Complaints
from arachne.database import Database
from arachne.errors import Unavailable
from arachne.jobs import retention
from arachne.jobs.account_erasure import continue_account_erasures
from arachne.jobs.erasure import continue_erasures
from arachne.jobs.reconcile import reconcile
from arachne.partitions import drop_partitions, ensure_partitions
from arachne.settings import Settings
from arachne.storage import Storage
from arachne.webhooks.retention import drop_unused_endpoints

log = logging.getLogger(__name__)
_complaints = Complaints(log)

USAGE_LOG_KEPT_DAYS = 400  # a year and a month, so that two like months can be compared
MAX_BATCHES = 1000  # of one step in one run
# Days of the week would be written 1-7: periodiq never fires for 0, `sun` and @weekly.
SCHEDULE = {
    "reconcile": "* * * * *",
    "erase": "* * * * *",
    "partitions": "7 * * * *",
    "forget": "17 * * * *",
    "retain": "*/10 * * * *",
}


@dataclass(frozen=True)
class Housekeeping:
    """The periodic work, by the name it has in the schedule."""

    database: Database
    settings: Settings
    storage: Storage

    def reconcile(self) -> None:
        """Pick up what is left lying."""
        reconcile(self.database, self.settings)
        continue_erasures(self.database, self.storage, self.settings)

    def erase(self) -> None:
        """Erase accounts of which administrators asked it; apart, since it may take many minutes."""
        continue_account_erasures(self.database, self.storage, self.settings)

    def partitions(self) -> None:
        """Make the days' partitions of the logs ahead, and drop those past keeping."""
        run, today = self.database.run, datetime.now(UTC).date()
        kept = {"webhook_attempt": timedelta(seconds=self.settings.event_retention_s),
                "api_usage_log": timedelta(days=USAGE_LOG_KEPT_DAYS)}  # fmt: skip
        self._each(
            lambda: run(ensure_partitions),
            *(partial(run, drop_partitions, table, before=today - age) for table, age in kept.items()),
        )

    def forget(self) -> None:
        """Forget idempotency keys and revoked tokens whose time is over."""
        self._each(lambda: self._in_batches(lambda: self.database.run(retention.forget_keys)))

    def retain(self) -> None:
        """Drop results, originals, events, tombstones and unused endpoints past their keeping."""
        run, settings = self.database.run, self.settings
        batches: list[Callable[[], int]] = [
            lambda: run(retention.expire_jobs),
            lambda: run(retention.drop_results, settings),
            lambda: run(retention.drop_events, settings),
            lambda: run(retention.bury_jobs, settings),
            lambda: run(lambda transaction: drop_unused_endpoints(transaction.session, retention.BATCH)),
        ]
        sweep = partial(retention.sweep_originals, self.database, self.storage, settings)
        self._each(*(partial(self._in_batches, step) for step in batches), sweep, self._prune_cache)

    def _prune_cache(self) -> None:
        """This machine's cache file keeps within its age and size, and holds nothing that was erased elsewhere."""
        cache = open_cache(self.settings)
        try:
            drop_stale(self.database, cache)
            cache.prune()
        finally:
            cache.close()

    def _in_batches(self, step: Callable[[], int]) -> None:
        for _ in range(MAX_BATCHES):
            if not step():
                return

    def _each(self, *steps: Callable[[], object]) -> None:
        """Every step is taken, whatever becomes of the others; what failed is logged and comes again next time."""
        for step in steps:
            try:
                step()
            except Unavailable as error:
                _complaints.tell("a step of housekeeping is left to the next time", error)
            except Exception:
                log.exception("a step of housekeeping failed; it is tried again next time")


def declare_maintenance(broker: Broker, work: Housekeeping | None) -> list[Actor[[], None]]:
    """The periodic actors; without `work` for the process that only sends their messages."""
    return [_declare(broker, name, getattr(work, name, _not_here)) for name in SCHEDULE]


def _declare(broker: Broker, name: str, work: Callable[[], None]) -> Actor[[], None]:
    options: dict[str, Any] = {"periodic": cron(SCHEDULE[name]), "max_retries": 0, "rate_limit": "6/minute"}

    @dramatiq.actor(broker=broker, actor_name=name, queue_name=MAINTENANCE, **options)
    def act() -> None:
        try:
            work()
        except Unavailable as error:
            _complaints.tell(f"{name} is left to the next time", error)

    return act


def _not_here() -> None:
    raise AssertionError("the scheduler only sends")
