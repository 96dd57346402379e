"""PostgreSQL and Redis of a test's own, which it may stop, freeze and start again."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import redis
from psycopg import Connection

from arachne import migrations
from arachne.database import plain_url
from arachne.embedded import datadir
from arachne.embedded.process import server_owner, stop
from arachne.embedded.sockets import socket_dir
from arachne.embedded.startup import Server, plan_postgres, plan_valkey
from tests.machines.waiting import eventually

STOP_TIMEOUT_S = 30


class OwnServer:
    """A server that runs from `start` to `stop`, as often as one likes, on the same data."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._process: subprocess.Popen[bytes] | None = None
        self.url = server.url
        server.prepare()

    def start(self) -> None:
        """It answers."""
        self._process = self._server.start()
        eventually(self._server.answers)

    def stop(self) -> None:
        """It is gone; nothing where it was."""
        if self._process is not None:
            stop(self._process, self._server.stop_signal, timeout_s=STOP_TIMEOUT_S)
        self._process = None

    def restart(self, number: signal.Signals, *, empty: bool = False) -> None:
        """Ended by this signal it answers again; `empty`: without what Redis had."""
        assert self._process is not None
        stop(self._process, number, timeout_s=STOP_TIMEOUT_S)
        if empty:
            shutil.rmtree(self._server.data / "appendonlydir")
        self.start()

    def freeze(self) -> None:
        """It takes connections, since the kernel does, and says nothing."""
        for process in self._all():
            process.suspend()

    def thaw(self) -> None:
        """It goes on."""
        for process in self._all():
            process.resume()

    def _all(self) -> list[psutil.Process]:
        assert self._process is not None
        own = psutil.Process(self._process.pid)
        return [own, *own.children(recursive=True)]


@dataclass(frozen=True)
class Servers:
    """Both, running and migrated."""

    postgres: OwnServer
    redis: OwnServer

    def ask(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """What a statement answers."""
        with Connection.connect(plain_url(self.postgres.url), autocommit=True) as connection:
            found = connection.execute(statement.encode(), values or None)
            return found.fetchall() if found.description else []

    def flush_redis(self) -> None:
        """Redis is empty."""
        with redis.Redis.from_url(self.redis.url) as client:
            client.flushall()


@contextmanager
def own_servers(folder: Path, *, durable: bool = False) -> Iterator[Servers]:
    """Both with their data in `folder`, gone at the end. Where `durable`, what is committed outlives a crash."""
    with datadir.hold(folder), socket_dir(folder, server_owner()) as sockets:
        both = Servers(
            OwnServer(plan_postgres(folder, sockets, durable=durable)),
            OwnServer(plan_valkey(folder, sockets, durable=durable)),
        )
        try:
            both.postgres.start()
            both.redis.start()
            migrations.upgrade(both.postgres.url)
            yield both
        finally:
            both.redis.stop()
            both.postgres.stop()
