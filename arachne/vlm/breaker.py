"""A circuit breaker: while a server is ill nobody waits for it, and one request at a time finds out if it is well."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

from arachne.errors import VlmError, VlmUnreachable

BreakerState = Literal["closed", "open", "half_open"]
_LONGEST: Final = 6  # times the first wait


class Breaker:
    """Closed while all is well, open after `failures` in a row, half open while one request tries.

    Each trial that fails makes the next wait twice as long, up to six times `open_s`. Not for several threads.
    """

    def __init__(self, failures: int = 5, open_s: float = 5.0, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._open_s, self._clock = failures, open_s, clock
        self._failures = 0
        self._opened_at: float | None = None
        self._wait_s = open_s
        self._trial: object | None = None

    @property
    def state(self) -> BreakerState:
        """As the next request finds it."""
        if self._opened_at is None:
            return "closed"
        return "half_open" if self._trial is not None or self.retry_in_s == 0 else "open"

    @property
    def retry_in_s(self) -> float:
        """Seconds until a request may try again; 0 where one may now."""
        if self._opened_at is None:
            return 0.0
        return max(0.0, self._opened_at + self._wait_s - self._clock())

    @property
    def admits(self) -> bool:
        """Whether a request may pass now."""
        return self._opened_at is None or (self._trial is None and self.retry_in_s == 0)

    @contextmanager
    def passage(self) -> Iterator[None]:
        """One request's way to the server; how it ends is what the breaker learns.

        An answer, a refusal included, shows that the server is well; a cancelled request shows nothing.

        Raises:
            VlmUnreachable: the breaker is open.
        """
        ticket = self._enter()
        try:
            yield
        except VlmError as error:
            self._learn(ticket, well=not error.server_at_fault)
            raise
        except BaseException:
            self._leave(ticket)
            raise
        else:
            self._learn(ticket, well=True)

    def _enter(self) -> object:
        if not self.admits:
            raise VlmUnreachable(
                f"The model server failed {self._failures} times in a row and is left alone for a while.",
                retry_after_s=self.retry_in_s,
            )
        ticket = object()
        if self._opened_at is not None:
            self._trial = ticket
        return ticket

    def _leave(self, ticket: object) -> bool:
        """Give the trial's place back; whether it was this ticket's."""
        tried = self._trial is ticket
        if tried:
            self._trial = None
        return tried

    def _learn(self, ticket: object, *, well: bool) -> None:
        tried = self._leave(ticket)
        if well:
            self._failures, self._opened_at, self._wait_s = 0, None, self._open_s
            return
        self._failures += 1
        if tried:
            self._wait_s = min(2 * self._wait_s, _LONGEST * self._open_s)
            self._opened_at = self._clock()
        elif self._opened_at is None and self._failures >= self._most:
            self._opened_at = self._clock()
