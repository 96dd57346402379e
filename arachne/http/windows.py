"""Moving windows kept by one process: what it let pass lately, whoever counts it besides."""

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from arachne.schemas.limits import RateWindow


@dataclass(frozen=True)
class Policy:
    """A named limit."""

    name: str
    window: RateWindow


class Stand(NamedTuple):
    """How a caller stands with a policy: hits left, seconds until the oldest one counts no more, and until some pass.

    `wait_s` is 0 where as many as were asked about would pass now.
    """

    remaining: int
    reset_s: float
    wait_s: float


@dataclass(eq=False, slots=True)
class Hit:
    """Some hits at once."""

    at_s: float
    cost: int


@dataclass(slots=True)
class _Window:
    hits: deque[Hit] = field(default_factory=deque)
    used: int = 0


class Windows:
    """Hits by policy and key. Whatever counts no more is forgotten, so that memory is as large as the windows are."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[Policy, OrderedDict[str, _Window]] = {}

    def take(self, policy: Policy, key: str, cost: int) -> Hit | None:
        """The hits, counted from now on; None where the window has no room for them."""
        windows = self._windows.setdefault(policy, OrderedDict())
        self._forget(windows, policy)
        window = windows.setdefault(key, _Window())
        self._expire(window, policy)
        if window.used + cost > policy.window.amount:
            return None
        windows.move_to_end(key)
        hit = Hit(self._clock(), cost)
        window.hits.append(hit)
        window.used += cost
        return hit

    def give_back(self, policy: Policy, key: str, hit: Hit) -> None:
        """The hits don't count: somebody else refused them."""
        window = self._windows[policy].get(key)
        if window is not None and hit in window.hits:
            window.hits.remove(hit)
            window.used -= hit.cost

    def stand(self, policy: Policy, key: str, cost: int) -> Stand:
        """How things are, with `cost` more hits in mind."""
        windows = self._windows.get(policy)
        window = (windows.get(key) if windows else None) or _Window()
        self._expire(window, policy)
        amount, window_s = policy.window
        now_s = self._clock()
        reset_s = window.hits[0].at_s + window_s - now_s if window.hits else float(window_s)
        excess, wait_s = window.used + cost - amount, 0.0
        for hit in window.hits:
            if excess <= 0:
                break
            excess, wait_s = excess - hit.cost, hit.at_s + window_s - now_s
        return Stand(amount - window.used, reset_s, wait_s)

    def _expire(self, window: _Window, policy: Policy) -> None:
        limit_s = self._clock() - policy.window.window_s
        while window.hits and window.hits[0].at_s < limit_s:
            window.used -= window.hits.popleft().cost

    def _forget(self, windows: OrderedDict[str, _Window], policy: Policy) -> None:
        """Those that were hit longest ago come first: as far as they are empty, they go."""
        while windows:
            key, window = next(iter(windows.items()))
            self._expire(window, policy)
            if window.hits:
                return
            del windows[key]
