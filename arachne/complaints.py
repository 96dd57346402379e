"""What this machine and its servers lack for a while, and faults of our own, told in the log without flooding it."""

import errno
import logging
import os
import time
from collections.abc import Callable
from traceback import format_tb

from arachne.errors import ArachneError

EVERY_S = 60.0
_LACKS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC, errno.ENETDOWN}


class Complaints:
    """Tells of each kind of fault once in a while, and then how often it came meanwhile."""

    def __init__(self, log: logging.Logger, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._told_s: dict[tuple[str, object], float] = {}
        self._untold: dict[tuple[str, object], int] = {}

    def tell(self, what: str, error: Exception) -> None:
        """One line on what this machine lacks; with the place only where nobody knows what the fault is."""
        kind, now_s = (type(error).__name__, getattr(error, "errno", None)), self._clock()
        if now_s - self._told_s.get(kind, -EVERY_S) < EVERY_S:
            self._untold[kind] = self._untold.get(kind, 0) + 1
            return
        self._told_s[kind] = now_s
        untold = self._untold.pop(kind, 0)
        more = f" ({untold} more since the last time it was told)" if untold else ""
        name = f"{type(error).__name__}: {_words(error)}" if _words(error) else type(error).__name__
        where = "" if _words(error) else "\n" + "".join(format_tb(error.__traceback__))
        self._log.error("%s for a %s%s%s", what, name, more, where.rstrip())


def is_lack(error: Exception) -> bool:
    """Whether this machine lacks something, such as files, memory, room or a network: nobody else is to blame."""
    return isinstance(error, OSError) and error.errno in _LACKS


def _words(error: Exception) -> str:
    """What this machine lacks or is set up wrongly; empty where nobody knows, and no text that may hold a URL."""
    if isinstance(error, ArachneError):
        return error.message
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno and is_lack(error) else ""
