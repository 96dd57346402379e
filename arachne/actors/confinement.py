"""What every subprocess that touches untrusted images is bound by: its parent's life and a bound on its memory."""

import ctypes
import os
import resource
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def confine(parent_pid: int, memory_bytes: int) -> None:
    """Nothing; this process dies with its parent, and may take `memory_bytes` more than it has now."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # code in C would never see a handler run
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent ends us
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)
    Path("/proc/self/oom_score_adj").write_text("1000")
    bound = _memory_bytes(0) + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))


def resident_bytes() -> int:
    """Memory this process really has now."""
    return _memory_bytes(1)


def _memory_bytes(column: int) -> int:
    """Source: proc(5), statm: 0 is the address space, 1 what is resident."""
    return int(Path("/proc/self/statm").read_text().split()[column]) * resource.getpagesize()


def return_free_memory() -> None:
    """Give the allocator's free pages back; it keeps them otherwise, each size of picture adding some of its own."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; others don't need it
    if trim is not None:
        trim(0)
