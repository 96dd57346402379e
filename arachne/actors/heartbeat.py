"""The worker's beat: a thread and a connection of its own, so that no load on the others can make it seem dead."""

import logging
from collections.abc import Callable, Sequence
from threading import Event, Thread

from arachne.database import Database
from arachne.errors import Unavailable
from arachne.jobs.workers import BEAT_S, beat, register, unregister

log = logging.getLogger(__name__)


class Heartbeat:
    """A registered worker, kept alive from `start` to `stop`; `worker_id` is the one it has now."""

    def __init__(self, database_url: str, kind: str, languages: Sequence[str] | None = None) -> None:
        self._database = Database(database_url, pool_size=1)
        self._kind = kind
        self._languages = languages
        self._stopped = Event()
        self._on_lost: Callable[[], object] = lambda: None
        self._thread = Thread(target=self._run, name="arachne-heartbeat", daemon=True)
        self.worker_id = self._register()

    def start(self, on_lost: Callable[[], object]) -> None:
        """Beat from now on. Where the worker was taken for dead, it registers anew and `on_lost` is told."""
        self._on_lost = on_lost
        self._thread.start()

    def stop(self) -> None:
        """Leave in good order; images still held by the record are picked up by others."""
        self._stopped.set()
        self._thread.join()
        try:
            self._database.run(unregister, self.worker_id)
        except Unavailable as error:
            log.warning("worker %s leaves without signing off: %s", self.worker_id, error.message)
        self._database.close()

    def _run(self) -> None:
        reachable = True
        while not self._stopped.wait(BEAT_S):
            try:
                self._beat()
            except Unavailable as error:
                if reachable:
                    log.warning("worker %s can't beat: %s", self.worker_id, error.message)
                reachable = False
            except Exception:
                log.exception("worker %s missed a beat", self.worker_id)
            else:
                reachable = True

    def _beat(self) -> None:
        if self._database.run(beat, self.worker_id):
            return
        lost, self.worker_id = self.worker_id, self._register()
        log.warning("worker %s was taken for dead; it goes on as %s", lost, self.worker_id)
        self._on_lost()

    def _register(self) -> str:
        return self._database.run(register, self._kind, languages=self._languages)
