"""The supervisor: what dies comes back, what can't start says why, and nothing outlives it."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from arachne.embedded import journal, supervisor
from arachne.embedded.journal import Echo, Journal
from arachne.embedded.process import ourselves, spawn
from arachne.embedded.supervisor import Part, Supervisor
from arachne.errors import SetupError

pytestmark = pytest.mark.processes

STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN); print('on', flush=True); signal.pause()"
PATIENT = "import signal; print('on', flush=True); signal.pause()"
PARENT = (
    "import signal, subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']);"
    "print('child', child.pid, flush=True); signal.pause()"
)


class Stage:
    """One supervised script, its log, and what was said and done about it."""

    def __init__(self, folder: Path, script: str) -> None:
        self.log = folder / "part.log"
        self.shown = io.StringIO()
        self.echo = Echo(self.shown)
        self.deaths: list[tuple[str, int]] = []
        self.started: list[subprocess.Popen[bytes]] = []
        self._script = script
        part = Part("part", self._start, self.log, Journal("part", self.log, self.echo))
        self.supervisor = Supervisor([part], echo=self.echo, on_death=lambda name, pid: self.deaths.append((name, pid)))

    def _start(self) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", self._script]
        owner, env = ourselves(), dict(os.environ)
        self.started.append(spawn(argv, log=None, cwd=None, owner=owner, death_signal=signal.SIGKILL, env=env))
        return self.started[-1]

    def run(self, on_tick: Callable[[], None], grace_s: float = 5) -> None:
        """Supervise; `on_tick` ends it by calling `supervisor.stop`. A minute is the limit."""
        limit = threading.Timer(60, self.supervisor.stop)
        limit.start()
        try:
            self.supervisor.run(on_tick, grace_s=grace_s)
        finally:
            limit.cancel()
            self.echo.flush()

    def logged(self) -> str:
        """What is in the part's log so far."""
        return self.log.read_text() if self.log.exists() else ""


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has reaped yet doesn't."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between restarts that a test can wait for."""
    monkeypatch.setattr(supervisor, "_FIRST_PAUSE_S", 0.01)


@pytest.mark.usefixtures("quick")
def test_killed_part_is_restarted_and_its_death_reported(tmp_path: Path) -> None:
    """SIGKILL, however often, never makes the supervisor give up; each death is reported with its pid."""
    stage = Stage(tmp_path, PATIENT)
    kills = 7

    def kill_or_stop() -> None:
        if len(stage.deaths) == kills:
            stage.supervisor.stop()
        elif len(stage.started) == len(stage.deaths) + 1 and stage.logged().count("on\n") == len(stage.started):
            stage.started[-1].kill()

    stage.run(kill_or_stop)
    assert stage.deaths[:kills] == [("part", process.pid) for process in stage.started[:kills]]
    assert "was ended by SIGKILL; starting it again" in stage.shown.getvalue()


@pytest.mark.usefixtures("quick")
def test_start_that_the_machine_refuses_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory for a process just now, however often: the part starts once there is, and nothing else falls."""
    monkeypatch.setattr(supervisor, "_LONGEST_PAUSE_S", 0.01)
    stage, spawned, refusals = Stage(tmp_path, PATIENT), spawn, 0

    def refuse(*args: object, **options: object) -> subprocess.Popen[bytes]:
        nonlocal refusals
        refusals += 1
        if refusals <= 7:
            raise BlockingIOError("Resource temporarily unavailable")
        return spawned(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(f"{__name__}.spawn", refuse)
    stage.run(lambda: stage.supervisor.stop() if stage.logged() else None)
    assert len(stage.started) == 1
    assert "can't be started (Resource temporarily unavailable)" in stage.shown.getvalue()


def test_part_that_cannot_start_says_why(tmp_path: Path) -> None:
    """After some quick failures in a row the supervisor ends with the part's name, status and last words."""
    stage = Stage(tmp_path, "import sys; sys.exit('no such database')")
    with pytest.raises(SetupError, match=r"part can't start: process \d+ ended with status 1(?s:.*)no such database"):
        stage.run(lambda: None)
    assert len(stage.started) == supervisor._MAX_QUICK_FAILURES


