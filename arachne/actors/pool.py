"""The pool of stage subprocesses: a crash, a leak or a hang stays inside one of them and hits one image."""

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from threading import Lock

from pebble import ProcessExpired, ProcessPool

from arachne.actors.stage_process import Read, prepare, run
from arachne.bodies import Reading
from arachne.errors import ImageError, OutOfMemory, SetupError, TimedOut, WorkerCrashed
from arachne.pipeline import ReadRequest
from arachne.settings import Settings

log = logging.getLogger(__name__)
MAX_RESTARTS = 5
RESTART_PAUSE_S = 0.5


class PoolLostError(Exception):
    """The pool broke or was stopped before the image's turn: no fault of the image, which may be read again."""


@dataclass(frozen=True)
class Attempt:
    """What a subprocess made of an image: a reading, or an error; `fatal` where the image's subprocess died on it."""

    reading: Reading | None = None
    error: ImageError | None = None
    fatal: bool = False


class StagePool:
    """Subprocesses that read images with `read`, replaced after a number of images, a crash or a hang."""

    def __init__(self, read: Read, settings: Settings) -> None:
        self._read = read
        self._settings = settings
        self._lock = Lock()
        self._restarts = 0
        self._stopped = False
        self._open: set[Future[Reading]] = set()
        self._pool = self._start()

    def schedule(
        self, data: bytes, request: ReadRequest, done: Callable[["Future[Reading]"], object]
    ) -> "Future[Reading]":
        """The future of an image's reading; `done` gets it when it has ended, in a thread that must not be kept.

        Raises:
            PoolLostError: the pool broke and is being replaced, or was stopped.
            SetupError: it breaks again and again; says so.
        """
        handle = os.memfd_create("arachne-image")  # goes to the subprocess by name: pipes would block, files remain
        try:
            with os.fdopen(os.dup(handle), "wb") as file:
                file.write(data)
            path = f"/proc/{os.getpid()}/fd/{handle}"
            future: Future[Reading] = self._usable().schedule(
                run, args=(self._read, path, request), timeout=self._settings.hard_time_limit_s
            )
        except BaseException:
            os.close(handle)
            raise
        self._open.add(future)
        future.add_done_callback(lambda ended: self._ended(ended, handle, done))
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

    def _ended(self, future: "Future[Reading]", handle: int, done: Callable[["Future[Reading]"], object]) -> None:
        os.close(handle)
        self._open.discard(future)
        if not future.cancelled() and future.exception() is None:
            self._restarts = 0
        done(future)

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
        pool = ProcessPool(
            max_workers=self._settings.cpu_workers,
            max_tasks=self._settings.stage_images,
            initializer=prepare,
            initargs=(os.getpid(), self._settings.stage_memory_bytes, self._read),
            context=multiprocessing.get_context("spawn"),
        )
        assert pool.active  # starts it
        return pool


def judge(future: "Future[Reading]") -> Attempt:
    """What became of an image that was handed over.

    Raises:
        PoolLostError: it was not its turn yet.
    """
    try:
        return Attempt(reading=future.result(timeout=0))
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
