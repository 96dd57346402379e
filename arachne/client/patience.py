"""How long and how often something is tried again."""

import asyncio
import random
import time

from arachne.errors import ArachneError

_FIRST_S = 0.25
_LONGEST_S = 15.0


class Patience:
    """Waits between tries, longer each time, as long as a server asks, and not past `max_wait_s` in all."""

    def __init__(self, max_wait_s: float) -> None:
        self._ends_s = time.monotonic() + max_wait_s
        self._tries = 0

    async def wait(self, fault: ArachneError, *, last: bool = False) -> None:
        """Nothing, once it is time to try again; the `last` time it never is.

        Raises:
            ArachneError: the fault itself, where that would be too late.
        """
        backoff_s = min(_FIRST_S * 2**self._tries, _LONGEST_S)
        delay_s = max(fault.retry_after_s or 0.0, 0.0)
        delay_s += backoff_s * random.uniform(0.5, 1.0)  # noqa: S311  # so that many don't come back at once
        if last or time.monotonic() + delay_s > self._ends_s:
            raise fault
        self._tries += 1
        await asyncio.sleep(delay_s)
