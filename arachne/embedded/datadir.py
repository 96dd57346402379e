"""The data folder of one installation: who holds it, and what lies where."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arachne.errors import SetupError

_LOCK = "lock"


@contextmanager
def hold(data_dir: Path) -> Iterator[None]:
    """`data_dir` exists and is ours alone; the kernel frees it when this process ends, however it ends.

    Raises:
        SetupError: another process holds it (names its pid), or it can't be written.
    """
    try:
        for folder in (data_dir, data_dir / "logs"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(data_dir / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SetupError(f"The data folder {data_dir} can't be used: {error.strerror}. Choose another.") from error
    try:
        if not _lock(descriptor):
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            raise SetupError(
                f"The data folder {data_dir} is in use by process {holder}. Stop it, or choose another --data-dir."
            )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    for _ in range(5):  # `is_held` of another process takes the lock for an instant
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        else:
            return True
    return False


def is_held(data_dir: Path) -> bool:
    """Whether a living process holds `data_dir`."""
    try:
        descriptor = os.open(data_dir / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def log_file(data_dir: Path, part: str) -> Path:
    """Where the output of `part` goes."""
    return data_dir / "logs" / f"{part}.log"
