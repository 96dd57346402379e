"""How a worker process lives: until a signal asks it to end, with Dramatiq's threads beside its own."""

import logging
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread
from time import monotonic

from dramatiq import Broker, Worker

POLL_S = 0.2
_STOP_S = 5.0
EVERY_S = 60.0


class Seldom(logging.Filter):
    """Lets the same be told once a minute: while Redis is away each consumer says so every few seconds.

    What has a traceback passes, since nobody foresaw it.
    """

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._told_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is to be told."""
        now_s = self._clock()
        if record.exc_info or now_s - self._told_s.get(str(record.msg), -EVERY_S) >= EVERY_S:
            self._told_s[str(record.msg)] = now_s
            return True
        return False


def run_until_signal(work: Callable[[], None], stop: Callable[[], object]) -> None:
    """`work` done in a thread of its own; SIGTERM and SIGINT have `stop` called, upon which it should end soon.

    A handler that took a lock could meet itself holding it, so handlers only leave a note.
    """
    asked: list[int] = []
    former = {number: signal.signal(number, lambda n, _: asked.append(n)) for number in (signal.SIGTERM, signal.SIGINT)}
    done: Future[None] = Future()
    thread = Thread(target=_run, args=(work, done), name="arachne-work", daemon=True)
    try:
        thread.start()
        while thread.is_alive():
            thread.join(POLL_S)
            if asked:
                stop()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    done.result()


def _run(work: Callable[[], None], done: Future[None]) -> None:
    try:
        work()
    except BaseException as error:  # raised again in the main thread
        done.set_exception(error)
    else:
        done.set_result(None)


@contextmanager
def working(broker: Broker, queues: set[str], *, timeout_ms: int, threads: int) -> Iterator[None]:
    """Dramatiq works on `queues` in threads of this process meanwhile."""
    broker.emit_after("process_boot")  # starts the time limits, which `Worker` alone never does
    worker = Worker(broker, queues=queues, worker_timeout=timeout_ms, worker_threads=threads)
    worker.start()
    loggers, seldom = {consumer.logger for consumer in worker.consumers.values()}, Seldom()
    for logger in loggers:
        logger.addFilter(seldom)
    try:
        yield
    finally:
        # With Redis away its threads sleep through long pauses; they hold nothing worth waiting for.
        stopping = Thread(target=worker.stop, name="arachne-worker-stop", daemon=True)
        stopping.start()
        stopping.join(_STOP_S)
        for logger in loggers:
            logger.removeFilter(seldom)
