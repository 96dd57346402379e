"""The producer of wake-ups: it costs its caller nothing, whatever Redis does, and loses nothing but time."""

import socket
import time
from threading import Thread, get_ident

import pytest
from dramatiq.errors import ConnectionClosed

from arachne.actors.broker import make_broker
from arachne.actors.wake import ENOUGH, Waker
from arachne.settings import Settings


@pytest.fixture
def waiting(settings: Settings):
    """Counts the wake-ups on a queue."""
    broker = make_broker(settings)
    yield broker.count_waiting
    broker.client.close()


@pytest.fixture
def make_waker():
    """Wakers that are closed at the end."""
    wakers = []

    def make(settings: Settings) -> Waker:
        wakers.append(Waker(settings))
        return wakers[-1]

    yield make
    for waker in wakers:
        waker.close()


def test_many_calls_become_few_messages(settings: Settings, make_waker, waiting, eventually) -> None:
    """A burst of submissions is one wake-up, or a few; both queues get theirs."""
    waker = make_waker(settings)
    for _ in range(1000):
        waker.wake_gpu()
    waker.wake_webhooks()
    eventually(lambda: waiting("gpu") >= 1 and waiting("webhooks") == 1)
    assert waiting("gpu") <= 3


def test_messages_nobody_takes_do_not_pile_up(settings: Settings, make_waker, waiting, eventually) -> None:
    """While no worker lives, a bounded number of wake-ups waits."""
    waker = make_waker(settings)
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        waker.wake_gpu()
        time.sleep(0.001)
    eventually(lambda: not waker._wanted)
    assert 1 <= waiting("gpu") <= ENOUGH


def test_closing_sends_what_is_wanted(settings: Settings, make_waker, waiting) -> None:
    """A short-lived process wakes as well."""
    waker = make_waker(settings)
    waker.wake_gpu()
    waker.close()
    assert waiting("gpu") == 1


@pytest.mark.parametrize("how", ["refusing", "silent"])
def test_redis_down_blocks_nobody(
    settings: Settings, make_waker, eventually, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Of a Redis that refuses or says nothing the waker's own thread alone takes notice, and the wish stays."""
    connect, connecting = socket.socket.connect, set()

    def noted(self: socket.socket, address: object) -> None:
        connecting.add(get_ident())
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", noted)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if how == "silent":
            listener.listen(16)
        port = listener.getsockname()[1]
        waker = make_waker(settings.model_copy(update={"redis_url": f"redis://127.0.0.1:{port}/0"}))
        for _ in range(300):
            waker.wake_gpu()
        eventually(lambda: connecting)
        assert get_ident() not in connecting
    assert waker._wanted == {"wake_gpu"} or waker._thread.is_alive()


@pytest.mark.parametrize("error", [ConnectionClosed("gone"), ValueError("nobody thought of this")])
def test_wish_outlives_an_outage(
    settings: Settings, make_waker, waiting, eventually, monkeypatch, *, error: Exception
) -> None:
    """When Redis comes back, what was wanted meanwhile is sent without being asked for again, whatever went wrong."""
    waker = make_waker(settings)
    broker = waker._broker
    enqueue, failed = type(broker).enqueue, []

    def fail(*args: object, **kwargs: object) -> object:
        failed.append(1)
        raise error

    monkeypatch.setattr("arachne.actors.wake.MIN_BREAK_S", 0.05)
    monkeypatch.setattr(type(broker), "enqueue", fail)
    waker.wake_gpu()
    eventually(lambda: len(failed) >= 2)
    assert waiting("gpu") == 0
    monkeypatch.setattr(type(broker), "enqueue", enqueue)
    eventually(lambda: waiting("gpu") == 1)


def test_threads_may_wake_at_once(settings: Settings, make_waker, waiting, eventually) -> None:
    """Eight threads calling together lose nothing."""
    waker = make_waker(settings)
    threads = [Thread(target=lambda: [waker.wake_webhooks() for _ in range(100)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: waiting("webhooks") >= 1)
