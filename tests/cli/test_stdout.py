"""A standard output that is full, closed by its reader, or not there: told in a line, never as a traceback."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.test_webhooks_command import EVENT, SECRET, headers_for

IMAGE = Path(__file__).parents[1] / "images" / "dialog_light.png"
COMMANDS = (["--version"], ["extract", "--help"], ["extract", "--local", "--stages", "decode", str(IMAGE)])
pytestmark = pytest.mark.processes


@contextmanager
def full() -> Iterator[int]:
    """A device with no room left."""
    device = os.open("/dev/full", os.O_WRONLY)
    yield device
    os.close(device)


@contextmanager
def unread() -> Iterator[int]:
    """A pipe whose reader is gone, as `head` is once it has its lines."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def run(words: list[str], stdout: int, *shell: str) -> tuple[int, str]:
    line = [*shell, sys.executable, "-P", "-m", "arachne", *words]
    done = subprocess.run(line, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", COMMANDS, ids=["version", "help", "extract"])
def test_a_full_disk_is_told(words: list[str]) -> None:
    with full() as device:
        code, told = run(words, device)
    (line,) = told.splitlines()
    assert (code, line.startswith("arachne: "), os.strerror(28) in line) == (1, True, True)


def test_a_terminal_of_another_alphabet_is_written_to() -> None:
    """With the codes of what it can't show."""
    line = [sys.executable, "-P", "-m", "arachne", "extract", "--help"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(line, capture_output=True, env=environment, check=True, timeout=120)
    assert b"FILE|URL\\u2026" in done.stdout


@pytest.mark.parametrize("words", COMMANDS, ids=["version", "help", "extract"])
def test_a_reader_who_wants_no_more_is_left_in_peace(words: list[str]) -> None:
    with unread() as pipe:
        assert run(words, pipe) == (1, "")


@pytest.mark.parametrize(("lost", "lines"), [(full, 1), (unread, 0)], ids=["full", "unread"])
def test_a_listener_ends_with_its_output(lost: Callable[[], AbstractContextManager[int]], lines: int) -> None:
    """And what it could not print is sent again."""
    environment = os.environ | {"ARACHNE_WEBHOOK_SECRET": SECRET}
    line = [sys.executable, "-P", "-m", "arachne", "webhooks", "listen", "--port", "0"]
    with lost() as output:
        listener = subprocess.Popen(line, stdout=output, stderr=subprocess.PIPE, text=True, env=environment)
    with listener:
        try:
            assert listener.stderr is not None
            url = listener.stderr.readline().split()[-1]
            answer = httpx.post(url, content=EVENT, headers=headers_for(EVENT), trust_env=False, timeout=60)
            assert (answer.status_code, listener.wait(60)) == (503, 1)
            assert len(listener.stderr.readlines()) == lines
        finally:
            listener.kill()


def test_an_output_that_is_not_there_is_told() -> None:
    """A file opened later would take its place, and what is printed would go into it."""
    code, told = run(["--version"], subprocess.DEVNULL, "sh", "-c", 'exec "$@" >&-', "sh")
    assert (code, "Standard output is closed" in told) == (3, True)
