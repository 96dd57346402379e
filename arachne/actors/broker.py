"""The broker: Dramatiq on Redis, with what it lacks where Redis stalls. Build it in the process that uses it.

Messages are content-free wake-ups. A lost one costs a worker's next tick and nothing else.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis
from dramatiq import Consumer, Message, MessageProxy, Middleware
from dramatiq.brokers.redis import RedisBroker, _RedisConsumer
from dramatiq.errors import BrokerConnectionError, ConnectionClosed
from dramatiq.middleware import Retries, ShutdownNotifications, TimeLimit
from periodiq import PeriodiqMiddleware
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry

from arachne.actors.limits import RateLimit
from arachne.errors import SetupError
from arachne.settings import Settings

GPU, WEBHOOKS, FETCHES, MAINTENANCE = "gpu", "webhooks", "fetches", "maintenance"
# Their delay queues, and what has a minute's time, would cost a worker its idle processor.
URGENT = (GPU, WEBHOOKS, FETCHES)
PATIENCE_MS = 1000

WORKER_TIMEOUT_S = 5.0
# A dead process's messages are redelivered after about this long; maintenance comes with every command.
HEARTBEAT_MS = 20_000
MAINTENANCE_CHANCE = 1_000_000
ACTOR_LIMIT_MS = 600_000
MAX_CONNECTIONS = 16
LATE_S = 30  # a periodic message older than this is dropped: the next one comes soon enough
_DATABASES = 16

_LOST = (redis.ConnectionError, redis.TimeoutError)
_REFUSED = (redis.ReadOnlyError, redis.OutOfMemoryError)
_DISK_FULL = "MISCONF"  # what it answers to all that would change anything while it can't save
UNSENT = (BrokerConnectionError, redis.RedisError)  # Redis can't be reached, or takes nothing: full, read-only


class StallProofBroker(RedisBroker):
    """A `RedisBroker` to which a timeout is what a closed connection is, and so is a server that takes no writes.

    Redis's TimeoutError is no ConnectionError of its client; unmapped, it ends consumer threads for good. A refusal for
    a full disk would be logged with its traceback by each of them, every few seconds.
    """

    @property
    def consumer_class(self) -> type[_RedisConsumer]:
        """Consumers with the same mapping."""
        return _Consumer

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> Consumer:
        """A consumer; only of the urgent queues does it look every `timeout` milliseconds, of others once a second."""
        patience_ms = timeout if queue_name in URGENT else max(timeout, PATIENCE_MS)
        return super().consume(queue_name, prefetch, patience_ms)

    def enqueue(self, message: Message[object], *, delay: int | None = None) -> Message[object]:
        """The message as sent, `delay` in milliseconds.

        Raises:
            ConnectionClosed: Redis can't be reached or doesn't answer in time.
        """
        with _lost_is_closed():
            return super().enqueue(message, delay=delay)

    def count_waiting(self, queue_name: str) -> int:
        """Number of messages on the queue that no worker has taken.

        Raises:
            ConnectionClosed: as for `enqueue`.
        """
        with _lost_is_closed():
            return int(self.client.llen(f"{self.namespace}:{queue_name}"))


class _Consumer(_RedisConsumer):
    def __next__(self) -> MessageProxy | None:
        with _lost_is_closed():
            return super().__next__()  # type: ignore[no-untyped-call, no-any-return]

    def ack(self, message: MessageProxy) -> None:
        with _lost_is_closed():
            super().ack(message)  # type: ignore[no-untyped-call]

    def nack(self, message: MessageProxy) -> None:
        with _lost_is_closed():
            super().nack(message)  # type: ignore[no-untyped-call]

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        with _lost_is_closed():
            super().requeue(messages)  # type: ignore[no-untyped-call]


def make_broker(settings: Settings, *, timeout_s: float = WORKER_TIMEOUT_S) -> StallProofBroker:
    """A broker in a Redis database of its own, since its maintenance walks over all keys.

    Raises:
        SetupError: there is no usable REDIS_URL.
    """
    url = require_redis_url(settings)
    return StallProofBroker(  # type: ignore[no-untyped-call]
        client=make_client(url, timeout_s=timeout_s, database=broker_database(url)),
        middleware=_middleware(url),
        heartbeat_timeout=HEARTBEAT_MS,
        maintenance_chance=MAINTENANCE_CHANCE,
    )


def _middleware(url: str) -> Sequence[Middleware]:
    return [
        TimeLimit(time_limit=ACTOR_LIMIT_MS),
        ShutdownNotifications(),
        PeriodiqMiddleware(skip_delay=LATE_S),
        RateLimit(make_client(url, timeout_s=WORKER_TIMEOUT_S)),
        Retries(max_retries=3, min_backoff=1_000, max_backoff=60_000),
    ]


def make_client(url: str, *, timeout_s: float, database: int | None = None) -> redis.Redis:
    """A client that asks once and waits `timeout_s` at most, for whatever."""
    options = _parse(url)
    if database is not None:
        options["db"] = database
    pool = redis.ConnectionPool(
        max_connections=MAX_CONNECTIONS,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        **options,
    )
    return redis.Redis(connection_pool=pool)


def broker_database(url: str) -> int:
    """The database after the one the URL names; the first after the last."""
    return (int(_parse(url).get("db", 0)) + 1) % _DATABASES


def require_redis_url(settings: Settings) -> str:
    """The Redis URL.

    Raises:
        SetupError: it is not set, or is no Redis URL.
    """
    if settings.redis_url is None:
        raise SetupError("Set ARACHNE_REDIS_URL, or run `arachne up`, which brings its own.")
    try:
        _parse(settings.redis_url)
    except ValueError as error:
        raise SetupError(f"ARACHNE_REDIS_URL can't be used: {error}") from None
    return settings.redis_url


def _parse(url: str) -> dict[str, Any]:
    options: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
    return options


@contextmanager
def _lost_is_closed() -> Iterator[None]:
    try:
        yield
    except _LOST as error:
        raise ConnectionClosed(error) from None  # type: ignore[no-untyped-call]
    except redis.ResponseError as error:
        if not isinstance(error, _REFUSED) and _DISK_FULL not in str(error):
            raise
        raise ConnectionClosed(error) from None  # type: ignore[no-untyped-call]
