"""Moving-window rate limits, shared by all replicas through Redis, kept by each process alone while Redis is away."""

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from limits import RateLimitItemPerSecond
from limits.aio.storage import RedisStorage
from limits.aio.strategies import MovingWindowRateLimiter
from redis.asyncio import ConnectionPool
from redis.exceptions import RedisError

from arachne.http.windows import Policy, Stand, Windows
from arachne.schemas.limits import parse_rate
from arachne.schemas.plan import OF_ACCOUNT
from arachne.settings import Settings

log = logging.getLogger(__name__)
REDIS_TIMEOUT_S = 0.5
AT_ONCE = 16  # hits counted at once, each on a connection of its own; the others wait
COOL_DOWN_S = 1.0
_SAFETY_S = 0.05  # the window's ends are compared in floating point on two clocks
TOKEN_RATES = {"token_address": "60/minute", "token_client": "30/minute"}


@dataclass(frozen=True)
class Verdict:
    """How a caller stands with a policy after a hit; times in seconds from now.

    `retry_after_s` is until as much again would pass: 0 where it would now.
    """

    policy: Policy
    passed: bool
    remaining: int
    reset_s: float
    retry_after_s: float


class Limiter:
    """Counts hits per policy and identity. `in_memory` tells that Redis is away and each process counts alone.

    Each process also keeps what it let pass itself and never exceeds a limit by that count: so a limit holds while
    Redis is away, has come back or was emptied, as far as one process can know.
    """

    def __init__(self, redis_url: str) -> None:
        self._pool = ConnectionPool.from_url(
            redis_url, socket_timeout=REDIS_TIMEOUT_S, socket_connect_timeout=REDIS_TIMEOUT_S
        )
        shared = RedisStorage(
            _storage_url(redis_url),
            implementation="redispy",
            key_prefix="arachne:limits",
            connection_pool=self._pool,  # type: ignore[arg-type]  # documented, but not in its annotation
        )
        self._shared = MovingWindowRateLimiter(shared)
        self._own = Windows()
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
        mine = self._own.take(policy, key, cost)
        passed = mine is not None
        shared = await self._ask(policy, key, cost, counts=passed)
        if mine is not None and shared is not None and not shared[0]:
            self._own.give_back(policy, key, mine)
            passed = False
        return self._judge(policy, key, cost, passed=passed, shared=shared and shared[1])

    async def look(self, policy: Policy, *identity: str, cost: int = 1) -> Verdict:
        """The verdict there would be on `cost` more hits; nothing is counted."""
        key = identify(*identity)
        shared = await self._ask(policy, key, cost, counts=False)
        verdict = self._judge(policy, key, cost, passed=True, shared=shared and shared[1])
        return replace(verdict, passed=not verdict.retry_after_s)

    def _judge(self, policy: Policy, key: str, cost: int, *, passed: bool, shared: Stand | None) -> Verdict:
        stands = [self._own.stand(policy, key, cost), *([shared] if shared else [])]
        nearest = min(stands, key=lambda stand: (stand.remaining, -stand.reset_s))
        wait_s = max(stand.wait_s for stand in stands)
        retry_after_s = max(0.0, wait_s) + _SAFETY_S if wait_s or not passed else 0.0
        return Verdict(policy, passed, max(0, nearest.remaining), max(0.0, nearest.reset_s), retry_after_s)

    async def _ask(self, policy: Policy, key: str, cost: int, *, counts: bool) -> tuple[bool, Stand] | None:
        """Whether the hits pass in Redis, and how it stands there; None while it can't be asked."""
        async with self._gate:
            if self._away and not self._may_try_again():
                return None
            try:
                found = await self._ask_redis(policy, key, cost, counts=counts)
            except (RedisError, OSError) as error:
                self._note(error)
                return None
            self._note(None)
            return found

    async def _ask_redis(self, policy: Policy, key: str, cost: int, *, counts: bool) -> tuple[bool, Stand]:
        item = RateLimitItemPerSecond(policy.window.amount, policy.window.window_s)
        passed = counts and await self._shared.hit(item, policy.name, key, cost=cost)
        stats = await self._shared.get_window_stats(item, policy.name, key)
        reset_s = stats.reset_time - time.time()
        # With several hits at once the oldest one's leaving need not make room enough; the whole window does.
        wait_s = 0.0 if stats.remaining >= cost else reset_s if cost == 1 else float(policy.window.window_s)
        return passed, Stand(stats.remaining, reset_s, wait_s)

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

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.aclose()


def policies(settings: Settings, overrides: Mapping[str, str] | None = None) -> dict[str, Policy]:
    """The policies by name: the settings' rates, those of the caller's plan over them, and its caps of the account."""
    rates = TOKEN_RATES | {
        "vision": settings.vision_rate_limit,
        "images": settings.image_rate_limit,
        "reads": settings.read_rate_limit,
        "other": settings.other_rate_limit,
    }
    given = dict(overrides or {})
    rates |= {name: rate for name, rate in given.items() if name.removeprefix(OF_ACCOUNT) in rates}
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
