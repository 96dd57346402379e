"""The broker where Redis stalls, and what its actors are declared with."""

import logging
import time
from threading import Event

import dramatiq
import pytest
import redis
from dramatiq.errors import ConnectionClosed
from dramatiq.middleware import TimeLimit

from arachne.actors import residence
from arachne.actors.broker import broker_database, make_broker, make_client, require_redis_url
from arachne.actors.limits import RateLimit
from arachne.actors.residence import working
from arachne.actors.wake import WAKE_GPU, declare_wake
from arachne.errors import SetupError
from arachne.settings import Settings


@pytest.fixture
def broker(settings: Settings):
    broker = make_broker(settings)
    yield broker
    broker.client.close()


class Stalled:
    """A client's script that never gets an answer."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked = 0

    def __call__(self, **_: object) -> object:
        """No answer."""
        self.asked += 1
        raise self.error


MISCONF = "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."


@pytest.mark.parametrize(
    "error",
    [
        redis.TimeoutError("stalled"),
        redis.ConnectionError("gone"),
        redis.ResponseError(MISCONF),
        redis.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
        redis.ReadOnlyError("You can't write against a read only replica."),
    ],
)
def test_stalled_redis_is_a_closed_connection(broker, monkeypatch, error: Exception) -> None:
    """Fetch, ack, nack, requeue and enqueue all turn into what Dramatiq's threads recover from."""
    actor = declare_wake(broker, WAKE_GPU, lambda: None)
    message = dramatiq.MessageProxy(broker.enqueue(actor.message()))
    consumer = broker.consume("gpu", timeout=10)
    broker._max_unpack_size()
    monkeypatch.setitem(broker.scripts, "dispatch", Stalled(error))
    for call in (
        lambda: next(consumer),
        lambda: consumer.ack(message),
        lambda: consumer.nack(message),
        lambda: consumer.requeue([message]),
        lambda: broker.enqueue(actor.message()),
    ):
        with pytest.raises(ConnectionClosed):
            call()


def test_a_fault_of_ours_stays_what_it_is(broker, monkeypatch) -> None:
    """Only what Redis lacks is passed over; a script that is wrong is not."""
    monkeypatch.setitem(broker.scripts, "dispatch", Stalled(redis.ResponseError("ERR wrong number of arguments")))
    broker._max_unpack_size()
    with pytest.raises(redis.ResponseError, match="wrong number"):
        next(broker.consume("gpu", timeout=10))


def test_a_full_disk_under_redis_is_one_line(broker, monkeypatch, eventually, caplog) -> None:
    """However often its consumers try again, and without a traceback."""
    monkeypatch.setattr("dramatiq.worker.CONSUMER_RESTART_DELAY_SECS", 0.05)
    declare_wake(broker, WAKE_GPU, lambda: None)
    stalled = Stalled(redis.ResponseError(MISCONF))
    with working(broker, {"gpu"}, timeout_ms=10, threads=1), monkeypatch.context() as patched:
        patched.setitem(broker.scripts, "dispatch", stalled)
        eventually(lambda: stalled.asked > 5)
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.exc_info for record in told] == [None]
    assert MISCONF in told[0].getMessage()


def test_what_repeats_itself_is_told_once_a_minute() -> None:
    now_s = [0.0]
    seldom = residence.Seldom(clock=lambda: now_s[0])

    def is_told(words: str, error: BaseException | None = None) -> bool:
        exc_info = None if error is None else (type(error), error, None)
        return bool(seldom.filter(logging.LogRecord("x", logging.ERROR, "", 0, words, (), exc_info)))

    assert [is_told("gone: %s"), is_told("gone: %s"), is_told("other")] == [True, False, True]
    assert [is_told("odd", ValueError()), is_told("odd", ValueError())] == [True, True]
    now_s[0] = residence.EVERY_S
    assert is_told("gone: %s")


def test_worker_survives_a_stall(broker, monkeypatch, eventually) -> None:
    """A consumer whose fetch times out comes back, and messages sent before and after are received."""
    monkeypatch.setattr("dramatiq.worker.CONSUMER_RESTART_DELAY_SECS", 0.05)
    woken = []
    actor = declare_wake(broker, WAKE_GPU, lambda: woken.append(1))
    with working(broker, {"gpu"}, timeout_ms=10, threads=1):
        actor.send()
        eventually(lambda: len(woken) == 1)
        dispatch = broker.scripts["dispatch"]
        broker.scripts["dispatch"] = stalled = Stalled(redis.TimeoutError("stalled"))
        eventually(lambda: stalled.asked)
        broker.scripts["dispatch"] = dispatch
        actor.send()
        eventually(lambda: len(woken) == 2)


