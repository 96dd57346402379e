"""The harm that is done, by name. Each fault strikes at once and says what undoes it, after how many seconds."""

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from shutil import rmtree

import psutil
import psycopg
import redis

from scripts.havoc.house import House, Part, family

Undo = tuple[float, Callable[[], object]]
DROP = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL
"""


@dataclass(frozen=True)
class Durations:
    """How long what lasts does last."""

    freeze_s: float
    outage_s: float
    stall_s: float


@dataclass(frozen=True)
class Scene:
    """What a fault may touch. `busy` are the parts and servers that an earlier one still holds."""

    house: House
    random: Random
    durations: Durations
    busy: set[str]

    def pick(self, *kinds: str) -> Part:
        """One of the parts that nothing is done to.

        Raises:
            LookupError: there is none.
        """
        free = [part for part in self.house.of(*kinds) if part.name not in self.busy]
        if not free:
            raise LookupError
        return self.random.choice(free)

    def take(self, server: str) -> None:
        """The server is ours.

        Raises:
            LookupError: something is done to it already.
        """
        if server in self.busy:
            raise LookupError
        self.busy.add(server)

    def held(self, name: str, seconds: float, undo: Callable[[], object]) -> list[Undo]:
        """Undone after these seconds, and not busy from then on."""

        def end() -> None:
            undo()
            self.busy.discard(name)

        self.busy.add(name)
        return [(seconds, end)]


Fault = Callable[[Scene], tuple[str, list[Undo]]]


def _kill(*kinds: str) -> Fault:
    def strike(scene: Scene) -> tuple[str, list[Undo]]:
        part = scene.pick(*kinds)
        scene.house.kill(part)
        return part.name, []

    return strike


def _kill_all(*kinds: str) -> Fault:
    def strike(scene: Scene) -> tuple[str, list[Undo]]:
        for part in scene.house.of(*kinds):
            scene.house.kill(part)
        return " and ".join(kinds), []

    return strike


def _freeze(*kinds: str) -> Fault:
    def strike(scene: Scene) -> tuple[str, list[Undo]]:
        part = scene.pick(*kinds)
        assert part.process is not None
        pid = part.process.pid
        _signal_all([pid], signal.SIGSTOP)
        return part.name, scene.held(part.name, scene.durations.freeze_s, lambda: _signal_all([pid], signal.SIGCONT))

    return strike


def kill_stage(scene: Scene) -> tuple[str, list[Undo]]:
    """A stage's subprocess, as the kernel does when memory runs out."""
    part = scene.pick("gpu")
    assert part.process is not None
    children = psutil.Process(part.process.pid).children(recursive=True)
    stages = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    if not stages:
        raise LookupError
    scene.random.choice(sorted(stages, key=lambda child: child.pid)).kill()
    return part.name, []


def flush_redis(scene: Scene) -> tuple[str, list[Undo]]:
    """FLUSHALL."""
    scene.take("valkey")
    client = redis.Redis.from_url(scene.house.servers["valkey"].url, socket_timeout=5)
    client.flushall()
    client.close()
    scene.busy.discard("valkey")
    return "valkey", []


def empty_redis(scene: Scene) -> tuple[str, list[Undo]]:
    """Killed, and back without its data."""
    scene.take("valkey")
    house = scene.house
    _end_redis(house)
    rmtree(house.servers["valkey"].data / "appendonlydir", ignore_errors=True)
    return "valkey", scene.held("valkey", 0.5, lambda: house.down.discard("valkey"))


def take_redis_away(scene: Scene) -> tuple[str, list[Undo]]:
    """Killed, and back after long with what it had."""
    scene.take("valkey")
    _end_redis(scene.house)
    return "valkey", scene.held("valkey", scene.durations.outage_s, lambda: scene.house.down.discard("valkey"))


def _end_redis(house: House) -> None:
    house.down.add("valkey")
    house.processes["valkey"].kill()
    house.processes["valkey"].wait()


def _stall(server: str) -> Fault:
    def strike(scene: Scene) -> tuple[str, list[Undo]]:
        scene.take(server)
        pids = family(scene.house.processes[server].pid)
        _signal_all(pids, signal.SIGSTOP)
        return server, scene.held(server, scene.durations.stall_s, lambda: _signal_all(pids, signal.SIGCONT))

    return strike


def _restart_postgres(how: signal.Signals) -> Fault:
    def strike(scene: Scene) -> tuple[str, list[Undo]]:
        scene.take("postgres")
        house = scene.house
        house.down.add("postgres")
        house.processes["postgres"].send_signal(how)
        house.processes["postgres"].wait(60)
        return "postgres", scene.held("postgres", 1.0, lambda: house.down.discard("postgres"))

    return strike


def drop_connections(scene: Scene) -> tuple[str, list[Undo]]:
    """pg_terminate_backend of everybody."""
    scene.take("postgres")
    with suppress(psycopg.OperationalError):
        scene.house.query(DROP)
    scene.busy.discard("postgres")
    return "postgres", []


def _signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


FAULTS: dict[str, Fault] = {
    "kill-api": _kill("api"),
    "kill-gpu": _kill("gpu"),
    "kill-io": _kill("io"),
    "kill-scheduler": _kill("scheduler"),
    "kill-stage": kill_stage,
    "kill-workers": _kill_all("gpu", "io"),
    "freeze-api": _freeze("api"),
    "freeze-gpu": _freeze("gpu"),
    "freeze-io": _freeze("io"),
    "redis-flush": flush_redis,
    "redis-empty": empty_redis,
    "redis-outage": take_redis_away,
    "redis-stall": _stall("valkey"),
    "postgres-fast": _restart_postgres(signal.SIGINT),
    "postgres-immediate": _restart_postgres(signal.SIGQUIT),
    "postgres-drop": drop_connections,
    "postgres-stall": _stall("postgres"),
}
