"""Subprocesses that render results as documents, beside a process that must neither decode images nor wait.

They start with the first document. A picture that crashes, hangs or outgrows one of them fails by itself.
"""

import logging
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from threading import Lock

from pebble import ProcessExpired, ProcessPool

from arachne import formats, logs
from arachne.actors import memory_files
from arachne.actors.confinement import confine
from arachne.actors.steady_pool import SteadyPool
from arachne.errors import ArachneError, OutOfMemory, ReadFailed, TimedOut, Unavailable, WorkerCrashed
from arachne.formats import RenderRequest
from arachne.settings import Settings

log = logging.getLogger(__name__)
MAX_WORKERS = 2
MAX_PENDING = 8  # rendering and waiting; more would be answered after their clients have left
TIMEOUT_S = 60.0
RETRY_S = 2.0
_RENEWED_AFTER = 100
Render = Callable[[bytes, bytes, RenderRequest], bytes]


class RenderPool:
    """At most two subprocesses, and a bounded queue before them."""

    def __init__(self, settings: Settings, *, render: Render = formats.render, max_pending: int = MAX_PENDING) -> None:
        self._render = render
        self._workers = min(MAX_WORKERS, settings.cpu_workers)
        self._memory_bytes = settings.stage_memory_bytes
        self._timeout_s = min(TIMEOUT_S, settings.hard_time_limit_s)
        self._max_pending = max_pending
        self._open: dict[Future[bytes], tuple[int, ...]] = {}  # with the files each goes through
        self._lock = Lock()
        self._pool: ProcessPool | None = None

    def schedule(self, result_json: bytes, original: bytes, request: RenderRequest) -> "Future[bytes]":
        """The future of a document; it fails with an ArachneError.

        The calling thread must live as long as the pool: the death of the one that started it ends the subprocesses.

        Raises:
            Unavailable: too many documents are waiting already.
        """
        made: Future[bytes] = Future()
        with self._lock:
            if len(self._open) >= self._max_pending:
                raise Unavailable("Many documents are being made; try again in a moment.", retry_after_s=RETRY_S)
            self._open[made] = ()
        try:
            files = self._open[made] = memory_files.hold(result_json, original, b"")
            paths = [memory_files.path_of(handle) for handle in files]
            future = self._usable().schedule(_run, args=(self._render, *paths, request), timeout=self._timeout_s)
        except BaseException:
            memory_files.release(self._take(made) or ())
            raise
        future.add_done_callback(lambda ended: self._ended(ended, made))
        return made

    def stop(self) -> None:
        """End all subprocesses at once; whoever waits for a document is told to come back."""
        with self._lock:
            pool, self._pool = self._pool, None
            waiting = list(self._open)
        if pool is not None:
            pool.stop()  # type: ignore[no-untyped-call]
            pool.join()
        for made in waiting:  # not every one of them hears from a pool that was stopped
            files = self._take(made)
            if files is not None:
                memory_files.release(files)
                _settle(made, b"", _stopping())

    def _usable(self) -> ProcessPool:
        with self._lock:
            if self._pool is not None and not self._pool.active:
                log.warning("the pool that makes documents broke and is replaced")
                self._pool.stop()  # type: ignore[no-untyped-call]
                self._pool.join()
                self._pool = None
            if self._pool is None:
                self._pool = SteadyPool(
                    max_workers=self._workers,
                    max_tasks=_RENEWED_AFTER,
                    initializer=_prepare,
                    initargs=(os.getpid(), self._memory_bytes, self._render, logs.told()),
                    context=multiprocessing.get_context("spawn"),
                )
            return self._pool

    def _ended(self, future: "Future[None]", made: "Future[bytes]") -> None:
        files = self._take(made)
        if files is None:
            return
        error = _error_of(future)
        document = b"" if error else memory_files.content_of(files[-1])
        memory_files.release(files)
        _settle(made, document, error)

    def _take(self, made: "Future[bytes]") -> tuple[int, ...] | None:
        """The files of a document that was still open; whoever gets them settles it."""
        with self._lock:
            return self._open.pop(made, None)


def _prepare(parent_pid: int, memory_bytes: int, render: Render, form: logs.LogForm | None) -> None:
    logs.follow(form, quotes=False)
    if render is formats.render:
        formats.prepare()
    confine(parent_pid, memory_bytes)


def _run(render: Render, result_path: str, original_path: str, made_path: str, request: RenderRequest) -> None:
    """The document is in the file at `made_path`: pipes would carry it slower, and block."""
    try:
        document = render(Path(result_path).read_bytes(), Path(original_path).read_bytes(), request)
        Path(made_path).write_bytes(document)
    except MemoryError:
        raise OutOfMemory("This document needs more memory than one may take. Ask for one page of it.") from None


def _error_of(future: "Future[None]") -> ArachneError | None:
    try:
        future.result(timeout=0)
    except ArachneError as error:
        return error
    except ProcessExpired:
        return WorkerCrashed("The subprocess that made this document died. Ask for another format.")
    except TimeoutError:
        return TimedOut("Making this document took too long. Ask for one page of it, or for another format.")
    except (CancelledError, BrokenProcessPool):
        return _stopping()
    except Exception as error:
        log.exception("a document could not be made")
        return ReadFailed(f"This document can't be made ({type(error).__name__}). Ask for another format.")
    return None


def _stopping() -> Unavailable:
    return Unavailable("Documents can't be made just now; try again in a moment.", retry_after_s=RETRY_S)


def _settle(made: "Future[bytes]", document: bytes, error: ArachneError | None) -> None:
    if not made.set_running_or_notify_cancel():
        return
    if error is None:
        made.set_result(document)
    else:
        made.set_exception(error)
