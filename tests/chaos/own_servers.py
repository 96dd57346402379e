"""PostgreSQL and Redis of one module's own, which it may freeze, restart and empty."""

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from arachne import migrations
from arachne.database import Database
from arachne.embedded import datadir
from arachne.embedded.process import server_owner
from arachne.embedded.sockets import socket_dir
from arachne.embedded.startup import Server, plan_postgres, plan_valkey, run
from arachne.partitions import ensure_partitions

PATIENCE_S = 60.0


@dataclass
class OwnServers:
    """The two servers and their processes."""

    postgres: Server
    redis: Server
    processes: dict[str, subprocess.Popen[bytes]]

    def restart(self, server: Server, number: signal.Signals, *, empty: bool = False) -> None:
        """The server, ended by this signal, answers again; `empty` without the data it had."""
        process = self.processes[server.name]
        process.send_signal(number)
        process.wait(PATIENCE_S)
        if empty:
            shutil.rmtree(server.data / "appendonlydir")
        self.processes[server.name] = server.start()
        deadline = time.monotonic() + PATIENCE_S
        while not server.answers():
            assert time.monotonic() < deadline, f"{server.name} doesn't come back"
            time.sleep(0.02)

    @contextmanager
    def frozen(self, server: Server) -> Iterator[None]:
        """The server takes connections, since the kernel does, and says nothing meanwhile."""
        process = psutil.Process(self.processes[server.name].pid)
        process.suspend()
        try:
            yield
        finally:
            process.resume()


@contextmanager
def own_servers(folder: Path) -> Iterator[OwnServers]:
    """Both, running and migrated; what PostgreSQL commits outlives an immediate stop."""
    with datadir.hold(folder), socket_dir(folder, server_owner()) as sockets:
        postgres, redis = plan_postgres(folder, sockets), plan_valkey(folder, sockets, durable=False)
        with run([postgres, redis]) as processes:
            migrations.upgrade(postgres.url)
            database = Database(postgres.url)
            database.run(ensure_partitions)
            database.close()
            yield OwnServers(postgres, redis, processes)
