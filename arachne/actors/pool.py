"""The pool of stage subprocesses: a crash, a leak or a hang stays inside one of them and hits one image."""

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from threading import Lock

from pebble import ProcessExpired, ProcessPool

from arachne import logs, tracing
from arachne.actors import memory_files
from arachne.actors.stage_process import Done, Read, Task, prepare, run
from arachne.actors.steady_pool import SteadyPool
from arachne.actors.wear import Wear
from arachne.errors import ImageError, OutOfMemory, SetupError, TimedOut, WorkerCrashed
from arachne.pipeline import ReadRequest
from arachne.settings import Settings

log = logging.getLogger(__name__)
MAX_RESTARTS = 5
RESTART_PAUSE_S = 0.5


class PoolLostError(Exception):
    """The pool broke or was stopped before the image's turn: no fault of the image, which may be read again."""


Ended = Callable[["Future[Done]", bytes], object]
"""Gets the future of an image that has ended, and its question's picture, in a thread that must not be kept."""


@dataclass(frozen=True)
class Attempt:
    """What a subprocess made of an image, or an error; `fatal` where the image's subprocess died on it."""

    done: Done | None = None
    error: ImageError | None = None
    fatal: bool = False


class StagePool:
    """Subprocesses that read images with `read`, replaced when worn out, and after a crash or a hang."""

    def __init__(self, read: Read, settings: Settings) -> None:
        self._read = read
        self._settings = settings
        self._lock = Lock()
        self._restarts = 0
        self._stopped = False
        self._open: set[Future[Done]] = set()
        self._pool = self._start()

    def schedule(
        self, data: bytes, request: ReadRequest, ended: Ended, *, model: str | None = None, base: bytes | None = None
    ) -> "Future[Done]":
        """The future of an image's reading, with a question to `model` where one is to be asked.

        `base` is a compressed result that has the reading already.

        Raises:
            PoolLostError: the pool broke and is being replaced, or was stopped.
            SetupError: it breaks again and again; says so.
        """
        files = memory_files.hold(data, b"")
        try:
            image, png = map(memory_files.path_of, files)
            task = Task(image, png, request, model, base, logs.bound_ids())
            future: Future[Done] = self._usable().schedule(
                run, args=(self._read, task), timeout=self._settings.hard_time_limit_s
            )
        except BaseException:
            memory_files.release(files)
            raise
        self._open.add(future)
        end_span = tracing.begin("stages", logs.bound_ids())
        future.add_done_callback(lambda _: end_span())
        future.add_done_callback(lambda one: self._ended(one, files, ended))
        return future

    def mend(self) -> None:
        """Replace a pool that broke. What it never answered is answered with PoolLostError.

        Raises:
            SetupError: it breaks again and again; says so.
        """
        self._usable()

    def stop(self) -> None:
        """End all subprocesses at once, and start none any more."""
        with self._lock:
            self._stopped = True
        self._pool.stop()  # type: ignore[no-untyped-call]
        self._pool.join()

    def _ended(self, future: "Future[Done]", files: Sequence[int], ended: Ended) -> None:
        png = b""
        self._open.discard(future)
        if not future.cancelled() and future.exception() is None:
            self._restarts = 0
            if future.result().question is not None:
                png = memory_files.content_of(files[1])
        memory_files.release(files)
        ended(future, png)

    def _usable(self) -> ProcessPool:
        with self._lock:
            if self._stopped:
                raise PoolLostError("The stage pool was stopped.")
            if self._pool.active:
                return self._pool
            self._restarts += 1
            if self._restarts > MAX_RESTARTS:
                raise SetupError("Stage subprocesses don't start. Run `arachne doctor`, and see the lines above.")
            log.warning("the stage pool broke and is replaced (%d)", self._restarts)
            self._pool.stop()  # type: ignore[no-untyped-call]
            self._pool.join()
            unanswered = list(self._open)
            time.sleep(RESTART_PAUSE_S * self._restarts)
            self._pool = self._start()
        for future in unanswered:
            future.cancel()
        return self._pool

    def _start(self) -> ProcessPool:
        pool = SteadyPool(
            max_workers=self._settings.cpu_workers,
            max_tasks=Wear(self._settings.stage_images, self._settings.stage_recycle_bytes),
            initializer=prepare,
            initargs=(os.getpid(), self._settings.stage_memory_bytes, self._read, logs.told()),
            context=multiprocessing.get_context("spawn"),
        )
        assert pool.active  # starts it
        return pool


def judge(future: "Future[Done]", png: bytes = b"") -> Attempt:
    """What became of an image that was handed over, with its question whole again.

    Raises:
        PoolLostError: it was not its turn yet.
    """
    try:
        done = future.result(timeout=0)
        return Attempt(done if done.question is None else replace(done, question=replace(done.question, png=png)))
    except ImageError as error:
        return Attempt(error=error, fatal=isinstance(error, OutOfMemory))
    except ProcessExpired as error:
        return Attempt(error=WorkerCrashed(f"The image's subprocess died ({_death(error.exitcode)})."), fatal=True)
    except TimeoutError as error:
        limit = error.args[1] if len(error.args) > 1 else "its limit"
        return Attempt(error=TimedOut(f"Reading this image took over {limit} s."), fatal=True)
    except (BrokenProcessPool, CancelledError, RuntimeError) as error:
        raise PoolLostError(str(error)) from error


def _death(exitcode: int) -> str:
    return signal.Signals(-exitcode).name if exitcode < 0 else f"status {exitcode}"
