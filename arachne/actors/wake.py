"""Wake-ups: the actors that receive them, and the producer that never makes its caller wait."""

import logging
from collections.abc import Callable
from threading import Event, Lock, Thread

import dramatiq
from dramatiq import Actor, Broker, Message

from arachne.actors.broker import FETCHES, GPU, UNSENT, WEBHOOKS, StallProofBroker, make_broker
from arachne.settings import Settings

log = logging.getLogger(__name__)

WAKE_GPU, WAKE_WEBHOOKS, WAKE_FETCHES = "wake_gpu", "wake_webhooks", "wake_fetches"
_QUEUES = {WAKE_GPU: GPU, WAKE_WEBHOOKS: WEBHOOKS, WAKE_FETCHES: FETCHES}

PRODUCER_TIMEOUT_S = 2.0
COALESCE_S = 0.02
ENOUGH = 16  # so many wake-ups that nobody has taken yet say all there is to say
MIN_BREAK_S, MAX_BREAK_S = 1.0, 5.0


def declare_wake(broker: Broker, name: str, wake: Callable[[], object]) -> Actor[[], None]:
    """The actor of that name, `wake_gpu` for one, which calls `wake` and is never retried."""

    @dramatiq.actor(broker=broker, actor_name=name, queue_name=_QUEUES[name], max_retries=0)
    def woken() -> None:
        wake()

    return woken


class Waker:
    """Sends wake-ups from a thread of its own. Calling it costs microseconds, whatever Redis does.

    Many calls become one message. When Redis fails, the breaker opens for a while, and the wish to wake stays.
    """

    def __init__(self, settings: Settings) -> None:
        self._broker = make_broker(settings, timeout_s=PRODUCER_TIMEOUT_S)
        self._wanted: set[str] = set()
        self._lock = Lock()
        self._signal = Event()
        self._stopped = Event()
        self._break_s = 0.0
        self._thread = Thread(target=self._run, name="arachne-waker", daemon=True)
        self._thread.start()

    def wake_gpu(self) -> None:
        """Images may be waiting."""
        self._want(WAKE_GPU)

    def wake_webhooks(self) -> None:
        """Deliveries may be due."""
        self._want(WAKE_WEBHOOKS)

    def wake_fetches(self) -> None:
        """Images may be waiting to be fetched."""
        self._want(WAKE_FETCHES)

    def close(self) -> None:
        """Send what is still wanted, if Redis lets us, and end."""
        self._stopped.set()
        self._signal.set()
        self._thread.join(3 * PRODUCER_TIMEOUT_S)

    def _want(self, name: str) -> None:
        with self._lock:
            self._wanted.add(name)
        self._signal.set()

    def _run(self) -> None:
        while True:
            self._signal.wait()
            last = self._stopped.is_set()
            self._signal.clear()
            self._send_all()
            if last:
                break
            self._stopped.wait(self._break_s or COALESCE_S)
            with self._lock:
                if self._wanted or self._stopped.is_set():
                    self._signal.set()
        self._broker.client.close()

    def _send_all(self) -> None:
        with self._lock:
            names, self._wanted = self._wanted, set()
        try:
            for name in sorted(names):
                _send(self._broker, name)
        except UNSENT as error:
            if not self._break_s:
                log.warning("Redis takes no wake-ups, workers look by themselves meanwhile: %s", error)
            self._keep(names)
        except Exception:
            log.exception("wake-ups can't be sent; workers look by themselves meanwhile")
            self._keep(names)
        else:
            if self._break_s:
                log.info("Redis takes wake-ups again")
            self._break_s = 0.0

    def _keep(self, names: set[str]) -> None:
        """The wish stays, and is tried again after a while."""
        with self._lock:
            self._wanted |= names
        self._break_s = min(max(MIN_BREAK_S, 2 * self._break_s), MAX_BREAK_S)


def _send(broker: StallProofBroker, name: str) -> None:
    queue = _QUEUES[name]
    if broker.count_waiting(queue) < ENOUGH:
        broker.enqueue(Message(queue_name=queue, actor_name=name, args=(), kwargs={}, options={}))
