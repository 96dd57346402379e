"""How many processors this process may use: those it may run on, or fewer where a control group bounds their time.

Source: cgroups(7), proc_pid_mountinfo(5), the kernel's Documentation/admin-guide/cgroup-v2.rst (`cpu.max`) and
Documentation/scheduler/sched-bwc.rst (`cpu.cfs_quota_us`).
"""

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/")


def count_processors(root: Path | None = None) -> int:
    """The least of what affinity and every control group above this process allow, at least 1; parts round up."""
    allowed = [float(len(os.sched_getaffinity(0))), *_limits(root or _ROOT)]
    return max(1, math.ceil(min(allowed)))


def _limits(root: Path) -> Iterator[float]:
    for mount, group in _groups(root):
        for folder in _upwards(mount, group):
            with suppress(OSError, ValueError, ZeroDivisionError):  # no such file, or a word: no limit here
                yield _limit(folder)


def _limit(folder: Path) -> float:
    """Seconds of processors a second.

    Raises:
        OSError: this group has no such bound.
        ValueError: it is unlimited.
    """
    if (folder / "cpu.max").exists():
        quota, period = (folder / "cpu.max").read_text().split()
    else:
        quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    if int(quota) <= 0:  # -1 in the first version
        raise ValueError("unlimited")
    return int(quota) / int(period)


def _groups(root: Path) -> Iterator[tuple[Path, str]]:
    """Where each hierarchy that bounds processors is mounted, and this process's group below that."""
    try:
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
        groups = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return
    for line in mounts:
        place, _, kind = line.partition(" - ")
        part, point = place.split()[3:5]
        filesystem, _, options = kind.split()[:3]
        for _, controllers, path in groups:
            first = filesystem == "cgroup" and "cpu" in controllers.split(",") and "cpu" in options.split(",")
            if first or (filesystem == "cgroup2" and not controllers):
                yield root / point.lstrip("/"), _below(part, path)


def _below(part: str, path: str) -> str:
    """`path` as it is called below a mount of `part` alone; the mount itself where it is elsewhere."""
    base = part.rstrip("/")
    if ".." in path.split("/") or not f"{path}/".startswith(f"{base}/"):
        return ""
    return path.removeprefix(base).strip("/")


def _upwards(mount: Path, group: str) -> Iterator[Path]:
    folder = mount / group
    yield folder
    while folder != mount:
        folder = folder.parent
        yield folder
