"""How a worker asks models: a thread with an event loop of its own, in which the batcher and the watch live."""

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from hashlib import sha256
from threading import Thread
from uuid import uuid4

from arachne import logs, tracing
from arachne.actors.assembly import Answer
from arachne.actors.batcher import Batcher, Done, Policy
from arachne.actors.places import Places
from arachne.actors.vlm_watch import VlmWatch
from arachne.database import AsyncDatabase, Transaction, notifications
from arachne.jobs.publications import publish_models
from arachne.jobs.slots import CHANNEL, Gate, visit
from arachne.jobs.turns import Bounds
from arachne.jobs.workers import tell_vlm
from arachne.reading import allowed_models
from arachne.schemas.vlm import VlmSeen
from arachne.settings import Settings
from arachne.stages.describe import DescribeRequest
from arachne.vlm import Backend, Retry, open_backend

log = logging.getLogger(__name__)
START_S = 30.0
Learn = Callable[[Mapping[str, str]], object]
"""Gets versions of models that this worker did not know."""


class Describing:
    """Asks the models of the settings' server about images, through the gate all workers share. For any thread.

    `wake` is called when places have come free, and `learn` with the models' versions.
    """

    def __init__(
        self, settings: Settings, worker_id: Callable[[], str], learn: Learn, *, policy: Policy | None = None
    ) -> None:
        assert settings.database_url is not None
        self._settings, self._worker_id, self._learn = settings, worker_id, learn
        self._policy = policy or Policy(limit_s=settings.hard_time_limit_s)
        self.places = Places(
            settings.vlm_parallel, allowed_models(settings), most=settings.cpu_workers + 2 * settings.vlm_parallel
        )
        self._wake: Callable[[], object] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started: Future[Batcher] = Future()
        self._thread = Thread(target=self._run, name="arachne-describing", daemon=True)

    def start(self, wake: Callable[[], object]) -> None:
        """Ask from now on.

        Raises:
            SetupError: the settings don't name a server that can be asked.
        """
        self._wake = wake
        self._thread.start()
        self._started.result(START_S)

    @property
    def has_ended(self) -> bool:
        """Whether nobody can be asked any more; its log says why."""
        return self._started.done() and not self._thread.is_alive()

    def add(self, image: Hashable, question: DescribeRequest, done: Done) -> None:
        """Have the image described; `done` gets what came of it, on a thread that must not be kept."""
        end_span = tracing.begin("describe", logs.bound_ids())

        def ended(answer: Answer | None) -> None:
            end_span()
            done(answer)

        if not self._call(lambda batcher: batcher.add(image, question, ended)):
            ended(None)

    def drop(self, image: Hashable) -> None:
        """Nobody wants the image described any more."""
        self._call(lambda batcher: batcher.drop(image))

    def stop(self) -> None:
        """Ask about nothing more; what waits goes back, and what is in flight is still answered."""
        self._call(lambda batcher: batcher.stop())

    def close(self) -> None:
        """End what is in flight too; it goes back."""
        self._call(lambda batcher: batcher.cut_off())
        if self._thread.is_alive():
            self._thread.join()

    def _call(self, work: Callable[[Batcher], object]) -> bool:
        """Whether the batcher will do it; not, where its loop has ended and everything with it."""
        if self._loop is None or not self._started.done() or self._started.exception() is not None:
            return False
        try:
            self._loop.call_soon_threadsafe(work, self._started.result())
        except RuntimeError:
            return False
        return True

    def _run(self) -> None:
        try:
            asyncio.run(self._describe())
        except BaseException as error:
            if self._started.done():
                log.exception("the models can't be asked any more")
            else:
                self._started.set_exception(error)

    async def _describe(self) -> None:
        self._loop, url = asyncio.get_running_loop(), str(self._settings.database_url)
        gatekeeper, teller = AsyncDatabase(url, pool_size=1, keep=True), AsyncDatabase(url, pool_size=1)
        try:
            async with open_backend(self._settings, retry=Retry(attempts=1)) as backend:
                await self._work(backend, gatekeeper, teller)
        finally:
            await gatekeeper.close()  # and with it every slot
            await teller.close()

    async def _work(self, backend: Backend, gatekeeper: AsyncDatabase, teller: AsyncDatabase) -> None:
        settings, breaker = self._settings, self._policy.breaker
        bounds = Bounds(settings.vlm_switch_after_s, settings.vlm_switch_after_requests)
        gate = Gate(backend_of(settings), settings.vlm_parallel, bounds)

        async def tell(versions: Mapping[str, str], seen: VlmSeen) -> None:
            if versions:
                self._learn(versions)
            await teller.run(_tell, self._worker_id(), versions, seen)

        watch = VlmWatch(backend, breaker, allowed_models(settings), tell)
        batcher = Batcher(
            uuid4().hex,
            backend,
            lambda told: gatekeeper.run(visit, gate, told, self._worker_id()),
            self.places,
            self._policy,
            changed=self._wake,
            answered=watch.notice,
        )
        beside = [asyncio.create_task(watch.run()), asyncio.create_task(_listen(settings, gate, batcher))]
        self._started.set_result(batcher)
        try:
            await batcher.run()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)


def backend_of(settings: Settings) -> str:
    """What the server's gate goes by. A URL may hold a password, so it is its hash."""
    return sha256(f"{settings.vlm_protocol} {settings.vlm_url}".encode()).hexdigest()[:16]


def _tell(transaction: Transaction, worker_id: str, versions: Mapping[str, str], seen: VlmSeen) -> None:
    if versions:
        publish_models(transaction, versions)
    tell_vlm(transaction, worker_id, seen)


async def _listen(settings: Settings, gate: Gate, batcher: Batcher) -> None:
    async for backend in notifications(str(settings.database_url), CHANNEL):
        if backend in {"", gate.backend}:
            batcher.wake()
