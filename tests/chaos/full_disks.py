"""Folders on a disk of a few kilobytes: a small file system where this user may make one, else a limit on files."""

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

SIZE_BYTES = 128 * 1024
# Root needs no user namespace, in which it would have no way into other users' folders.
_UNSHARE = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")))


def may_mount() -> bool:
    """Whether this user may mount anything in a namespace of its own."""
    try:
        tried = subprocess.run([*_UNSHARE, "mount", "-t", "tmpfs", "none", "/tmp"], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return tried.returncode == 0


def small_disks(*folders: Path) -> Sequence[str]:
    """Words of a command that starts another one, to which each folder is a disk of its own, of `SIZE_BYTES`."""
    mounts = [f"mount -t tmpfs -o size={SIZE_BYTES} none {shlex.quote(str(folder))}" for folder in folders]
    return [*_UNSHARE, "sh", "-c", " && ".join([*mounts, 'exec "$@"']), "sh"]


def small_files() -> Sequence[str]:
    """Words of a command that starts another one, which can't write a file of more than `SIZE_BYTES`."""
    return ["prlimit", f"--fsize={SIZE_BYTES}"]