def test_broker_has_a_database_of_its_own(broker, settings: Settings) -> None:
    """Its maintenance walks over all keys, so nobody else's are there; also over a Unix socket."""
    declare_wake(broker, WAKE_GPU, lambda: None).send()
    own = redis.Redis.from_url(settings.redis_url)
    assert own.keys() == []
    own.close()
    assert broker.client.keys()
    assert broker_database("redis://h:1/3") == 4
    assert broker_database("redis://h:1") == 1
    assert broker_database("unix:///s?db=15") == 0


def test_client_asks_once_and_soon_gives_up(settings: Settings) -> None:
    """No retries, bounded connections, a timeout on each answer."""
    client = make_client(settings.redis_url, timeout_s=0.1)
    with pytest.raises(redis.TimeoutError):  # with patience it would be told that there is nothing
        client.blpop(["nothing"], timeout=5)
    client.close()


def test_time_limits_are_started(broker) -> None:
    """A worker built in code has them only if the process is said to have booted."""
    with working(broker, {"gpu"}, timeout_ms=10, threads=1):
        (limit,) = [middleware for middleware in broker.middleware if isinstance(middleware, TimeLimit)]
        assert limit.manager.is_alive()


def test_wake_actors_are_never_retried(broker, eventually) -> None:
    """A failing wake-up is done with: the next tick does its work."""
    calls = []

    def fail() -> None:
        calls.append(1)
        raise RuntimeError("no")

    actor = declare_wake(broker, WAKE_GPU, fail)
    assert actor.options["max_retries"] == 0
    with working(broker, {"gpu"}, timeout_ms=10, threads=1):
        actor.send()
        eventually(lambda: broker.count_waiting("gpu") == 0 and calls)
        broker.join("gpu", timeout=5000)
    assert calls == [1]


def test_redis_url_is_needed(tmp_path) -> None:
    """Without one, or with another kind, the message says what to set."""
    with pytest.raises(SetupError, match="ARACHNE_REDIS_URL"):
        require_redis_url(Settings(data_dir=tmp_path, redis_url=None))
    with pytest.raises(SetupError, match="ARACHNE_REDIS_URL"):
        require_redis_url(Settings(data_dir=tmp_path, redis_url="http://localhost"))


def test_rate_limited_actor_is_put_off_and_burns_no_retry(broker, eventually, monkeypatch) -> None:
    """Over its rate a message comes again later; in the end each ran once, none was retried or lost."""
    ran, let_in, skipped = [], [], Event()
    (limit,) = [middleware for middleware in broker.middleware if isinstance(middleware, RateLimit)]
    hit = limit._hit

    def watched(*asked) -> float | None:
        before_s, wait_s = time.time(), hit(*asked)
        if wait_s is None:
            let_in.append((before_s, time.time()))
        return wait_s

    monkeypatch.setattr(limit, "_hit", watched)

    @dramatiq.actor(broker=broker, actor_name="limited", queue_name="gpu", rate_limit="2/second", max_retries=1)
    def limited(number: int) -> None:
        ran.append(number)

    class Watch(dramatiq.Middleware):
        def after_skip_message(self, *_: object) -> None:
            skipped.set()

    broker.add_middleware(Watch())
    with working(broker, {"gpu"}, timeout_ms=10, threads=2):
        for number in range(5):
            limited.send(number)
        eventually(lambda: len(ran) == 5)
    assert skipped.is_set()
    assert sorted(ran) == [0, 1, 2, 3, 4]
    let_in.sort()
    assert all(third[1] - first[0] >= 1 for first, third in zip(let_in, let_in[2:], strict=False))


def test_rate_limit_counts_alone_without_redis(broker, monkeypatch) -> None:
    """Where Redis can't count, this process does; where the message can't be put off, it runs."""

    @dramatiq.actor(broker=broker, actor_name="limited", queue_name="gpu", rate_limit="1/minute")
    def limited() -> None: ...

    client = make_client("redis://127.0.0.1:9/0", timeout_s=0.1)
    limit = RateLimit(client)
    message = dramatiq.MessageProxy(limited.message())
    assert limit.before_process_message(broker, message) is None
    with pytest.raises(dramatiq.middleware.SkipMessage):
        limit.before_process_message(broker, message)

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionClosed("gone")

    monkeypatch.setattr(broker, "enqueue", refuse)
    assert limit.before_process_message(broker, message) is None
    client.close()


def test_only_urgent_queues_are_looked_at_often(broker) -> None:
    """An idle worker's processor is not spent on queues that have time."""
    waits = {
        name: broker.consume(name, timeout=20).timeout for name in ("gpu", "webhooks", "webhooks.DQ", "maintenance")
    }
    assert waits == {"gpu": 20, "webhooks": 20, "webhooks.DQ": 1000, "maintenance": 1000}
