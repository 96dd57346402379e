"""The embedded Valkey (a Redis): append-only file, never evicting, reached over a Unix socket only."""

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import redis

from arachne.embedded.process import Owner, await_former, spawn


@dataclass(frozen=True, slots=True)
class Valkey:
    """One Valkey server with its data in `data` and its socket in `sockets`."""

    install: Path
    data: Path
    sockets: Path
    log: Path
    owner: Owner
    durable: bool = True

    name = "valkey"
    setting = "redis_url"
    stop_signal = signal.SIGTERM

    @property
    def socket(self) -> Path:
        """The server's socket."""
        return self.sockets / "valkey.sock"

    @property
    def url(self) -> str:
        """redis-py's URL of database 0."""
        return f"unix://{quote(str(self.socket), safe='/')}?db=0"

    def prepare(self) -> None:
        """The data folder is there."""
        self.owner.take(self.data)

    def start(self) -> subprocess.Popen[bytes]:
        """The started server, which shuts down when the calling thread ends."""
        await_former(self.data / "valkey.pid", self.sockets.name)
        return spawn(
            [self.install / "valkey-server",
             "--port", "0", "--unixsocket", self.socket, "--unixsocketperm", "700",
             "--dir", ".", "--pidfile", "valkey.pid", "--appendonly", "yes",
             "--appendfsync", "everysec" if self.durable else "no", "--save", "", "--maxmemory-policy", "noeviction"],
            log=self.log, cwd=self.data, owner=self.owner, death_signal=self.stop_signal,
            env={"PATH": os.defpath, "LC_ALL": "C"},
        )  # fmt: skip

    def answers(self) -> bool:
        """Whether the server takes commands (it refuses while it loads its file)."""
        client = redis.Redis(unix_socket_path=str(self.socket), socket_timeout=5)
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
        finally:
            client.close()
