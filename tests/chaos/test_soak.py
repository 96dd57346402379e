"""The whole service over many jobs: everything is read and told, and nothing piles up."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.chaos
JOBS = 200
PARTS = {"api", "gpu", "gpu_subprocesses", "io", "scheduler"}
# The pools of all parts, full, and what each keeps beside them: to listen, to beat, to tell.
CONNECTIONS = 80


def soak(*words: str) -> dict[str, object]:
    """What the script printed."""
    script = Path(__file__).parents[2] / "scripts" / "bench" / "soak.py"
    done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    told: dict[str, object] = json.loads(done.stdout)
    return told


def test_many_jobs_leave_memory_and_connections_as_they_were() -> None:
    """Short as it is, this would see each job keep a megabyte or a connection; `scripts/bench/soak` sees more."""
    told = soak(str(JOBS))
    assert (told["images"], told["failed"], told["deliveries"]) == (JOBS, 0, JOBS)
    early, late = told["mib_after_warm_up"], told["mib_at_end"]
    assert isinstance(early, dict)
    assert isinstance(late, dict)
    assert set(early) == set(late) == PARTS
    grown = {name: late[name] - early[name] for name in PARTS if late[name] - early[name] > JOBS * 0.7}
    assert grown == {}
    most = told["most_connections"]
    assert isinstance(most, dict)
    assert 0 < most["postgres"] <= CONNECTIONS
    assert 0 < most["redis"] <= CONNECTIONS


def test_whole_screenshots_are_read_too() -> None:
    """A few suffice to see that it starts, reads, and prints its figures."""
    told = soak("2", "--batch", "2", "--detail-level", "fast")
    assert (told["images"], told["failed"]) == (4, 0)
