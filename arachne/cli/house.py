"""Everything `arachne up` keeps on one machine: servers first, then the schema, then one process a part."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial

from arachne.cli.migrate import prepare_schema
from arachne.cli.ports import choose_port, local_url
from arachne.cli.readiness import Readiness
from arachne.embedded import datadir, instance
from arachne.embedded.journal import Echo, Journal
from arachne.embedded.process import ourselves, server_owner, spawn
from arachne.embedded.sockets import socket_dir
from arachne.embedded.startup import Server, plan_postgres, plan_valkey, run
from arachne.embedded.supervisor import Part, Supervisor
from arachne.settings import Settings

# The words each part's process has on its command line.
PARTS = {
    "api": ("api",),
    "worker-gpu": ("worker", "gpu"),
    "worker-io": ("worker", "io"),
    "scheduler": ("scheduler",),
}
GRACE_S = 6.0  # containers get ten seconds in all, and the servers stop after the parts
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def keep_house(settings: Settings) -> None:
    """Run everything until SIGINT, SIGTERM or SIGHUP; then nothing is left of it.

    Raises:
        SetupError: the port or the data folder is taken, or a part can't start; says why.
        KeyboardInterrupt: the signal came before everything was started.
    """
    settings.require_base_url()
    settings = settings.model_copy(update={"port": choose_port(settings.host, settings.port)})
    echo = Echo()
    try:
        with _on_signals(_interrupt), datadir.hold(settings.data_dir), ExitStack() as stack:
            servers = _plan_servers(settings, stack)
            processes = stack.enter_context(run(servers))
            settings = settings.model_copy(update={server.setting: server.url for server in servers})
            assert settings.database_url
            prepare_schema(settings.database_url)
            url = local_url(settings.host, settings.port)
            stack.enter_context(instance.announce(settings.data_dir, _describe(settings, url)))
            parts = [_part_of(server, processes) for server in servers] + _plan_parts(settings, echo)
            _supervise(settings, parts, echo, Readiness(url, echo))
    finally:
        echo.flush()


def _supervise(settings: Settings, parts: Sequence[Part], echo: Echo, readiness: Readiness) -> None:
    with ThreadPoolExecutor(1, "release") as releases:  # a stalled database must not stall the supervisor

        def on_death(name: str, pid: int) -> None:
            if name.startswith("worker-"):
                releases.submit(_release_worker, settings, pid, echo)

        supervisor = Supervisor(parts, echo=echo, on_death=on_death)
        with _on_signals(supervisor.stop):
            supervisor.run(readiness.probe, grace_s=GRACE_S)


def _plan_servers(settings: Settings, stack: ExitStack) -> list[Server]:
    """The servers whose URLs are not set."""
    if settings.database_url and settings.redis_url:
        return []
    sockets = stack.enter_context(socket_dir(settings.data_dir, server_owner()))
    servers: list[Server] = []
    if settings.database_url is None:
        servers.append(plan_postgres(settings.data_dir, sockets))
    if settings.redis_url is None:
        servers.append(plan_valkey(settings.data_dir, sockets))
    return servers


def _part_of(server: Server, processes: dict[str, subprocess.Popen[bytes]]) -> Part:
    def restart() -> subprocess.Popen[bytes]:
        processes[server.name] = server.start()
        return processes[server.name]

    return Part(server.name, restart, server.log, process=processes[server.name], stopped_here=False)


def _plan_parts(settings: Settings, echo: Echo) -> list[Part]:
    told = {name: str(getattr(settings, name)) for name in ("database_url", "redis_url", "data_dir", "host", "port")}
    if settings.log_format == "auto" and sys.stderr.isatty():  # which is where their lines are shown
        told["log_format"] = "text"
    env = os.environ | {f"ARACHNE_{name.upper()}": value for name, value in told.items()}
    parts = []
    for name, words in PARTS.items():
        log = datadir.log_file(settings.data_dir, name)
        argv = [sys.executable, "-P", "-m", "arachne", *words]  # -P: no module of the working directory gets in
        start = partial(
            spawn, argv, log=None, cwd=None, owner=ourselves(), death_signal=signal.SIGKILL,
            env=env | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        parts.append(Part(name, start, log, Journal(name, log, echo)))
    return parts


def _describe(settings: Settings, url: str) -> instance.Instance:
    return instance.Instance(
        pid=os.getpid(),
        api_url=url,
        public_url=settings.base_url,
        database_url=str(settings.database_url),
        redis_url=str(settings.redis_url),
    )


def _release_worker(settings: Settings, pid: int, echo: Echo) -> None:
    """What the dead worker held is free at once, not only when its row has gone without a beat for a while."""
    from arachne.database import Database
    from arachne.errors import ArachneError
    from arachne.jobs.reconcile import release_worker

    assert settings.database_url
    database = Database(settings.database_url, pool_size=1)
    try:
        database.run(release_worker, pid=pid, host=socket.gethostname())
    except ArachneError as error:
        echo.say("up", f"the work of process {pid} is not freed yet: {error.message}")
    finally:
        database.close()


def _interrupt() -> None:
    raise KeyboardInterrupt


@contextmanager
def _on_signals(act: Callable[[], None]) -> Iterator[None]:
    """`act` runs on each stop signal, but for a hang-up that we were told to ignore, as under nohup."""
    former = {number: signal.getsignal(number) for number in _STOP_SIGNALS}
    for number, handler in former.items():
        if number != signal.SIGHUP or handler is not signal.SIG_IGN:
            signal.signal(number, lambda *_: act())
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
