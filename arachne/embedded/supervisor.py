"""Keeps the parts of `arachne up` running: starts, restarts with growing pauses, gives up with the reason, stops."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from arachne.embedded.journal import Echo, Journal
from arachne.embedded.process import last_lines
from arachne.errors import SetupError

_QUICK_S = 10.0
_MAX_QUICK_FAILURES = 5
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
_TICK_S = 0.25
_FORCED = {-signal.SIGKILL, -signal.SIGTERM}  # from outside: says nothing about the part itself


@dataclass(frozen=True, slots=True)
class Part:
    """One process to keep running, the leader of its own group.

    `process` is one that runs already; `stopped_here` is False where somebody else stops it, after all others.
    """

    name: str
    start: Callable[[], subprocess.Popen[bytes]]
    log: Path
    journal: Journal | None = None
    process: subprocess.Popen[bytes] | None = None
    stopped_here: bool = True


@dataclass(slots=True)
class _Watch:
    """A part and what became of it so far."""

    part: Part
    process: subprocess.Popen[bytes] | None = None
    started_at: float = field(default_factory=time.monotonic)
    start_at: float = 0.0
    deaths: int = 0
    quick_failures: int = 0


class Supervisor:
    """Watches parts from the thread that calls `run`, which is also the one their lives are tied to."""

    def __init__(self, parts: Sequence[Part], *, echo: Echo, on_death: Callable[[str, int], None]) -> None:
        self._watches = [_Watch(part, part.process) for part in parts]
        self._echo, self._on_death = echo, on_death
        self._selector = selectors.DefaultSelector()
        self._bell_reader, self._bell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(self._bell_reader, selectors.EVENT_READ, self._drain_bell)
        self._stopping = self._hurried = False

    def stop(self) -> None:
        """Make `run` return, at once if called again; for signal handlers and other threads."""
        self._hurried = self._stopping
        self._stopping = True
        with suppress(OSError):  # full, so it rings anyway, or closed
            os.write(self._bell, b"!")

    def run(self, on_tick: Callable[[], None], *, grace_s: float) -> None:
        """Keep all parts running until `stop`; then none of those started here is left after `grace_s`.

        Raises:
            SetupError: a part ended quickly again and again; gives its last lines.
        """
        try:
            with self._ring_on_signals():
                while not self._stopping:
                    self._start_due()
                    for key, _ in self._selector.select(self._pause_s()):
                        key.data()
                    self._reap()
                    on_tick()
        finally:
            self._stop_all(grace_s)

    def _pause_s(self) -> float:
        waiting = [watch.start_at - time.monotonic() for watch in self._watches if watch.process is None]
        return max(0.0, min([_TICK_S, *waiting]))

    def _start_due(self) -> None:
        for watch in self._watches:
            if watch.process is None and time.monotonic() >= watch.start_at and not self._stopping:
                self._start(watch)

    def _start(self, watch: _Watch) -> None:
        watch.started_at = time.monotonic()
        try:
            watch.process = watch.part.start()
        except (OSError, subprocess.SubprocessError) as error:  # no memory or disk left just now: others go on
            self._plan_restart(watch, f"can't be started ({error})", forced=True)
            return
        watch.started_at = time.monotonic()
        self._listen(watch.process, watch.part.journal)

    def _listen(self, process: subprocess.Popen[bytes], journal: Journal | None) -> None:
        if process.stdout is None or journal is None:
            return
        pipe = process.stdout
        os.set_blocking(pipe.fileno(), False)

        def take() -> None:
            if not journal.read(pipe.fileno()):
                self._selector.unregister(pipe)
                pipe.close()
                journal.end_line()

        self._selector.register(pipe, selectors.EVENT_READ, take)

    def _reap(self) -> None:
        for watch in self._watches:
            if watch.process is not None and (status := watch.process.poll()) is not None:
                self._mourn(watch, watch.process, status)

    def _mourn(self, watch: _Watch, process: subprocess.Popen[bytes], status: int) -> None:
        watch.process = None
        _kill_group(process.pid)  # what it left behind
        self._hear_out(process)
        self._on_death(watch.part.name, process.pid)
        if not self._stopping:
            self._plan_restart(watch, f"process {process.pid} {describe_exit(status)}", forced=status in _FORCED)

    def _plan_restart(self, watch: _Watch, what: str, *, forced: bool) -> None:
        if time.monotonic() - watch.started_at >= _QUICK_S:
            watch.deaths = watch.quick_failures = 0
        watch.deaths += 1
        watch.quick_failures += not forced
        if watch.quick_failures >= _MAX_QUICK_FAILURES:
            raise SetupError(f"{watch.part.name} can't start: {what}. Its log ends:\n{last_lines(watch.part.log)}")
        pause_s = min(_FIRST_PAUSE_S * 2 ** (watch.deaths - 1), _LONGEST_PAUSE_S)
        watch.start_at = time.monotonic() + pause_s
        self._echo.say("up", f"{watch.part.name}: {what}; starting it again in {pause_s:.1f} s")

    def _stop_all(self, grace_s: float) -> None:
        self._stopping = True
        own = [watch for watch in self._watches if watch.part.stopped_here]
        for watch in own:
            if watch.process is not None:
                watch.process.terminate()
        deadline = time.monotonic() + grace_s
        while any(watch.process for watch in own):
            if time.monotonic() > deadline or self._hurried:
                for watch in own:
                    if watch.process is not None:
                        _kill_group(watch.process.pid)
            for key, _ in self._selector.select(0.05):
                key.data()
            self._reap()
        self._close()

    def _hear_out(self, process: subprocess.Popen[bytes]) -> None:
        """Take the last lines of the dead; a pipe that a grandchild still holds is closed."""
        if process.stdout is not None and not process.stdout.closed:
            self._selector.get_key(process.stdout).data()  # reads to the end, and then closes the pipe
        if process.stdout is not None and not process.stdout.closed:
            self._selector.unregister(process.stdout)
            process.stdout.close()

    def _close(self) -> None:
        self._selector.close()
        for watch in self._watches:
            if watch.part.journal is not None:
                watch.part.journal.close()
        for end in (self._bell_reader, self._bell):
            os.close(end)

    def _drain_bell(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._bell_reader, 4096)

    @contextmanager
    def _ring_on_signals(self) -> Iterator[None]:
        """A child's death, or any signal with a handler, ends the wait in `run`."""
        former = signal.signal(signal.SIGCHLD, lambda *_: None)
        former_fd = signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(former_fd)
            signal.signal(signal.SIGCHLD, former)


def describe_exit(status: int) -> str:
    """What ended a process, in words."""
    if status >= 0:
        return f"ended with status {status}"
    return "was ended by " + next((number.name for number in signal.Signals if number == -status), f"signal {-status}")


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