def test_stop_is_gentle_first(tmp_path: Path) -> None:
    """A part that ends on SIGTERM is not killed."""
    stage = Stage(tmp_path, PATIENT)
    stage.run(lambda: stage.supervisor.stop() if "on" in stage.logged() else None)
    assert [process.returncode for process in stage.started] == [-signal.SIGTERM]


def test_stop_is_bounded(tmp_path: Path) -> None:
    """A part that ignores SIGTERM is killed when the time is up."""
    stage = Stage(tmp_path, STUBBORN)
    stage.run(lambda: stage.supervisor.stop() if "on" in stage.logged() else None, grace_s=0.2)
    assert [process.returncode for process in stage.started] == [-signal.SIGKILL]


def test_second_stop_hurries(tmp_path: Path) -> None:
    """Ctrl-C twice doesn't wait for the time to be up."""
    stage = Stage(tmp_path, STUBBORN)

    def stop_twice() -> None:
        if "on" in stage.logged():
            stage.supervisor.stop()
            stage.supervisor.stop()

    started = time.monotonic()
    stage.run(stop_twice, grace_s=50)
    assert time.monotonic() - started < 40


def test_children_of_a_part_go_with_it(tmp_path: Path) -> None:
    """What a part started and left behind is gone when the supervisor is."""
    stage = Stage(tmp_path, PARENT)
    stage.run(lambda: stage.supervisor.stop() if "\n" in stage.logged() else None)
    child = int(stage.logged().split()[1])
    deadline = time.monotonic() + 30
    while is_alive(child) and time.monotonic() < deadline:  # the kernel takes a moment to carry a kill out
        time.sleep(0.01)
    assert not is_alive(child)


@pytest.mark.usefixtures("quick")
def test_every_line_is_kept_and_shown(tmp_path: Path) -> None:
    """Output lands in the log and, with the part's name in front, on stderr; a torn last line too."""
    stage = Stage(tmp_path, "import sys; print('whole'); sys.stderr.write('torn'); sys.exit(1)")
    with pytest.raises(SetupError):
        stage.run(lambda: None)
    assert "whole\ntorn\n" in stage.logged() or "tornwhole\n" in stage.logged()
    assert "part       whole\n" in stage.shown.getvalue()


def test_reader_that_stops_reading_stops_nobody() -> None:
    """With nobody reading stderr, lines are dropped and those who say them don't wait."""
    read_end, write_end = os.pipe()
    echo = Echo(io.TextIOWrapper(io.FileIO(write_end, "w"), write_through=True))
    for _ in range(5000):
        echo.say("part", "x" * 200)
    os.close(read_end)
    echo.flush()


def test_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full log becomes the one former log, readable by its owner only, and a new one begins."""
    monkeypatch.setattr(journal, "_MAX_LOG_BYTES", 1000)
    log = tmp_path / "part.log"
    kept = Journal("part", log, Echo(io.StringIO()))
    for _ in range(50):
        kept._take(b"y" * 99 + b"\n")
    kept.close()
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes.keys() == {"part.log", "part.log.1"}
    assert max(sizes.values()) <= 1100
    assert log.with_name("part.log.1").stat().st_mode & 0o077 == 0


def test_full_disk_ends_nobody(tmp_path: Path) -> None:
    """What can't be written to the log is still shown, and it is said once that the log lacks it."""
    shown = io.StringIO()
    echo = Echo(shown)
    full = Journal("part", Path("/dev/full"), echo)
    reader, writer = os.pipe2(os.O_NONBLOCK)
    for line in (b"one\n", b"two\n"):
        os.write(writer, line)
        assert full.read(reader)
    echo.flush()
    for end in (reader, writer):
        os.close(end)
    full.close()
    lines = [line.split(maxsplit=1)[1] for line in shown.getvalue().splitlines()]
    assert lines == ["the log /dev/full can't be written: No space left on device", "one", "two"]
