"""Both embedded servers, started together, watched, and stopped without a trace."""

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from arachne.embedded import binaries, datadir
from arachne.embedded.postgres import Postgres
from arachne.embedded.process import last_lines, server_owner, stop
from arachne.embedded.valkey import Valkey
from arachne.errors import SetupError

Server = Postgres | Valkey
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 20.0
_QUICK_DEATHS = 5


@dataclass(frozen=True, slots=True)
class Servers:
    """The URLs of two running embedded servers."""

    database_url: str
    redis_url: str


@contextmanager
def servers(data_dir: Path, *, durable: bool = True) -> Iterator[Servers]:
    """PostgreSQL and Valkey, running with their data in `data_dir` until the block ends.

    `durable=False` trades safety against a power cut for speed: for tests only.
    The calling thread must outlive the block, since the servers stop when it ends.

    Raises:
        SetupError: another process holds the folder, the wheels are missing, or a server doesn't start; says why.
    """
    with datadir.hold(data_dir), plan(data_dir, durable=durable) as (postgres, valkey), run([postgres, valkey]):
        yield Servers(postgres.url, valkey.url)


@contextmanager
def plan(data_dir: Path, *, durable: bool = True) -> Iterator[tuple[Postgres, Valkey]]:
    """Both servers of `data_dir`, prepared but not started; their socket folder goes with the block."""
    data_dir, owner = data_dir.resolve(), server_owner()
    with datadir.socket_dir(data_dir, owner) as sockets:
        logs = data_dir / "logs"
        yield (
            Postgres(binaries.find_postgres(owner), data_dir / "pg", sockets, logs / "postgres.log", owner, durable),
            Valkey(binaries.find_valkey(owner), data_dir / "valkey", sockets, logs / "valkey.log", owner, durable),
        )


@contextmanager
def run(chosen: Sequence[Server]) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """The processes of `chosen` by name, all answering.

    Raises:
        SetupError: one of them doesn't start; gives the end of its log.
    """
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for server in chosen:
            server.prepare()
            processes[server.name] = server.start()
        for server in chosen:
            processes[server.name] = await_answer(server, processes[server.name])
        yield processes
    finally:
        for server in reversed(chosen):
            if server.name in processes:
                stop(processes[server.name], server.stop_signal, timeout_s=_STOP_TIMEOUT_S)


def await_answer(server: Server, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """The process of `server` once it answers, started again while a former one is still closing.

    Raises:
        SetupError: it died again and again, or took over a minute.
    """
    deadline, deaths = time.monotonic() + _START_TIMEOUT_S, 0
    while not server.answers():
        if time.monotonic() > deadline:
            stop(process, server.stop_signal, timeout_s=_STOP_TIMEOUT_S)
            raise SetupError(f"Embedded {server.name} doesn't answer. Its log ends:\n{last_lines(server.log)}")
        if process.poll() is not None:
            deaths += 1
            if deaths > _QUICK_DEATHS:
                raise SetupError(f"Embedded {server.name} doesn't start. Its log ends:\n{last_lines(server.log)}")
            time.sleep(0.2 * deaths)
            process = server.start()
        time.sleep(0.02)
    return process
