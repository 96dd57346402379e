"""The client library and the command work where only the base dependencies are installed."""

import subprocess

import pytest

from tests.client.light import COMMAND, banned_modules, lightly

pytestmark = pytest.mark.processes


def run(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(lightly(code, *words), capture_output=True, text=True, check=False, timeout=120)


def test_what_runs_a_service_is_not_among_the_base_dependencies() -> None:
    """Or the other tests here would show nothing."""
    assert {"sqlalchemy", "psycopg", "numpy", "cv2", "starlette", "dramatiq", "httpx", "redis"} <= banned_modules()
    assert "No module named 'numpy'" in run("import numpy").stderr


def test_the_library_is_imported_and_fetches_tokens_without_the_service() -> None:
    done = run("import arachne.client, authlib.integrations.httpx_client; print(arachne.client.Client.__name__)")
    assert (done.returncode, done.stdout.strip()) == (0, "Client"), done.stderr


@pytest.mark.parametrize("words", [["--help"], ["extract", "--help"], ["up", "--help"], ["webhooks", "--help"]])
def test_the_command_tells_of_itself(words: list[str]) -> None:
    done = run(COMMAND, *words)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


@pytest.mark.parametrize("words", [["up", "--port", "0"], ["api"], ["migrate"], ["account", "list"]])
def test_what_needs_the_service_says_how_to_install_it(words: list[str]) -> None:
    done = run(COMMAND, *words)
    assert done.returncode == 3, done.stderr
    assert "pip install 'arachne-vision[server]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_looks_at_the_clients_side() -> None:
    """That a service's packages are missing is no failure for a client, and is said with how to get them."""
    done = run(COMMAND, "doctor")
    assert done.returncode == 0, done.stderr
    assert "pip install 'arachne-vision[server" in done.stdout
    assert "ARACHNE_URL" in done.stdout
