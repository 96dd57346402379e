"""The product as separate processes on embedded servers, kept running as a supervisor would: who dies is started again.

Nothing tells the product of a death: as on other machines, it has to find out by itself.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from arachne.database import plain_url
from arachne.embedded import datadir
from arachne.embedded.process import ourselves, server_owner, spawn
from arachne.embedded.sockets import socket_dir
from arachne.embedded.startup import Server, plan_postgres, plan_valkey, run

AGAIN_S, LONGEST_PAUSE_S = 0.5, 5.0
STOP_S = 30.0
PARTS = {"api": ("api",), "gpu": ("worker", "gpu"), "io": ("worker", "io"), "scheduler": ("scheduler",)}


@dataclass
class Part:
    """One process of the product. `harmed` from when it was killed on purpose until it is started again."""

    name: str
    kind: str
    words: tuple[str, ...]
    variables: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    start_at: float = 0.0
    started_at: float = 0.0
    pause_s: float = AGAIN_S
    harmed: bool = False


@dataclass
class House:
    """The running product. Everything here is called from one thread, the one that made it."""

    folder: Path
    variables: dict[str, str]
    servers: dict[str, Server]
    processes: dict[str, subprocess.Popen[bytes]]
    parts: list[Part] = field(default_factory=list)
    down: set[str] = field(default_factory=set)  # servers that are to stay down for now
    unasked: list[str] = field(default_factory=list)  # deaths that nobody caused

    @property
    def database_url(self) -> str:
        """The record, for psycopg."""
        return plain_url(self.servers["postgres"].url)

    @property
    def apis(self) -> list[str]:
        """URLs of the API's processes."""
        ports = [part.variables["ARACHNE_PORT"] for part in self.parts if part.kind == "api"]
        return [f"http://127.0.0.1:{port}" for port in ports]

    def of(self, *kinds: str) -> list[Part]:
        """The running parts of these kinds."""
        return [part for part in self.parts if part.kind in kinds and part.process is not None]

    def add(self, kind: str, **variables: str) -> Part:
        """One more part, started at the next tick."""
        name = f"{kind}-{sum(part.kind == kind for part in self.parts) + 1}"
        part = Part(name, kind, PARTS[kind], self.variables | variables)
        self.parts.append(part)
        return part

    def tick(self) -> None:
        """Start again what has ended, after a pause."""
        for part in self.parts:
            if part.process is not None and part.process.poll() is not None:
                self._mourn(part)
            if part.process is None and time.monotonic() >= part.start_at:
                self._start(part)
        for name, server in self.servers.items():
            if name not in self.down and self.processes[name].poll() is not None:
                self.processes[name] = server.start()

    def kill(self, part: Part) -> None:
        """Kill -9 of its whole group, so that subprocesses end as they would with its container."""
        assert part.process is not None
        part.harmed = True
        part.process.kill()

    def query(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """What the record answers."""
        with psycopg.connect(self.database_url, autocommit=True, connect_timeout=10) as link:
            return list(link.execute(statement, values or None).fetchall())

    def command(self, *words: str) -> str:
        """What a command of the product prints."""
        line = [sys.executable, "-P", "-m", "arachne", *words]
        environment = os.environ | self.variables
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120, env=environment)
        if done.returncode:
            raise SystemExit(f"arachne {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def _mourn(self, part: Part) -> None:
        assert part.process is not None
        with suppress(ProcessLookupError):
            os.killpg(part.process.pid, signal.SIGKILL)
        lived_s = time.monotonic() - part.started_at
        part.pause_s = AGAIN_S if part.harmed or lived_s > 10 else min(2 * part.pause_s, LONGEST_PAUSE_S)
        if not part.harmed:
            self.unasked.append(f"{part.name} ended with status {part.process.returncode}")
        part.process, part.start_at, part.harmed = None, time.monotonic() + part.pause_s, False

    def _start(self, part: Part) -> None:
        part.started_at = time.monotonic()
        part.process = spawn(
            [sys.executable, "-P", "-m", "arachne", *part.words], log=self.folder / f"{part.name}.log", cwd=None,
            owner=ourselves(), death_signal=signal.SIGKILL, env=os.environ | part.variables,
        )  # fmt: skip

    def stop(self) -> None:
        """End all parts as a supervisor does: asked, and killed where that takes too long."""
        running = [part.process for part in self.parts if part.process is not None]
        for process in running:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        deadline = time.monotonic() + STOP_S
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def open_house(folder: Path, settings: dict[str, object]) -> Iterator[House]:
    """Servers and a migrated record, with no part yet; none of it is left at the end."""
    data_dir = folder / "data"
    with datadir.hold(data_dir), socket_dir(data_dir, server_owner()) as sockets:
        planned: list[Server] = [plan_postgres(data_dir, sockets), plan_valkey(data_dir, sockets)]
        with run(planned) as processes:
            servers = {server.name: server for server in planned}
            known = {"data_dir": data_dir, **{server.setting: server.url for server in planned}}
            house = House(folder, _variables(settings | known), servers, processes)
            house.command("migrate")
            try:
                yield house
            finally:
                house.stop()
                for process in processes.values():
                    _wake_all(process.pid)


def _variables(settings: dict[str, object]) -> dict[str, str]:
    told = {name: value if isinstance(value, str | Path) else json.dumps(value) for name, value in settings.items()}
    return {f"ARACHNE_{name.upper()}": str(value) for name, value in told.items()}


def _wake_all(pid: int) -> None:
    """Whatever a stall left stopped goes on, so that it can end."""
    for one in family(pid):
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGCONT)


def family(pid: int) -> list[int]:
    """The process and all below it; a server's processes have groups of their own."""
    found, new = [pid], [pid]
    while new:
        new = [int(child) for one in new for child in _children(one)]
        found += new
    return found


def _children(pid: int) -> list[str]:
    """Pids of the children of all of a process's threads."""
    children = list[str]()
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            children += path.read_text().split()
    return children


def wait_until(holds: Callable[[], bool], house: House, patience_s: float, what: str, look_s: float = 0.1) -> None:
    """Return once it holds; whoever dies meanwhile is started again."""
    deadline = time.monotonic() + patience_s
    while not holds():
        house.tick()
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {patience_s:.0f} s for {what} in vain")
        time.sleep(look_s)
