"""Embedded servers started together, checked, and stopped without a trace."""

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from arachne.embedded import binaries, datadir
from arachne.embedded.postgres import Postgres
from arachne.embedded.process import last_lines, server_owner, stop
from arachne.embedded.sockets import socket_dir
from arachne.embedded.valkey import Valkey
from arachne.errors import SetupError

Server = Postgres | Valkey
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 20.0
_TRIES = 5
_PAUSE_S = 0.2


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
    with (
        datadir.hold(data_dir),
        socket_dir(data_dir, server_owner()) as sockets,
    ):
        postgres = plan_postgres(data_dir, sockets, durable=durable)
        valkey = plan_valkey(data_dir, sockets, durable=durable)
        with run([postgres, valkey]):
            yield Servers(postgres.url, valkey.url)


def plan_postgres(data_dir: Path, sockets: Path, *, durable: bool = True) -> Postgres:
    """The PostgreSQL of `data_dir`, not started yet."""
    data_dir, owner = data_dir.resolve(), server_owner()
    install, log = binaries.find_postgres(owner), datadir.log_file(data_dir, Postgres.name)
    return Postgres(install, data_dir / "pg", sockets, log, owner, durable)


def plan_valkey(data_dir: Path, sockets: Path, *, durable: bool = True) -> Valkey:
    """The Valkey of `data_dir`, not started yet."""
    data_dir, owner = data_dir.resolve(), server_owner()
    install, log = binaries.find_valkey(owner), datadir.log_file(data_dir, Valkey.name)
    return Valkey(install, data_dir / "valkey", sockets, log, owner, durable)


@contextmanager
def run(chosen: Sequence[Server]) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """The processes of `chosen` by name, all answering; whoever restarts one puts the new process there.

    Raises:
        SetupError: one of them doesn't start; gives the end of its log.
    """
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for server in chosen:
            server.prepare()
            processes[server.name] = server.start()
        for server in chosen:
            _await_answer(server, processes)
        yield processes
    finally:
        for server in reversed(chosen):
            if server.name in processes:
                stop(processes[server.name], server.stop_signal, timeout_s=_STOP_TIMEOUT_S)


def _await_answer(server: Server, processes: dict[str, subprocess.Popen[bytes]]) -> None:
    """`server` answers; started again if it dies, as PostgreSQL does while children of a killed one still live.

    Raises:
        SetupError: it died again and again, or took over a minute.
    """
    deadline, deaths = time.monotonic() + _START_TIMEOUT_S, 0
    while not server.answers():
        if processes[server.name].poll() is not None:
            deaths += 1
            time.sleep(_PAUSE_S * deaths)
            if deaths < _TRIES:
                processes[server.name] = server.start()
        if deaths >= _TRIES or time.monotonic() > deadline:
            end = last_lines(server.log)
            raise SetupError(f"The embedded {server.name} doesn't start on {server.data}. Its log ends:\n{end}")
        time.sleep(0.02)
