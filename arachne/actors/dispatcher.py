"""The resident dispatcher of a GPU worker: claims images, has them read and described, and finishes them.

It runs on its own ticks; a wake-up only makes the next one come at once. Between claim and finish no transaction is
open.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from threading import Event, Lock
from time import monotonic
from typing import Concatenate, ParamSpec
from uuid import UUID

from arachne.actors.describing import Describing
from arachne.actors.means import Means
from arachne.actors.places import Claimable
from arachne.actors.pool import PoolLostError, StagePool, judge
from arachne.actors.solitude import Solitude
from arachne.actors.stage_process import Done
from arachne.actors.threads import ImageThreads
from arachne.complaints import Complaints
from arachne.errors import ArachneError, Gone, ReadFailed, SetupError, Unavailable
from arachne.jobs.claim import Claimed, Claims, claim, find_lost
from arachne.jobs.reconcile import reconcile, recover_unheld
from arachne.versions import NO_MODEL

log = logging.getLogger(__name__)
_complaints = Complaints(log)
P = ParamSpec("P")
ClaimId = tuple[str, UUID]

TICK_S = 2.0
THOROUGH_S = 60.0
PAUSE_S = 2.0
LOADING_THREADS = 4
ENDING_THREADS = 4
STOP_S = 20.0


class Dispatcher:
    """Claims as many images as there are subprocesses free, and a few more; `wake` is for other threads.

    While images are with `describing`, subprocesses read the next ones; it bounds how many may come.
    """

    def __init__(
        self, means: Means, pool: StagePool, worker_id: Callable[[], str], describing: Describing | None = None
    ) -> None:
        self._means = means
        self._pool = pool
        self._worker_id = worker_id
        self._describing = describing
        self._slots = means.settings.cpu_workers + count_ahead(means.settings.cpu_workers)
        self._held: dict[ClaimId, Future[Done] | None] = {}
        self._asking: set[ClaimId] = set()  # of these, those with no subprocess any more
        self._alone = Solitude()
        self._lock = Lock()
        self._signal = Event()
        self._stopping = Event()
        self._start = ""
        self._paused_until = 0.0
        self._reconciled_at = -THOROUGH_S
        self._fault: SetupError | None = None
        # Apart, so that a store that hangs keeps nothing from being finished.
        self._loading = ImageThreads(LOADING_THREADS, "arachne-load")
        self._ending = ImageThreads(ENDING_THREADS, "arachne-end")

    def wake(self) -> None:
        """Look for images now."""
        self._signal.set()

    def stop(self) -> None:
        """Claim no more; `run` returns when what is in hand is done, or soon after."""
        self._stopping.set()
        self._signal.set()

    def abandon(self) -> None:
        """Stop reading what others hold by now. What comes of it anyway is written nowhere."""
        with self._lock:
            held = list(self._held)
        self._drop(held)

    def run(self) -> None:
        """Work until `stop`.

        Raises:
            SetupError: no subprocess can be started; says so.
        """
        next_tick = 0.0
        while not self._stopping.is_set():
            self._signal.wait(max(0.0, next_tick - monotonic()))
            self._signal.clear()
            try:
                if monotonic() >= next_tick:
                    next_tick = monotonic() + TICK_S
                    self._look_after()
                self._fill()
            except Unavailable as error:
                _complaints.tell("the queue waits", error)
            except SetupError as error:
                self._fault = error
            except Exception:
                log.exception("looking for images failed; it is tried again")
            if self._fault is not None:
                self._close(wait_s=0.0)
                raise self._fault
        self._close(STOP_S)

    def _look_after(self) -> None:
        thorough = monotonic() - self._reconciled_at >= THOROUGH_S
        if thorough:
            self._reconciled_at = monotonic()
        means = self._means
        self._pool.mend()
        if self._describing is not None and self._describing.has_ended:
            raise SetupError("The thread that asks models has ended; the lines above say why.")
        reconcile(means.database, means.settings, thorough=thorough)
        means.database.run(recover_unheld, self._worker_id(), self._held_ids(), means.settings)
        with self._lock:
            held = list(self._held)
        if held:  # a cancelled image must keep neither a subprocess nor the GPU from others
            self._drop(means.database.run(find_lost, held))

    def _drop(self, claims: Iterable[ClaimId]) -> None:
        """Stop reading and asking about these."""
        claims = list(claims)
        with self._lock:
            futures = [future for one in claims if (future := self._held.get(one)) is not None]
        for future in futures:
            future.cancel()
        if self._describing is not None:
            for one in claims:
                self._describing.drop(one)

    def _fill(self) -> None:
        """Claim until all slots are taken or nothing is left to claim."""
        while not self._stopping.is_set() and monotonic() >= self._paused_until:
            limit, but_for = self._claimable()
            claims = self._claim(limit, but_for) if limit > 0 else Claims([], 0)
            for image in claims.images:
                self._enter(image)
                if not self._alone.is_for(image):
                    self._submit(image)
                elif not self._alone.keep(image):
                    self._ending.submit(self._end, image, self._means.finisher.give_back)
            self._begin_alone()
            if not claims.parked and (limit <= 0 or len(claims.images) < limit):
                return

    def _submit(self, image: Claimed) -> None:
        threads = self._loading if image.fault is None and image.hit is None else self._ending
        threads.submit(self._begin, image)

    def _begin_alone(self) -> None:
        """Begin the image that is to run alone, if nothing else is in hand."""
        with self._lock:
            in_hand = len(self._held)
        image = self._alone.begin(0 if self._stopping.is_set() else in_hand)
        if image is not None:
            self._submit(image)

    def _claimable(self) -> Claimable:
        with self._lock:
            free = 0 if self._alone.holds(self._held) else self._slots - len(self._held) + len(self._asking)
        return Claimable(free, ()) if self._describing is None else self._describing.places.claimable(free)

    def _enter(self, image: Claimed) -> None:
        with self._lock:
            self._held[_claim_of(image)] = None
        model = self._means.model_of(image) if image.fault is None and image.hit is None else None
        if self._describing is not None and model is not None:
            self._describing.places.enter(_claim_of(image), model)

    def _claim(self, limit: int, but_for: Collection[str]) -> Claims:
        means = self._means
        worker_id = self._worker_id()
        found = means.database.run(
            claim, worker_id, limit, means.key_of, means.settings, start=self._start, but_for=but_for
        )
        self._start = found.start
        return found

    def _begin(self, image: Claimed) -> None:
        finisher = self._means.finisher
        try:
            self._hand_over(image)
        except Gone as error:
            self._end(image, finisher.fail, ReadFailed(error.message))
        except (Unavailable, PoolLostError) as error:
            log.warning("image %s goes back to the queue: %s", image.image_id, error)
            self._paused_until = monotonic() + PAUSE_S
            self._end(image, finisher.give_back)
        except SetupError as error:
            self._fault = error
            self._end(image, finisher.give_back)
        except Exception:
            log.exception("image %s could not be handed over", image.image_id)
            self._end(image, finisher.fail, ReadFailed("The image could not be handed to a reader."))

    def _hand_over(self, image: Claimed) -> None:
        means = self._means
        if self._stopping.is_set():
            self._end(image, means.finisher.give_back)
        elif image.fault is not None:
            self._end(image, means.finisher.fail, ReadFailed(image.fault))
        elif image.hit is not None:
            self._end(image, means.finisher.answer_from_cache)
        elif image.key.model_version == NO_MODEL and (read := means.finisher.find_reading(image)) is not None:
            self._end(image, means.finisher.answer_from_reading, read)
        else:
            self._load(image)

    def _load(self, image: Claimed) -> None:
        means = self._means
        request = means.request_of(image)
        model = means.model_of(image) if self._describing is not None else None
        base = means.finisher.find_base(image) if model is not None else None
        data = means.storage.read(image.sha256)
        if self._stopping.is_set():  # it took long
            self._end(image, means.finisher.give_back)
            return
        future = self._pool.schedule(
            data,
            request,
            lambda ended, png: self._ending.submit(self._finish, image, ended, png),
            model=model,
            base=base,
        )
        with self._lock:
            if _claim_of(image) in self._held:
                self._held[_claim_of(image)] = future

    def _finish(self, image: Claimed, future: Future[Done], png: bytes) -> None:
        """Finish what the subprocess made of the image, or ask a model about it first."""
        finisher, describing = self._means.finisher, self._describing
        done = None if future.cancelled() or future.exception() else judge(future, png).done
        if describing is None or done is None or done.question is None:
            self._end(image, finisher.finish, future)
            return
        reading = done.reading
        with self._lock:
            self._asking.add(_claim_of(image))
        describing.add(
            _claim_of(image),
            done.question,
            lambda answer: self._ending.submit(self._end, image, finisher.describe, reading, answer),
        )
        self._signal.set()

    def _end(
        self, image: Claimed, write: Callable[Concatenate[Claimed, P], object], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        try:
            write(image, *args, **kwargs)
        except ArachneError as error:  # the record still has the image running; `recover_unheld` mends that
            log.warning("image %s could not be finished: %s", image.image_id, error.message)
        except Exception:
            log.exception("image %s could not be finished", image.image_id)
        finally:
            with self._lock:
                self._held.pop(_claim_of(image), None)
                self._asking.discard(_claim_of(image))
            if self._describing is not None:
                self._describing.places.leave(_claim_of(image))
            self._signal.set()

    def _held_ids(self) -> list[str]:
        with self._lock:
            return [image_id for image_id, _ in self._held]

    def _close(self, wait_s: float) -> None:
        """Wait for what is in hand; after `wait_s` the rest is cut off and goes back to the queue uncounted."""
        self._stopping.set()
        self._begin_alone()  # which gives it back
        if self._describing is not None:
            self._describing.stop()
        deadline = monotonic() + wait_s
        while self._held and monotonic() < deadline:
            self._signal.wait(0.1)
            self._signal.clear()
        self._means.finisher.hurry()
        self._loading.shutdown(wait=False, cancel_futures=True)  # what still hangs is given back below
        self._pool.stop()
        if self._describing is not None:
            self._describing.close()
        self._ending.shutdown()
        try:
            self._means.finisher.give_all_back(self._worker_id())
        except Unavailable as error:
            log.warning("images go back to the queue when the lease ends: %s", error.message)


def count_ahead(cpu_workers: int) -> int:
    """Images loaded and waiting, so that subprocesses don't wait for the network: whoever comes now is behind these."""
    return max(1, cpu_workers // 2)


def _claim_of(image: Claimed) -> ClaimId:
    return image.image_id, image.claim_id
