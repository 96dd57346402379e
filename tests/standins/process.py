"""The stand-in for Ollama as a process of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import httpx

ROOT = Path(__file__).resolve().parents[2]


class OllamaProcess:
    """Runs while its context lasts, on a free port of loopback."""

    def __init__(self, **behaviour: object) -> None:
        self._behaviour = behaviour
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self._port = 0

    def start(self) -> None:
        """Listen, at the same port as before."""
        command = [sys.executable, "-m", "tests.standins", json.dumps(self._behaviour), "--port", str(self._port)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().removeprefix("ready ").strip()
        assert self.url, "the stand-in did not start"
        self._port = int(self.url.rpartition(":")[2])

    def stop(self) -> None:
        """Die as if killed; what it counted is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def counts(self) -> dict[str, Any]:
        """Everything counted since the start."""
        return self._control(None)

    def change(self, **changes: object) -> None:
        """Behave so from now on."""
        self._control(changes)

    def _control(self, changes: dict[str, object] | None) -> dict[str, Any]:
        with httpx.Client(base_url=self.url, trust_env=False, timeout=10) as client:
            answer = client.get("/control") if changes is None else client.post("/control", json=changes)
        answer.raise_for_status()
        told: dict[str, Any] = answer.json()
        return told

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
