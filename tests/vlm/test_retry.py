"""Asking again: how often, after which waits, and for which errors."""

import pytest

from arachne.errors import VlmBusy, VlmError, VlmFailed, VlmRefused, VlmTimedOut
from arachne.vlm import Retry


class Attempts:
    """Fails with each error in turn, then succeeds; keeps what was waited."""

    def __init__(self, *errors: VlmError) -> None:
        self.errors = list(errors)
        self.made = 0
        self.waits: list[float] = []

    async def __call__(self) -> str:
        """One attempt."""
        self.made += 1
        if self.errors:
            raise self.errors.pop(0)
        return "an answer"

    async def sleep(self, wait_s: float) -> None:
        """Wait no time at all."""
        self.waits.append(wait_s)


async def run(attempts: Attempts, retry: Retry, fraction: float = 0.0) -> str:
    return await retry.run(attempts, sleep=attempts.sleep, fraction=lambda: fraction)


async def test_waits_double_up_to_the_longest() -> None:
    """And no more attempts are made than allowed."""
    attempts = Attempts(*[VlmFailed("x")] * 9)
    with pytest.raises(VlmFailed):
        await run(attempts, Retry(attempts=6, first_s=1, longest_s=5))
    assert (attempts.made, attempts.waits) == (6, [1, 2, 4, 5, 5])


async def test_waits_differ_at_random() -> None:
    """By up to half, so that many who failed together don't come back together."""
    attempts = Attempts(VlmFailed("x"), VlmFailed("x"))
    assert await run(attempts, Retry(first_s=1), fraction=1.0) == "an answer"
    assert attempts.waits == [0.5, 1]


async def test_a_busy_server_is_given_the_time_it_asks_for() -> None:
    """Within the longest wait."""
    attempts = Attempts(VlmBusy("x", retry_after_s=3), VlmBusy("x", retry_after_s=3600))
    assert await run(attempts, Retry(first_s=0.1, longest_s=8)) == "an answer"
    assert attempts.waits == [3, 8]


async def test_timeouts_are_tried_once_more_only() -> None:
    """Each takes as long as all else together."""
    attempts = Attempts(*[VlmTimedOut("x")] * 9)
    with pytest.raises(VlmTimedOut):
        await run(attempts, Retry(attempts=5))
    assert attempts.made == 2


async def test_what_asking_again_can_not_mend_is_asked_once() -> None:
    """A refusal stands."""
    attempts = Attempts(VlmRefused("x"))
    with pytest.raises(VlmRefused):
        await run(attempts, Retry())
    assert (attempts.made, attempts.waits) == (1, [])
