"""Machines: each has a data folder and processes of its own, and shares with others what its settings name."""

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.machines.waiting import eventually
from tests.standins.ports import free_port

PUBLIC_URL = "http://arachne.test"
RATE = "1000000/minute"
STOP_TIMEOUT_S = 60
API = ("api",)
GPU, IO, SCHEDULER = ("worker", "gpu"), ("worker", "io"), ("scheduler",)


@dataclass
class Part:
    """A process of the service."""

    words: tuple[str, ...]
    process: subprocess.Popen[bytes]
    log: Path
    url: str = ""

    def kill(self) -> None:
        """It is gone from one moment to the next."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """It has left by itself when asked."""
        self.process.send_signal(signal.SIGTERM)
        # uvicorn ends with the signal it was sent
        assert self.process.wait(STOP_TIMEOUT_S) in {0, -signal.SIGTERM}, self.said()

    def runs(self) -> bool:
        """Whether it does."""
        return self.process.poll() is None

    def said(self) -> str:
        """What it logged."""
        return self.log.read_text(errors="replace")

    def client(self, **options: object) -> httpx.Client:
        """A client of this API process."""
        return httpx.Client(base_url=self.url, timeout=90, trust_env=False, **options)  # type: ignore[arg-type]


@dataclass
class Machine:
    """A data folder and the parts that run on it."""

    data_dir: Path
    environment: Mapping[str, str]
    parts: list[Part] = field(default_factory=list)

    def start(self, words: tuple[str, ...], **settings: str) -> Part:
        """A part of the service; an API answers already."""
        number = len(self.parts)
        log = self.data_dir / f"{'-'.join(words)}.{number}.log"
        port = free_port()
        own = {f"ARACHNE_{name.upper()}": value for name, value in settings.items()} | {"ARACHNE_PORT": str(port)}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "arachne", *words],
                env={**self.environment, "ARACHNE_DATA_DIR": str(self.data_dir), **own},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        part = Part(words, process, log, f"http://127.0.0.1:{port}")
        self.parts.append(part)
        if words == API:
            eventually(lambda: _answers(part))
        return part

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command, run to its end."""
        environment = {**self.environment, "ARACHNE_DATA_DIR": str(self.data_dir)}
        line = [sys.executable, "-P", "-m", "arachne", *words]
        return subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=120)

    def new_account(self) -> dict[str, str]:
        """An account's client: `account_id`, `client_id`, `client_secret`."""
        done = self.run("account", "create", f"a-{secrets.token_hex(6)}", "--json")
        assert done.returncode == 0, done.stderr
        made: dict[str, str] = json.loads(done.stdout)
        return made

    def close(self) -> None:
        """No part is left."""
        for part in self.parts:
            if part.runs():
                part.kill()


NewMachine = Callable[..., Machine]


@contextmanager
def machines(folder: Path, **shared: str) -> Iterator[NewMachine]:
    """Makes machines with these settings, and others of their own; all their processes are gone at the end.

    Names in capitals are environment variables as they are; others are settings.
    """
    made: list[Machine] = []
    key = secrets.token_urlsafe(32)

    def make(**own: str) -> Machine:
        data_dir = folder / f"machine{len(made)}"
        data_dir.mkdir(parents=True)
        made.append(Machine(data_dir, _environment({"secret_key": key, **shared, **own})))
        return made[-1]

    try:
        yield make
    finally:
        for machine in made:
            machine.close()


def token(api: httpx.Client, account: Mapping[str, str]) -> dict[str, str]:
    """An Authorization header."""
    credentials = (account["client_id"], account["client_secret"])
    answer = api.post("/api/auth/token", data={"grant_type": "client_credentials"}, auth=credentials)
    assert answer.status_code == 200, answer.text
    return {"Authorization": f"Bearer {answer.json()['access_token']}"}


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    own = {
        "public_url": PUBLIC_URL,
        "egress_allow_http": "true",
        "cpu_workers": "1",
        **dict.fromkeys(("vision_rate_limit", "image_rate_limit", "read_rate_limit", "other_rate_limit"), RATE),
        **settings,
    }
    named = {name if name.isupper() else f"ARACHNE_{name.upper()}": value for name, value in own.items()}
    return {name: value for name, value in os.environ.items() if not name.startswith(("ARACHNE_", "AWS_"))} | named


def _answers(part: Part) -> bool:
    assert part.runs(), part.said()
    try:
        return httpx.get(f"{part.url}/healthz", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
