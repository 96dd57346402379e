"""What becomes of an image is written: in one short transaction, again where the database was away for a while."""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from threading import Event
from typing import Concatenate, ParamSpec

from arachne import tracing
from arachne.actors.assembly import Answer, complete
from arachne.actors.pool import PoolLostError, judge
from arachne.actors.stage_process import Done
from arachne.bodies import Reading, compress, decompress
from arachne.cache import VisionCache, base_of, finished_reading, load_reading
from arachne.database import Database, Transaction
from arachne.errors import ImageError, ReadFailed, Unavailable
from arachne.jobs import finish
from arachne.jobs.claim import Claimed
from arachne.jobs.finish import Finish
from arachne.jobs.reconcile import give_all_back
from arachne.metrics import CACHE_HITS, observe_stages
from arachne.reading import DESCRIBE, needed_stages
from arachne.schemas.result import Result
from arachne.settings import Settings

log = logging.getLogger(__name__)
P = ParamSpec("P")
AGAIN_S = 1.0


class Finisher:
    """Finishes claimed images."""

    def __init__(self, database: Database, cache: VisionCache, settings: Settings) -> None:
        self._database = database
        self._cache = cache
        self._settings = settings
        self._hurried = Event()

    def hurry(self) -> None:
        """Wait for an absent database no longer."""
        self._hurried.set()

    def finish(self, image: Claimed, future: "Future[Done]") -> None:
        """Write what the subprocess made of the image."""
        try:
            attempt = judge(future)
        except PoolLostError as error:
            log.info("image %s goes back to the queue: %s", image.image_id, error)
            self.give_back(image)
            return
        if attempt.done is not None:
            self.complete(image, attempt.done.reading)
        elif attempt.error is not None and attempt.fatal:
            log.warning("image %s: %s", image.image_id, attempt.error.message)
            self._write(finish.finish_attempt, image, attempt.error, self._settings)
        elif attempt.error is not None:
            self.fail(image, attempt.error)

    def describe(self, image: Claimed, reading: Reading, answer: Answer | None) -> None:
        """Complete the image with what the model said; without an answer it goes back to the queue."""
        if answer is None:
            self.give_back(image)
            return
        if answer.vlm is None:
            log.warning("image %s goes without a description: %s", image.image_id, answer.reason)
        self.complete(image, complete(reading, answer))

    def find_reading(self, image: Claimed) -> Result | None:
        """The stored result that has the image's stages 1 to 7; None if there is none, or it was erased meanwhile."""
        if image.reading is None:
            return None
        read = load_reading(self._database, self._cache, image.key, image.reading)
        if read is not None:
            CACHE_HITS.labels("reading").inc()
        return read

    def find_base(self, image: Claimed) -> bytes | None:
        """The stored reading that the image's description is to be added to, compressed; None where it must be read."""
        read = self.find_reading(image)
        if read is None:
            return None
        return compress(base_of(read, "deferred", image.key.model_version).model_dump_json().encode())

    def answer_from_reading(self, image: Claimed, read: Result) -> None:
        """Complete the image, of which no model is to be asked, with the reading of an earlier result."""
        describes = DESCRIBE in needed_stages(image.options)
        self.complete(image, finished_reading(read, "not_configured" if describes else "not_requested"))

    def answer_from_cache(self, image: Claimed) -> None:
        """Complete the image with its cached result."""
        with tracing.span("finish", told=image.ids):
            done = self._write(finish.finish_cached, image, self._settings)
        if done.result_id:
            CACHE_HITS.labels("result").inc()
            self._cache.count_hit(image.key)

    def fail(self, image: Claimed, error: ImageError) -> None:
        """Fail the image at once."""
        with tracing.span("finish", told=image.ids | {"code": error.code}):
            done = self._write(finish.finish_failed, image, error, self._settings)
        if done.written:
            log.info("image failed", extra={"code": error.code, "stage": error.stage})

    def give_back(self, image: Claimed) -> None:
        """Queue the image again, uncounted."""
        self._write(finish.give_back, image)

    def give_all_back(self, worker_id: str) -> None:
        """Queue again whatever this worker still holds by the record, uncounted."""
        self._database.run(give_all_back, worker_id)

    def complete(self, image: Claimed, reading: Reading) -> None:
        """Complete the image with its result."""
        took: dict[str, tracing.Value] = {f"{stage}_s": taken_s for stage, taken_s in reading.stage_s.items()}
        try:
            with tracing.span("finish", told=took | image.ids):
                done = self._write(finish.finish_completed, image, reading, self._settings)
        except Unavailable:
            raise
        except Exception:
            log.exception("the result of image %s can't be stored", image.image_id)
            self.fail(image, ReadFailed("The result could not be stored."))
            return
        if not done.written:
            return
        observe_stages(reading.stage_s)
        log.info("image completed", extra={"cached": reading.cached, "degraded": reading.degraded})
        if finish.is_reusable(image, reading):
            self._cache.put(image.key, done.result_id, decompress(reading.body))

    def _write(self, work: Callable[Concatenate[Transaction, P], Finish], *args: P.args, **kwargs: P.kwargs) -> Finish:
        """`work` committed: waiting for the database as long as need be, and once more after any other fault."""
        faults = 0
        while True:
            try:
                return self._database.run(work, *args, **kwargs)
            except Unavailable:
                if self._hurried.wait(AGAIN_S):
                    raise
            except Exception:
                faults += 1
                if faults > 1:
                    raise
                log.warning("a finish failed and is tried once more", exc_info=True)
