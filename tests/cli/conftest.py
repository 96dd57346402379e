"""The command line, run in this process."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from arachne import cli, logs

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs `arachne …` in this process: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logs, "configure", lambda *_: None)  # the root logger is the test runner's

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["arachne", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch, database_url: str, tmp_path: Path) -> None:
    """Settings that name a migrated database."""
    monkeypatch.setenv("ARACHNE_DATABASE_URL", database_url)
    monkeypatch.setenv("ARACHNE_DATA_DIR", str(tmp_path / "data"))
