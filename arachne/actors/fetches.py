"""The fetch engine as a part of a worker, on an event loop of its own."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from arachne.actors.heartbeat import Heartbeat
from arachne.database import AsyncDatabase
from arachne.fetching.engine import FetchEngine
from arachne.fetching.means import Means
from arachne.news import News
from arachne.settings import Settings
from arachne.storage import Storage


class FetchThread:
    """Fetches images from `start` to `stop`, and has the worker's heart beat meanwhile; `wake` is for other threads.

    `on_failure` is called from its own.
    """

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        heartbeat: Heartbeat,
        *,
        queued: Callable[[], object],
        on_commit: Callable[[News], None],
        on_failure: Callable[[], object],
    ) -> None:
        assert settings.database_url is not None
        self._database = AsyncDatabase(settings.database_url, on_commit=on_commit)
        self._heartbeat = heartbeat
        means = Means(self._database, storage, settings, lambda: self._heartbeat.worker_id, queued)
        self._engine = FetchEngine(means)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._on_failure = on_failure
        self._failure: Exception | None = None
        self._thread = Thread(target=self._run, name="arachne-fetches", daemon=True)

    def wake(self) -> None:
        """Look for images to fetch now."""
        self._engine.wake()

    def start(self) -> None:
        """Fetch from now on."""
        self._heartbeat.start(self._engine.abandon)
        self._thread.start()

    def stop(self) -> None:
        """End when what is under way is done, or soon; the rest goes back."""
        if self._thread.is_alive():
            with suppress(RuntimeError):  # the loop has just been closed: it ends by itself
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._heartbeat.stop()

    def check(self) -> None:
        """Nothing, while it does its work.

        Raises:
            Exception: what ended it.
        """
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._fetch())
        except Exception as error:  # raised again by `check`; a worker that no longer fetches must not look alive
            self._failure = error
            self._on_failure()

    async def _fetch(self) -> None:
        try:
            await self._engine.run(self._stop)
        finally:
            await self._database.close()
