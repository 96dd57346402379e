"""Each service of compose.yaml does what that file relies on: its command, its health check, its end."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from arachne.exposition import OFFSETS
from tests.machines.waiting import eventually
from tests.standins.ports import free_ports

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
PARTS = {"api": None, "gpu": "worker gpu", "io": "worker io", "scheduler": "scheduler"}  # by what their metrics have


@dataclass
class Composed:
    """Runs what compose.yaml says, with ports and folders of the test's, in an empty folder and with no home."""

    folder: Path
    ports: dict[str, int]  # that its health check asks, by service
    redis_url: str

    def environment(self, name: str) -> dict[str, str]:
        """Of the service, and host names that are not the health check's."""
        named: dict[str, Any] = SERVICES[name]["environment"]
        plain = {name: re.sub(r"^\$\{\w+:-(.*)\}$", r"\1", str(value)) for name, value in named.items()}
        return plain | {
            "PATH": os.environ["PATH"],
            "ARACHNE_TRUSTED_HOSTS": '["vision.example.com"]',
            "ARACHNE_REDIS_URL": self.redis_url,
            "ARACHNE_DATA_DIR": str(self.folder / "data"),
            "ARACHNE_STORAGE_URL": f"file://{self.folder}/data/storage",
            "ARACHNE_SECRETS_DIR": str(self.folder / "secrets"),
            "ARACHNE_PORT": str(self.ports["api"]),
            "ARACHNE_METRICS_HOST": "127.0.0.1",
            "ARACHNE_METRICS_PORT": str(self.ports[name] - OFFSETS[PARTS[name]] if PARTS.get(name) else 0),
        }

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """The service's own process."""
        words = [word.replace("0.0.0.0", "127.0.0.1") for word in SERVICES[name]["command"]]
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "arachne", *words],
                env=self.environment(name), cwd=self.folder / "empty", stdin=subprocess.DEVNULL, stderr=log,
            )  # fmt: skip

    def is_healthy(self, name: str, *, timeout_s: int = 8) -> bool:
        """What its health check says."""
        code: str = SERVICES[name]["healthcheck"]["test"][-1]
        code = re.sub(r"(?<='127\.0\.0\.1', )\d+", str(self.ports[name]), code)
        code = code.replace("timeout=8", f"timeout={timeout_s}")
        check = subprocess.run([sys.executable, "-I", "-c", code], stderr=subprocess.DEVNULL, check=False)
        return check.returncode == 0


@pytest.fixture
def composed(tmp_path: Path, new_database_url: Callable[[], str], redis_url: str) -> Composed:
    """Secrets as files, an empty volume, and servers."""
    for name in ("data", "secrets", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "secrets" / "arachne_database_url").write_text(new_database_url())
    (tmp_path / "secrets" / "arachne_secret_key").write_text("0" * 64)
    (tmp_path / "empty").chmod(0o555)
    return Composed(tmp_path, dict(zip(PARTS, free_ports(len(PARTS)), strict=True)), redis_url)


@contextmanager
def running(composed: Composed) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """All parts; none is left."""
    started = {name: composed.start(name) for name in PARTS}
    try:
        yield started
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def test_services_run_as_composed(composed: Composed) -> None:
    """Their checks fail while none runs or it is frozen, pass else; they end when asked, within the time they have.

    What they log is JSON, and they write nowhere but where volumes are.
    """
    assert composed.start("migrate").wait(120) == 0
    assert not any(composed.is_healthy(name) for name in PARTS)
    with running(composed) as parts:
        for name in PARTS:
            eventually(lambda name=name: composed.is_healthy(name), pause_s=0.5)
        for name, process in parts.items():
            process.send_signal(signal.SIGSTOP)
            assert not composed.is_healthy(name, timeout_s=1), name
            process.send_signal(signal.SIGCONT)
        for name, process in parts.items():
            eventually(lambda name=name: composed.is_healthy(name))
            process.send_signal(signal.SIGTERM)
        for name, process in parts.items():
            grace_s = float(SERVICES[name]["stop_grace_period"].rstrip("s"))
            assert process.wait(grace_s) in {0, -signal.SIGTERM}, name  # uvicorn ends with the signal it was sent
    for name in PARTS:
        assert all(json.loads(line)["event"] for line in (composed.folder / f"{name}.log").read_text().splitlines())
    assert list((composed.folder / "empty").iterdir()) == []
