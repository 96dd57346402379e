"""Child processes that never outlive their owner, and the user that embedded servers run as."""

import ctypes
import os
import pwd
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Owner:
    """The user a server runs as; `name` is None where that is simply the user we are."""

    name: str | None
    uid: int
    gid: int

    @property
    def user(self) -> int | None:
        """For `subprocess`: the user to become."""
        return None if self.name is None else self.uid

    @property
    def group(self) -> int | None:
        """For `subprocess`: the group to become."""
        return None if self.name is None else self.gid

    @property
    def extra_groups(self) -> list[int] | None:
        """For `subprocess`: no further groups for somebody else."""
        return None if self.name is None else []

    def take(self, folder: Path) -> None:
        """`folder` exists, belongs to this owner and is closed to everybody else."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.name is not None:
            os.chown(folder, self.uid, self.gid)
        folder.chmod(0o700)

    def reaches(self, path: Path) -> bool:
        """Whether every folder above `path` lets this owner through."""
        if self.name is None:
            return True
        return all(_lets_through(folder, self) for folder in path.resolve().parents)


def ourselves() -> Owner:
    """The user we are."""
    return Owner(None, os.geteuid(), os.getegid())


def server_owner() -> Owner:
    """`nobody` for root, since PostgreSQL refuses to run as root; otherwise ourselves."""
    if os.geteuid() != 0:
        return ourselves()
    nobody = pwd.getpwnam("nobody")
    return Owner(nobody.pw_name, nobody.pw_uid, nobody.pw_gid)


def _lets_through(folder: Path, owner: Owner) -> bool:
    status = folder.stat()
    if status.st_uid == owner.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    return bool(status.st_mode & stat.S_IXOTH)


def spawn(
    argv: Sequence[str | Path],
    *,
    log: Path | None,
    cwd: Path | None,
    owner: Owner,
    death_signal: signal.Signals,
    env: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    """The started child, leader of a group of its own, its output in `log` or in a pipe.

    It gets `death_signal` when the calling *thread* ends, however it ends (the kernel watches threads here), so call
    this from a thread that lives as long as the child should.
    Source: prctl(2), PR_SET_PDEATHSIG; it is lost on setuid, so it is set after it, right before exec.
    """
    with log.open("ab") if log else nullcontext(subprocess.PIPE) as output:
        return subprocess.Popen(  # noqa: S603  # argv is ours
            [os.fspath(word) for word in argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=env,
            start_new_session=True,
            preexec_fn=_tie_to_us(death_signal),  # noqa: PLW1509  # a few system calls, no locks
            user=owner.user,
            group=owner.group,
            extra_groups=owner.extra_groups,
        )


def _tie_to_us(death_signal: signal.Signals) -> Callable[[], None]:
    parent = os.getpid()

    def tie() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, death_signal.value)
        if os.getppid() != parent:  # the parent died between fork and prctl
            os._exit(1)

    return tie


def stop(process: subprocess.Popen[bytes], gentle: signal.Signals, *, timeout_s: float) -> int:
    """The exit status of `process`, asked with `gentle` and killed if that takes over `timeout_s`."""
    if process.poll() is None:
        process.send_signal(gentle)
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def await_former(pid_file: Path, mark: str, *, timeout_s: float = 30.0) -> None:
    """`pid_file` is gone, and so is the server it named: one whose owner died and that is still closing.

    A server is known by `mark` in its command line. A living process without it only inherited the number, which is
    likely after a restart of the machine or container; PostgreSQL itself would believe it and never start again.
    The caller holds the data folder's lock, so nobody else starts a server meanwhile.
    """
    pid = _read_pid(pid_file)
    deadline = time.monotonic() + timeout_s
    while pid is not None and _is_marked(pid, mark):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            deadline = float("inf")
        time.sleep(0.02)
    pid_file.unlink(missing_ok=True)


def _read_pid(pid_file: Path) -> int | None:
    try:
        return int(pid_file.read_text().splitlines()[0])
    except (FileNotFoundError, ValueError, IndexError):  # none, or torn: the machine went down while it was written
        return None


def _is_marked(pid: int, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()  # empty for a zombie
    except (FileNotFoundError, ProcessLookupError):
        return False


def last_lines(log: Path, count: int = 10) -> str:
    """The end of a log, for an error message."""
    with log.open("rb") as source:
        source.seek(0, os.SEEK_END)
        source.seek(max(0, source.tell() - 8192))
        return "\n".join(source.read().decode(errors="replace").splitlines()[-count:])
