"""Moving-window rate limits, shared by all replicas through Redis, kept in memory while Redis is away."""

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

from limits import RateLimitItemPerSecond
from limits.aio.storage import MemoryStorage, RedisStorage
from limits.aio.strategies import MovingWindowRateLimiter
from redis.asyncio import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from arachne.schemas.limits import RateWindow, parse_rate
from arachne.settings import Settings

log = logging.getLogger(__name__)
REDIS_TIMEOUT_S = 0.5
AT_ONCE = 16  # hits counted at once, each on a connection of its own; the others wait
COOL_DOWN_S = 5.0
_SAFETY_S = 0.05  # the window's ends are compared in floating point on two clocks
TOKEN_RATES = {"token_address": "60/minute", "token_client": "30/minute"}


@dataclass(frozen=True)
class Policy:
    """A named limit."""

    name: str
    window: RateWindow

    @property
    def item(self) -> RateLimitItemPerSecond:
        """The limit in the library's form."""
        return RateLimitItemPerSecond(self.window.amount, self.window.window_s)


@dataclass(frozen=True)
class Verdict:
    """How a caller stands with a policy after a hit; times in seconds from now."""

    policy: Policy
    passed: bool
    remaining: int
    reset_s: float
    retry_after_s: float


class Limiter:
    """Counts hits per policy and identity. `in_memory` tells that Redis is away and each process counts alone."""

    def __init__(self, redis_url: str) -> None:
        self._pool = ConnectionPool.from_url(
            redis_url, socket_timeout=REDIS_TIMEOUT_S, socket_connect_timeout=REDIS_TIMEOUT_S
        )
        shared = RedisStorage(
            _storage_url(redis_url),
            implementation="redispy",
            key_prefix="arachne:limits",
            connection_pool=self._pool,  # type: ignore[arg-type]  # documented, but not in its annotation
            retry=Retry(NoBackoff(), 0),  # type: ignore[arg-type]  # handed on to the client
        )
        self._shared = MovingWindowRateLimiter(shared)
        self._local = MovingWindowRateLimiter(MemoryStorage())
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._away = False
        self._try_again_s = 0.0

    @property
    def in_memory(self) -> bool:
        """Whether hits are counted by this process alone just now."""
        return self._away

    async def hit(self, policy: Policy, *identity: str, cost: int = 1) -> Verdict:
        """The verdict on `cost` more hits; refused hits cost nothing."""
        key = identify(*identity)
        async with self._gate:
            if not self._away or self._may_try_again():
                try:
                    verdict = await self._hit(self._shared, policy, key, cost)
                except (RedisError, OSError) as error:
                    self._note(error)
                else:
                    self._note(None)
                    return verdict
        return await self._hit(self._local, policy, key, cost)

    def _may_try_again(self) -> bool:
        """Whether this hit is the one that looks whether Redis is back; the others don't wait for that."""
        now_s = time.monotonic()
        if now_s < self._try_again_s:
            return False
        self._try_again_s = now_s + COOL_DOWN_S
        return True

    def _note(self, error: Exception | None) -> None:
        """Tell once that Redis went away, and once that it is back."""
        if error is not None:
            self._try_again_s = time.monotonic() + COOL_DOWN_S
        if error is not None and not self._away:
            log.warning("rate limits are counted in memory, Redis can't be reached: %s", error)
        if error is None and self._away:
            log.info("rate limits are counted in Redis again")
        self._away = error is not None

    async def _hit(self, limiter: MovingWindowRateLimiter, policy: Policy, key: str, cost: int) -> Verdict:
        passed = await limiter.hit(policy.item, policy.name, key, cost=cost)
        stats = await limiter.get_window_stats(policy.item, policy.name, key)
        reset_s = max(0.0, stats.reset_time - time.time())
        # With several hits at once the oldest one's leaving need not make room enough; the whole window does.
        wait_s = reset_s if cost == 1 else float(policy.window.window_s)
        return Verdict(policy, passed, max(0, stats.remaining), reset_s, 0.0 if passed else wait_s + _SAFETY_S)

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.aclose()


def policies(settings: Settings, overrides: Mapping[str, str] | None = None) -> dict[str, Policy]:
    """The policies by name: the settings' rates, those of the caller's plan over them."""
    rates = TOKEN_RATES | {
        "vision": settings.vision_rate_limit,
        "images": settings.image_rate_limit,
        "reads": settings.read_rate_limit,
        "other": settings.other_rate_limit,
    }
    rates |= {name: rate for name, rate in (overrides or {}).items() if name in rates}
    return {name: Policy(name, parse_rate(rate)) for name, rate in rates.items()}


def headers(verdicts: Mapping[str, Verdict]) -> dict[str, str]:
    """The headers that tell how the caller stands, the X- ones for the policy nearest its limit.

    Source: draft-ietf-httpapi-ratelimit-headers.
    """
    found = list(verdicts.values())
    nearest = min(found, key=lambda verdict: (verdict.passed, verdict.remaining / verdict.policy.window.amount))
    return {
        "RateLimit-Policy": ", ".join(
            f'"{v.policy.name}";q={v.policy.window.amount};w={v.policy.window.window_s}' for v in found
        ),
        "RateLimit": ", ".join(f'"{v.policy.name}";r={v.remaining};t={math.ceil(v.reset_s)}' for v in found),
        "X-RateLimit-Limit": str(nearest.policy.window.amount),
        "X-RateLimit-Remaining": str(nearest.remaining),
        "X-RateLimit-Reset": str(math.ceil(time.time() + nearest.reset_s)),
    }


def identify(*parts: str) -> str:
    """One key for several texts, none of which can pass for another division of the same letters."""
    framed = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(framed.encode("utf-8", "surrogatepass")).hexdigest()


def _storage_url(redis_url: str) -> str:
    if redis_url.startswith("unix://"):
        return f"async+redis+{redis_url}"
    return f"async+{redis_url}"
