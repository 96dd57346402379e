"""The embedded PostgreSQL: initialised on first start, reached over a Unix socket only, and by two users only.

Whose process it is at the other end, the kernel tells (`peer`). That matters where root's server runs as `nobody`, as
others may: they get through the socket folder, which is `nobody`'s, and no further.
"""

import os
import pwd
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from arachne.embedded.process import Owner, await_former, spawn
from arachne.errors import SetupError

USER = DATABASE = "arachne"
PORT = 5432  # part of the socket's name only; said everywhere, so that no PGPORT of the caller's comes in
_LOCALE = ("--locale=C.UTF-8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--encoding=UTF8")
_TUNING = {
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "512MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "unix_socket_permissions": "0700",
    "log_line_prefix": "%m [%p] ",
}
_FORGETFUL = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@dataclass(frozen=True, slots=True)
class Postgres:
    """One PostgreSQL server with its data in `data` and its socket in `sockets`."""

    install: Path
    data: Path
    sockets: Path
    log: Path
    owner: Owner
    durable: bool = True

    name = "postgres"
    setting = "database_url"
    stop_signal = signal.SIGINT  # "fast" shutdown: rolls back, checkpoints, leaves

    @property
    def url(self) -> str:
        """SQLAlchemy's URL of the database."""
        return f"postgresql+psycopg://{USER}@/{DATABASE}?host={quote(str(self.sockets), safe='/')}&port={PORT}"

    @property
    def _folder(self) -> str:
        """The data folder as the server is told it: as root, its owner may not get through the folders above it."""
        return str(self.data) if self.owner.name is None else "/proc/self/cwd"

    def prepare(self) -> None:
        """The data folder is initialised, and says who is let in.

        Raises:
            SetupError: it can't be initialised; says why.
        """
        self.owner.take(self.data)
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        self._let_in({_user_name(0), _user_name(os.geteuid())})

    def _let_in(self, user_names: set[str]) -> None:
        """Only processes of these users get in, whatever an earlier version wrote."""
        users = "".join(f'{USER} "{name}" {USER}\n' for name in sorted(user_names))
        for file, text in (("pg_hba.conf", f"local all {USER} peer map={USER}\n"), ("pg_ident.conf", users)):
            draft = self.data / f"{file}.new"
            draft.write_text(text)
            draft.chmod(0o644)  # in a closed folder; the server may have another user than we
            draft.replace(self.data / file)

    def _initialise(self) -> None:
        for left_over in self.data.iterdir():
            raise SetupError(f"{self.data} holds {left_over.name} but no database. Move it away, or choose another.")
        command = [str(self.install / "bin" / "initdb"), "-D", self._folder, "-U", USER, "--auth=peer", *_LOCALE]
        done = subprocess.run(  # noqa: S603
            [*command, *(() if self.durable else ("--no-sync",))],
            cwd=self.data, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
            env=_environment(), user=self.owner.user, group=self.owner.group, extra_groups=self.owner.extra_groups,
        )  # fmt: skip
        if done.returncode:
            raise SetupError(f"PostgreSQL's data folder could not be made in {self.data}: {done.stderr.strip()}")

    def start(self) -> subprocess.Popen[bytes]:
        """The started server, which shuts down when the calling thread ends."""
        await_former(self.data / "postmaster.pid", self.sockets.name)
        settings = _TUNING if self.durable else _TUNING | _FORGETFUL
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return spawn(
            [self.install / "bin" / "postgres", "-D", self._folder, "-h", "", "-k", self.sockets, *options],
            log=self.log, cwd=self.data, owner=self.owner, death_signal=self.stop_signal, env=_environment(),
        )  # fmt: skip

    def answers(self) -> bool:
        """Whether the server takes connections; makes the database on the first."""
        try:
            with psycopg.connect(
                host=str(self.sockets), port=PORT, user=USER, dbname="postgres", autocommit=True, connect_timeout=5
            ) as link:
                found = link.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
                if found is None:
                    link.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
        except psycopg.OperationalError:
            return False
        return True


def _user_name(uid: int) -> str:
    """As the server will know the user; a number without a name is nobody it could let in, but harmless."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _environment() -> dict[str, str]:
    """An environment without PG* variables of the caller's, which would steer the server."""
    return {"PATH": os.defpath, "LC_ALL": "C", "LANG": "C"}
