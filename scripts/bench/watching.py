"""What a running service holds while it works: memory of each of its processes, connections to its servers."""

import json
import statistics
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg
import redis

from arachne.database import plain_url

PARTS = {"api": ["api"], "gpu": ["worker", "gpu"], "io": ["worker", "io"], "scheduler": ["scheduler"]}
SUBPROCESSES = "gpu_subprocesses"
MIB = 1024 * 1024
SAMPLE_S = 0.5
_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"


@dataclass(frozen=True)
class Sample:
    """Resident bytes of each part, and connections to each server, when so many images were done."""

    done: int
    resident: Mapping[str, int]
    connections: Mapping[str, int]


@dataclass
class Watch:
    """Samples of a service, taken beside its work."""

    parts: Mapping[str, psutil.Process]
    postgres: "psycopg.Connection[tuple[int]]"
    valkey: redis.Redis
    done: int = 0
    samples: list[Sample] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def look(self) -> None:
        """Take a sample."""
        resident = {name: part.memory_info().rss for name, part in self.parts.items()}
        resident[SUBPROCESSES] = sum(self._resident(child) for child in self.parts["gpu"].children(recursive=True))
        row = self.postgres.execute(_CONNECTIONS).fetchone()
        assert row is not None
        redis_clients = int(self.valkey.info("clients")["connected_clients"]) - 1
        self.samples.append(Sample(self.done, resident, {"postgres": row[0], "redis": redis_clients}))

    def _resident(self, child: psutil.Process) -> int:
        try:
            self.seen.add(child.pid)
            return int(child.memory_info().rss)
        except psutil.NoSuchProcess:
            return 0

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Samples are taken meanwhile."""
        stopping = threading.Event()

        def run() -> None:
            while not stopping.wait(SAMPLE_S):
                self.look()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()
            self.look()

    def around(self, start: float, end: float) -> dict[str, float]:
        """Median MiB of each part over the samples while that many images were done."""
        chosen = [one for one in self.samples if start <= one.done <= end] or self.samples[-1:]
        return {
            name: round(statistics.median(one.resident[name] for one in chosen) / MIB, 1)
            for name in (*self.parts, SUBPROCESSES)
        }

    def peak_mib(self) -> float:
        """The most that all parts had together."""
        return round(max(sum(one.resident.values()) for one in self.samples) / MIB, 1)

    def most_connections(self, start: float = 0, end: float = float("inf")) -> dict[str, int]:
        """The most there were to each server at once while that many images were done."""
        chosen = [one for one in self.samples if start <= one.done <= end] or self.samples[-1:]
        return {name: max(one.connections[name] for one in chosen) for name in ("postgres", "redis")}


@contextmanager
def watch(data_dir: Path, pid: int) -> Iterator[Watch]:
    """A watch on the `arachne up` of this process id."""
    told = json.loads((data_dir / "service.json").read_text())
    children = psutil.Process(pid).children(recursive=True)
    found = {name: _part(children, words) for name, words in PARTS.items()}
    with (
        psycopg.connect(plain_url(told["database_url"]), autocommit=True) as postgres,
        redis.Redis.from_url(told["redis_url"]) as valkey,
    ):
        yield Watch(found, postgres, valkey)


def _part(children: list[psutil.Process], words: list[str]) -> psutil.Process:
    for child in children:
        if child.cmdline()[-len(words) :] == words:
            return child
    raise SystemExit(f"the service has no {' '.join(words)}")
