"""`arachne up` as a child of the demonstration: started, awaited, and stopped without a trace."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Self

from arachne.embedded.process import ourselves, spawn

READY = re.compile(rb"ready (http://\S+)\n")
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 30.0
DEFAULT_PORT = 8000
KEPT = "demonstration.json"
LISTEN_PORT = 4567  # of `arachne webhooks listen`


class StartError(Exception):
    """`arachne up` ended, or was not ready in time; the message holds the end of its output."""


class Service:
    """A running `arachne up` that may call webhooks at one loopback port, and stops when we do."""

    def __init__(self, data_dir: Path, port: int, receiver_port: int) -> None:
        self.data_dir = data_dir
        self.url = ""
        self.show = False
        self._ready = threading.Event()
        self._output: deque[bytes] = deque(maxlen=30)
        command = [sys.executable, "-P", "-m", "arachne", "up", "--port", str(port), "--data-dir", str(data_dir)]
        self.process = spawn(
            command,
            log=None,
            cwd=None,
            owner=ourselves(),
            death_signal=signal.SIGTERM,
            env=os.environ | _egress(receiver_port) | choose_log_format(),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def await_ready(self) -> None:
        """`url` is known and served.

        Raises:
            StartError: it is not.
        """
        self._ready.wait(START_TIMEOUT_S)
        if not self.url:
            self.stop()
            raise StartError(b"".join(self._output).decode(errors="replace").strip())

    def stop(self) -> int:
        """Exit status of `arachne up`, asked to stop if it runs."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            self._reader.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._output.append(line)
            if found := READY.fullmatch(line):
                self.url = found[1].decode()
                self._ready.set()
            elif self.show:
                sys.stderr.buffer.write(line)
                sys.stderr.flush()
        self._ready.set()


def create_account(data_dir: Path, name: str) -> dict[str, str]:
    """What `arachne account create` prints: `account_id`, `client_id`, `client_secret`.

    Raises:
        StartError: it failed.
    """
    command = [sys.executable, "-P", "-m", "arachne", "account", "create", name, "--json", "--data-dir", str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise StartError(done.stderr.strip())
    account: dict[str, str] = json.loads(done.stdout)
    return account


def recall_account(data_dir: Path) -> dict[str, str] | None:
    """What `keep_account` kept in this data folder; None where it kept nothing, or an end came while it did."""
    try:
        account: dict[str, str] = json.loads((data_dir / KEPT).read_text())
    except (FileNotFoundError, ValueError):
        return None
    return account


def keep_account(data_dir: Path, account: dict[str, str]) -> None:
    """The account signs in at the next start too; its secret lies beside the service's own, for the same eyes only."""
    path = data_dir / KEPT
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(account, file)


def free_port(wanted: int | None) -> int:
    """`wanted`, or without a wish 8000 if it is free, else 0 for any."""
    if wanted is not None:
        return wanted
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", DEFAULT_PORT))
        except OSError:
            return 0
    return DEFAULT_PORT


def choose_log_format() -> dict[str, str]:
    """The setting by which logs are for people where people see them: their own stderr is our pipe."""
    chosen = os.environ.get("ARACHNE_LOG_FORMAT", "auto") != "auto"
    return {} if chosen or not sys.stderr.isatty() else {"ARACHNE_LOG_FORMAT": "text"}


def _egress(port: int) -> dict[str, str]:
    """Settings that let webhooks reach our own receiver and the user's listener, and nothing else that is private."""
    given = json.loads(os.environ.get("ARACHNE_WEBHOOK_EGRESS_ALLOW", "[]"))
    allowed = [*given, f"127.0.0.1:{port}", f"127.0.0.1:{LISTEN_PORT}"]
    return {"ARACHNE_WEBHOOK_EGRESS_ALLOW": json.dumps(allowed), "ARACHNE_EGRESS_ALLOW_HTTP": "true"}
