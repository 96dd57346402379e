"""Signals that end a command."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# SIGHUP comes when the terminal is closed; under nohup it is ignored, and stays so.
ENDING = (signal.SIGTERM, signal.SIGHUP)


def heeded() -> list[signal.Signals]:
    """Those that nobody has told this process to ignore."""
    return [one for one in ENDING if signal.getsignal(one) is not signal.SIG_IGN]


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """A block that SIGTERM and SIGHUP end as SIGINT does, so that it says where it stands and leaves nothing behind."""
    former = {one: signal.signal(one, _interrupt) for one in heeded()}
    try:
        yield
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)


def _interrupt(_: int, frame: FrameType | None) -> None:
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):  # an event loop's own, which ends its tasks first
        handler(signal.SIGINT, frame)
    else:  # ignored, as of a background job; these are not
        raise KeyboardInterrupt
