"""`scripts/browser`: where a Chromium is, or that there is none."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "browser"


def run(path: Path, **environment: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr, where these programs alone are found and nobody is root."""
    make(path / "id", "echo 1000")
    line, env = ["/bin/sh", SCRIPT], {"PATH": str(path), **environment}
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


def make(program: Path, does: str = "") -> Path:
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("name", ["chromium", "google-chrome-stable"])
def test_its_path_is_printed(tmp_path: Path, name: str) -> None:
    made = make(tmp_path / name)
    for environment in ({}, {"ARACHNE_BROWSER": ""}):
        assert run(tmp_path, **environment) == (0, f"{made}\n", "")


def test_one_that_is_named_goes_before(tmp_path: Path) -> None:
    make(tmp_path / "chromium")
    named = make(tmp_path / "my own")
    assert run(tmp_path, ARACHNE_BROWSER=str(named)) == (0, f"{named}\n", "")


def test_none_is_told_with_how_to_get_one(tmp_path: Path) -> None:
    """Nothing on stdout, where a path would stand."""
    code, out, err = run(tmp_path)
    assert (code, out, "apt-get install chromium" in err) == (1, "", True)
