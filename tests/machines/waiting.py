"""Waiting for a state that has to come."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = 120.0


def eventually(look: Callable[[], T], patience_s: float = PATIENCE_S, pause_s: float = 0.02) -> T:
    """What `look` finds once it finds something; fail after `patience_s`."""
    deadline = time.monotonic() + patience_s
    while not (found := look()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(pause_s)
    return found
