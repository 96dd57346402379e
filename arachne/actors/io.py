"""`arachne worker io`: fetches images, delivers webhooks and keeps house, woken by messages and by its own ticks."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from time import monotonic

from arachne.actors.broker import FETCHES, MAINTENANCE, WEBHOOKS, make_broker, require_redis_url
from arachne.actors.fetches import FetchThread
from arachne.actors.heartbeat import Heartbeat
from arachne.actors.maintenance import Housekeeping, declare_maintenance
from arachne.actors.residence import run_until_signal, working
from arachne.actors.wake import WAKE_FETCHES, WAKE_WEBHOOKS, Waker, declare_wake
from arachne.announcer import Announcer
from arachne.complaints import Complaints
from arachne.database import AsyncDatabase, Database
from arachne.errors import SetupError, Unavailable
from arachne.jobs.erasure import continue_erasures
from arachne.jobs.reconcile import reconcile
from arachne.secretbox import open_secret_box
from arachne.settings import Settings
from arachne.storage import start_storage
from arachne.webhooks.delivery import DeliveryEngine

log = logging.getLogger(__name__)
_complaints = Complaints(log)
KIND = "io"
WORKER_TIMEOUT_MS = 20
WORKER_THREADS = 4
POOL_SIZE = 4
TICK_S = 2.0
THOROUGH_S = 60.0


def run(settings: Settings) -> None:
    """Fetch, deliver and keep house until SIGTERM or SIGINT.

    Raises:
        SetupError: something this worker needs is missing; says what.
    """
    if settings.database_url is None:
        raise SetupError("Set ARACHNE_DATABASE_URL, or run `arachne up`, which brings its own.")
    require_redis_url(settings)
    storage = asyncio.run(start_storage(settings))
    deliveries = Deliveries(settings, lambda: heartbeat.worker_id)
    announcer = Announcer(settings.database_url, deliveries.wake)
    database = Database(settings.database_url, pool_size=POOL_SIZE, on_commit=announcer.tell)
    waker = Waker(settings)
    heartbeat = Heartbeat(settings.database_url, KIND)
    fetches = FetchThread(
        settings, storage, heartbeat, queued=waker.wake_gpu, on_commit=announcer.tell, on_failure=deliveries.stop
    )
    ticker = Ticker(Housekeeping(database, settings, storage), waker, deliveries)
    try:
        with listening(settings, deliveries.wake, fetches.wake, ticker.work):
            ticker.start()
            fetches.start()
            run_until_signal(deliveries.run, deliveries.stop)
            fetches.check()
    finally:
        fetches.stop()
        ticker.stop()
        announcer.close()
        waker.close()
        database.close()


@contextmanager
def listening(
    settings: Settings, deliver: Callable[[], object], fetch: Callable[[], object], work: Housekeeping
) -> Iterator[None]:
    """Wake-ups and periodic messages from Redis are acted on meanwhile. Without Redis there are none."""
    broker = make_broker(settings)
    declare_wake(broker, WAKE_WEBHOOKS, deliver)
    declare_wake(broker, WAKE_FETCHES, fetch)
    declare_maintenance(broker, work)
    with working(broker, {WEBHOOKS, FETCHES, MAINTENANCE}, timeout_ms=WORKER_TIMEOUT_MS, threads=WORKER_THREADS):
        yield


class Deliveries:
    """The delivery engine with an event loop of its own; `wake` and `stop` are for other threads."""

    def __init__(self, settings: Settings, worker_id: Callable[[], str]) -> None:
        self._settings = settings
        self._worker_id = worker_id
        self._box = open_secret_box(settings)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._engine: DeliveryEngine | None = None

    def wake(self) -> None:
        """Look for due deliveries now."""
        if self._engine is not None:
            self._engine.wake()

    def stop(self) -> None:
        """End when what is being sent has been sent, or soon."""
        with suppress(RuntimeError):  # the loop is closed: it has ended
            self._loop.call_soon_threadsafe(self._stop.set)

    def run(self) -> None:
        """Deliver until `stop`."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._deliver())

    async def _deliver(self) -> None:
        assert self._settings.database_url is not None
        database = AsyncDatabase(self._settings.database_url)
        try:
            self._engine = DeliveryEngine(database, self._box, self._settings, worker_id=self._worker_id)
            await self._engine.run(self._stop)
        finally:
            await database.close()


class Ticker:
    """Reconciles every two seconds, so that nothing waits for Redis, for the scheduler or for a GPU worker's death."""

    def __init__(self, work: Housekeeping, waker: Waker, deliveries: Deliveries) -> None:
        self.work = work
        self._waker = waker
        self._deliveries = deliveries
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="arachne-ticker", daemon=True)

    def start(self) -> None:
        """Tick from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Tick no more."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        thorough_at = 0.0
        while not self._stopped.wait(TICK_S):
            thorough = monotonic() >= thorough_at
            if thorough:
                thorough_at = monotonic() + THOROUGH_S
            try:
                found = reconcile(self.work.database, self.work.settings, thorough=thorough)
                if thorough:
                    continue_erasures(self.work.database, self.work.storage, self.work.settings)
            except Unavailable as error:
                _complaints.tell("reconciling waits", error)
                continue
            except Exception:
                log.exception("reconciling failed; it is tried again")
                continue
            if found.queued:
                self._waker.wake_gpu()
            if found.late or found.closed or found.unsent:
                self._deliveries.wake()
