"""The data folder of one installation: who holds it, what lies where, and the short folder for sockets."""

import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from arachne.embedded.process import Owner
from arachne.errors import SetupError

_SOCKET_PATH_BYTES = 107  # sockaddr_un.sun_path without its closing NUL
_LONGEST_SOCKET_NAME = len("/.s.PGSQL.5432.lock")
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


@contextmanager
def socket_dir(data_dir: Path, owner: Owner) -> Iterator[Path]:
    """A private folder with a path short enough for Unix sockets, the same for the same `data_dir`.

    Raises:
        SetupError: no folder for temporary files can be used.
    """
    folder = _make_socket_dir(data_dir, owner)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # systemd-tmpfiles leaves locked folders alone
        yield folder
    finally:
        os.close(descriptor)
        for left_over in folder.iterdir():
            left_over.unlink(missing_ok=True)
        with suppress(OSError):  # something of another owner in it: not ours to judge
            folder.rmdir()


def _make_socket_dir(data_dir: Path, owner: Owner) -> Path:
    name = "arachne-" + hashlib.sha256(f"{os.geteuid()}:{data_dir.resolve()}".encode()).hexdigest()[:12]
    for parent in dict.fromkeys((Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))):  # noqa: S108
        folder = parent / name
        if len(os.fsencode(folder)) + _LONGEST_SOCKET_NAME > _SOCKET_PATH_BYTES or not owner.reaches(folder):
            continue
        with suppress(OSError):
            owner_is_right = not folder.exists() or folder.lstat().st_uid in {owner.uid, os.geteuid()}
            if owner_is_right and not folder.is_symlink():
                owner.take(folder)
                return folder
    raise SetupError("No short, private folder for sockets could be made: set TMPDIR to a folder such as /tmp.")
