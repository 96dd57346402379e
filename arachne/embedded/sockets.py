"""The short, private folder that the servers' Unix sockets lie in."""

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from arachne.embedded.process import Owner
from arachne.errors import SetupError

_PATH_BYTES = 107  # sockaddr_un.sun_path without its closing NUL
_LONGEST_NAME = len("/.s.PGSQL.5432.lock")
_PREFIX = "arachne-"
_STALE_S = 60.0


@contextmanager
def socket_dir(data_dir: Path, owner: Owner) -> Iterator[Path]:
    """A folder of `owner` alone with a path short enough for sockets, the same for the same `data_dir`.

    Raises:
        SetupError: no folder for temporary files can be used.
    """
    folder, descriptor = _make(data_dir, owner)
    try:
        _sweep(folder.parent, owner)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # what can't be removed is swept another time
        os.close(descriptor)


def _make(data_dir: Path, owner: Owner) -> tuple[Path, int]:
    """The folder, and its descriptor with the lock that says it is in use (systemd-tmpfiles heeds it too)."""
    name = _PREFIX + hashlib.sha256(f"{os.geteuid()}:{data_dir.resolve()}".encode()).hexdigest()[:12]
    for parent in dict.fromkeys((Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))):  # noqa: S108
        folder = parent / name
        if len(os.fsencode(folder)) + _LONGEST_NAME > _PATH_BYTES:
            continue
        with suppress(OSError):
            if owner.reaches(folder) and (descriptor := _take(folder, owner)) is not None:
                return folder, descriptor
    raise SetupError("No short, private folder for sockets could be made: set TMPDIR to a folder such as /tmp.")


def _take(folder: Path, owner: Owner) -> int | None:
    """A descriptor of `folder`, made or taken over; None if it is somebody else's, planted where ours would be."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if os.fstat(descriptor).st_uid not in {owner.uid, os.geteuid()}:
        os.close(descriptor)
        return None
    if owner.name is not None:
        os.fchown(descriptor, owner.uid, owner.gid)
    os.fchmod(descriptor, 0o700)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _sweep(parent: Path, owner: Owner) -> None:
    """Folders of ours that killed processes left in `parent` are gone."""
    for folder in parent.glob(f"{_PREFIX}{'[0-9a-f]' * 12}"):
        with suppress(OSError):  # gone meanwhile, or in use: then it can't be locked
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                if status.st_uid == owner.uid and time.time() - status.st_mtime > _STALE_S:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
