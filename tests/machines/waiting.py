"""Waiting for a state that has to come."""

import time
from collections.abc import Callable

PATIENCE_S = 120.0


def eventually(holds: Callable[[], object], patience_s: float = PATIENCE_S, pause_s: float = 0.05) -> None:
    """Return once it holds; fail after `patience_s`."""
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(pause_s)
