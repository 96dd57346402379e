"""Processors that may be used: the files a kernel shows, laid out as it does.

Source: cgroups(7), proc_pid_mountinfo(5), and what a host and containers of both versions were seen to show.
"""

import os
from pathlib import Path

import pytest

from arachne.processors import count_processors
from arachne.settings import Settings

SECOND = "30 23 0:26 {part} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw,nsdelegate\n"
FIRST = "33 32 0:29 {part} /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
OTHERS = "24 1 8:1 / / rw - ext4 /dev/root rw\n34 32 0:30 / /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"


@pytest.fixture(autouse=True)
def eight_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler would let this process run on eight."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


def lay(root: Path, mounts: str, groups: str, limits: dict[str, str]) -> Path:
    """A root folder with these files of the kernel's."""
    files = {"proc/self/mountinfo": OTHERS + mounts, "proc/self/cgroup": groups}
    for name, text in (files | {f"sys/fs/cgroup/{name}": text for name, text in limits.items()}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("quota", "processors"),
    [
        ("max 100000", 8), ("200000 100000", 2), ("150000 100000", 2), ("50000 100000", 1), ("1000 100000", 1),
        ("3200000 100000", 8), ("20000 10000", 2), ("", 8), ("200000 0", 8), ("many 100000", 8),
    ],
)  # fmt: skip
def test_a_container_of_its_own_hierarchy(tmp_path: Path, quota: str, processors: int) -> None:
    """Its group is the root that it sees; parts of a processor round up; what can't be read limits nothing."""
    root = lay(tmp_path, SECOND.format(part="/"), "0::/\n", {"cpu.max": quota + "\n"})
    assert count_processors(root) == processors


def test_the_least_limit_above_counts(tmp_path: Path) -> None:
    """A service of a slice: the one above may be the narrower; those beside it are others'."""
    limits = {
        "system.slice/cpu.max": "300000 100000",
        "system.slice/a.service/cpu.max": "600000 100000",
        "system.slice/b.service/cpu.max": "100000 100000",
    }
    root = lay(tmp_path, SECOND.format(part="/"), "0::/system.slice/a.service\n", limits)
    assert count_processors(root) == 3


@pytest.mark.parametrize("group", ["/docker/4f1", "/", "/docker/4f10", "/../4f1"])
def test_the_first_version_mounts_only_the_containers_part(tmp_path: Path, group: str) -> None:
    """The group is told by its whole path while its folder alone is mounted; one from elsewhere is that folder too."""
    limits = {"cpu,cpuacct/cpu.cfs_quota_us": "200000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}
    groups = f"5:memory:/docker/4f1\n3:cpuacct,cpu:{group}\n0::/docker/4f1\n"
    root = lay(tmp_path, FIRST.format(part="/docker/4f1"), groups, limits)
    assert count_processors(root) == 2
    (root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us").write_text("-1\n")
    assert count_processors(root) == 8


def test_affinity_counts_where_it_is_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert count_processors(lay(tmp_path, SECOND.format(part="/"), "0::/\n", {"cpu.max": "400000 100000"})) == 2
    assert count_processors(tmp_path / "without") == 2


def test_a_worker_has_as_many_stage_subprocesses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it is told."""
    root = lay(tmp_path, SECOND.format(part="/"), "0::/\n", {"cpu.max": "300000 100000"})
    monkeypatch.setattr("arachne.processors._ROOT", root)
    monkeypatch.delenv("ARACHNE_CPU_WORKERS", raising=False)
    assert Settings(_env_file=None).cpu_workers == 3
    assert Settings(_env_file=None, cpu_workers=5).cpu_workers == 5
