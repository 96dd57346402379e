"""Rate limits on actors: what comes too early is sent again for later. Nothing fails and no retry is used up."""

import logging
import math
import time

import redis
from dramatiq import Broker, MessageProxy, Middleware
from dramatiq.errors import BrokerConnectionError
from dramatiq.middleware import SkipMessage
from limits import RateLimitItemPerSecond
from limits.errors import StorageError
from limits.storage import MemoryStorage, RedisStorage
from limits.strategies import MovingWindowRateLimiter

from arachne.schemas.limits import parse_rate

log = logging.getLogger(__name__)
KEY_PREFIX = "arachne:actors"
MIN_DELAY_MS = 50


class RateLimit(Middleware):
    """Actors declared with `rate_limit="20/minute"` run at most so often over all processes.

    While Redis can't count, each process counts alone; where the later message can't be sent, the actor runs now.
    """

    def __init__(self, client: redis.Redis) -> None:
        pool = client.connection_pool
        shared = RedisStorage("redis://", connection_pool=pool, key_prefix=KEY_PREFIX, wrap_exceptions=True)
        self._shared = MovingWindowRateLimiter(shared)
        self._local = MovingWindowRateLimiter(MemoryStorage())

    @property
    def actor_options(self) -> set[str]:
        """The option this reads."""
        return {"rate_limit"}

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        """Raise SkipMessage for what was put off."""
        rate = broker.get_actor(message.actor_name).options.get("rate_limit")
        if rate is None:
            return
        window = parse_rate(rate)
        wait_s = self._wait_s(RateLimitItemPerSecond(window.amount, window.window_s), message.actor_name)
        if wait_s is None:
            return
        try:
            broker.enqueue(message, delay=max(MIN_DELAY_MS, math.ceil(wait_s * 1000)))  # type: ignore[arg-type]
        except BrokerConnectionError as error:
            log.warning("%s runs over its rate, since it can't be put off: %s", message.actor_name, error)
            return
        raise SkipMessage(f"{message.actor_name} is put off for {wait_s:.2f} s")

    def _wait_s(self, item: RateLimitItemPerSecond, name: str) -> float | None:
        """Seconds to wait; None where the message may run, which is then counted."""
        try:
            return self._hit(self._shared, item, name)
        except StorageError as error:
            log.warning("the rate of %s is counted by this process alone: %s", name, error)
            return self._hit(self._local, item, name)

    def _hit(self, limiter: MovingWindowRateLimiter, item: RateLimitItemPerSecond, name: str) -> float | None:
        if limiter.hit(item, name):
            return None
        return max(0.0, limiter.get_window_stats(item, name).reset_time - time.time())
