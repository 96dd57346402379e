"""`scripts/run`: who signs in at the first start, at the next, and where the one of the last start is gone."""

from base64 import b64decode
from collections.abc import Iterator
from importlib import import_module
from itertools import count
from pathlib import Path
from types import ModuleType

import httpx
import pytest

SCRIPTS = Path(__file__).parent.parent.parent / "scripts"


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The demonstration, whose accounts come from a counter."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    demo = import_module("demo")
    numbers = count(1)

    def create(data_dir: Path, name: str) -> dict[str, str]:
        number = next(numbers)
        return {"account_id": f"acc_{number}", "client_id": f"cli_{number}", "client_secret": "ars_1"}

    monkeypatch.setattr(demo, "create_account", create)
    return demo


@pytest.fixture
def refused() -> set[str]:
    """Clients the service doesn't let in."""
    return set()


@pytest.fixture
def api(refused: set[str]) -> Iterator[httpx.Client]:
    """A service that gives a token to all others."""

    def answer(request: httpx.Request) -> httpx.Response:
        client_id, _, _ = b64decode(request.headers["Authorization"].removeprefix("Basic ")).decode().partition(":")
        return httpx.Response(401 if client_id in refused else 200, json={"access_token": "t"})

    with httpx.Client(base_url="http://service", transport=httpx.MockTransport(answer)) as client:
        yield client


def test_the_next_start_signs_in_as_the_last_one(demo: ModuleType, api: httpx.Client, tmp_path: Path) -> None:
    """So that what was sent then is found again; `--once` has an account of its own, and leaves none behind."""
    assert demo.sign_in(api, tmp_path, anew=True)["account_id"] == "acc_1"
    assert list(tmp_path.iterdir()) == []
    assert demo.sign_in(api, tmp_path, anew=False)["account_id"] == "acc_2"
    assert demo.sign_in(api, tmp_path, anew=False)["account_id"] == "acc_2"
    assert [one.stat().st_mode & 0o777 for one in tmp_path.iterdir()] == [0o600]


def test_an_account_that_is_gone_is_replaced(
    demo: ModuleType, api: httpx.Client, refused: set[str], tmp_path: Path
) -> None:
    """It may be disabled, or the database be another one."""
    demo.sign_in(api, tmp_path, anew=False)
    refused.add("cli_1")
    assert demo.sign_in(api, tmp_path, anew=False)["account_id"] == "acc_2"
    assert demo.sign_in(api, tmp_path, anew=False)["account_id"] == "acc_2"


def test_an_account_that_was_half_written_is_replaced(demo: ModuleType, api: httpx.Client, tmp_path: Path) -> None:
    """As by an end in the middle of it."""
    demo.sign_in(api, tmp_path, anew=False)
    (kept,) = tmp_path.iterdir()
    kept.write_text(kept.read_text()[:10])
    assert demo.sign_in(api, tmp_path, anew=False)["account_id"] == "acc_2"
    assert demo.sign_in(api, tmp_path, anew=False)["account_id"] == "acc_2"


@pytest.mark.parametrize(
    ("is_terminal", "chosen", "told"),
    [(True, "auto", {"ARACHNE_LOG_FORMAT": "text"}), (True, "json", {}), (False, "auto", {})],
)
def test_logs_in_a_terminal_are_for_people(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, is_terminal: bool, chosen: str, told: dict[str, str]
) -> None:
    """Unless something else is asked for: the service itself writes to a pipe, and would take that for no terminal."""
    launch = import_module("launch")
    monkeypatch.setattr(launch.sys.stderr, "isatty", lambda: is_terminal)
    monkeypatch.setenv("ARACHNE_LOG_FORMAT", chosen)
    assert launch.choose_log_format() == told
