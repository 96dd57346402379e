"""A process whose wall clock jumps: two days ahead at SIGUSR1, two days back at SIGUSR2, seen from where it began."""

import datetime as dt
import signal
import sys
import time

JUMP_S = 172_800.0
_real_time = time.time
_offset_s = 0.0


class SkewedDatetime(dt.datetime):
    """The time by the clock that jumped."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
        """The wrong time."""
        return dt.datetime.now(tz) + dt.timedelta(seconds=_offset_s)


def jump_at_signals() -> None:
    """Every module of ours that is loaded by now goes by the clock that jumps."""
    time.time = lambda: _real_time() + _offset_s
    for name, module in list(sys.modules.items()):
        if name.startswith("arachne") and getattr(module, "datetime", None) is dt.datetime:
            vars(module)["datetime"] = SkewedDatetime
    signal.signal(signal.SIGUSR1, lambda *_: _jump(JUMP_S))
    signal.signal(signal.SIGUSR2, lambda *_: _jump(-JUMP_S))


def _jump(offset_s: float) -> None:
    global _offset_s  # noqa: PLW0603  # a process has one clock
    _offset_s = offset_s
