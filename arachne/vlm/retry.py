"""Asking again, a bounded number of times, after waits that differ so that not all ask at once."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from arachne.errors import VlmError, VlmTimedOut

Answer = TypeVar("Answer")
Sleep = Callable[[float], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Retry:
    """At most `attempts`, of which `timeouts` may time out; a wait of `first_s`, then twice that, up to `longest_s`.

    Each wait is cut by up to half at random. What a busy server asks for is the least, within `longest_s`.
    """

    attempts: int = 3
    timeouts: int = 2
    first_s: float = 0.25
    longest_s: float = 8.0

    def wait_s(self, failed: int, error: VlmError, fraction: float) -> float:
        """Seconds to wait after the attempt number `failed`, from 1; `fraction` is random, 0 to 1."""
        wait_s = min(self.longest_s, self.first_s * 2.0 ** (failed - 1)) * (1 - fraction / 2)
        return max(wait_s, min(error.retry_after_s or 0.0, self.longest_s))

    async def run(
        self,
        attempt: Callable[[], Awaitable[Answer]],
        *,
        sleep: Sleep = asyncio.sleep,
        fraction: Callable[[], float] = random.random,
    ) -> Answer:
        """What the first attempt that succeeds gives.

        Raises:
            VlmError: the last attempt's, or one that asking again can't mend.
        """
        failed = timed_out = 0
        while True:
            try:
                return await attempt()
            except VlmError as error:
                failed += 1
                timed_out += isinstance(error, VlmTimedOut)
                if not error.retryable or failed >= self.attempts or timed_out >= self.timeouts:
                    raise
                wait_s = self.wait_s(failed, error, fraction())
            await sleep(wait_s)
