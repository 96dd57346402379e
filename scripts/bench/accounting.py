"""CPU seconds that each part of a running service has used, its subprocesses included, and bytes it has written."""

import json
from collections.abc import Mapping
from pathlib import Path

import psutil
import psycopg
from watching import PARTS

from arachne.database import plain_url

SECOND_READER, SERVERS = "second_reader", ("postgres", "valkey")
_SPAWNED = "spawn_main"
# Rows that updates left behind are counted apart: VACUUM FULL writes each table anew without them.
_BYTES = """
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"""


class Accounts:
    """A running `arachne up`, read from outside."""

    def __init__(self, data_dir: Path, pid: int) -> None:
        told = json.loads((data_dir / "service.json").read_text())
        self.database = psycopg.connect(plain_url(told["database_url"]), autocommit=True)
        self._store = data_dir / "storage"
        children = psutil.Process(pid).children(recursive=True)
        self._parts = {name: _with_words(children, words) for name, words in PARTS.items()}
        self._servers = {name: _top(children, name) for name in SERVERS}

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds of each part and server so far; the second reader's are no part of the worker's.

        A second reader that was replaced counts as the worker's, which happens every thousand pictures.
        """
        seconds = {name: _used_s(process) for name, process in (self._parts | self._servers).items()}
        second = min(self._stage_processes(), key=lambda child: child.create_time(), default=None)
        seconds[SECOND_READER] = _used_s(second) if second else 0.0
        seconds["gpu"] -= seconds[SECOND_READER]
        return seconds

    def database_bytes(self) -> int:
        """Bytes of all tables with their indexes, dead rows included."""
        return self._number(_BYTES)

    def log_bytes(self) -> int:
        """Bytes ever written to the write-ahead log."""
        return self._number("SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint")

    def pack(self) -> None:
        """Every table is written anew without what updates left behind."""
        self.database.execute("VACUUM (FULL, ANALYZE)")

    def store_bytes(self) -> int:
        """Bytes of the originals."""
        return sum(path.stat().st_size for path in self._store.rglob("*") if path.is_file())

    def _number(self, query: str) -> int:
        row = self.database.execute(query.encode()).fetchone()
        assert row is not None
        return int(row[0])

    def _stage_processes(self) -> list[psutil.Process]:
        children = self._parts["gpu"].children(recursive=True)
        return [child for child in children if any(_SPAWNED in word for word in child.cmdline())]


def spent(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """CPU seconds of each part between two readings."""
    return {name: after[name] - before[name] for name in before}


def _used_s(process: psutil.Process) -> float:
    """CPU seconds of the process, its living subprocesses, and those that have ended."""
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _with_words(children: list[psutil.Process], words: list[str]) -> psutil.Process:
    for child in children:
        if child.cmdline()[-len(words) :] == words:
            return child
    raise SystemExit(f"the service has no {' '.join(words)}")


def _top(children: list[psutil.Process], name: str) -> psutil.Process:
    """The server's first process, of which all its others are children."""
    found = [child for child in children if name in child.name()]
    return min(found, key=lambda child: child.create_time())
