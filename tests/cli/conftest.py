"""The command line, run in this process."""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import httpx2
import pytest
import respx

from arachne import cli, logs
from arachne.cli import clients

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


def problem(status: int, code: str, *errors: dict[str, object]) -> dict[str, object]:
    """A refusal's body. Source: RFC 9457."""
    told = {"type": "about:blank", "title": "No", "status": status, "detail": "No.", "code": code, "request_id": "1"}
    return told | ({"errors": list(errors)} if errors else {})


class Routed(httpx2.AsyncBaseTransport):
    """What respx, which knows httpx alone, answers."""

    def __init__(self, router: respx.Router) -> None:
        self._router = router

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The router's answer, or its error."""
        body = await request.aread()
        asked = httpx.Request(request.method, str(request.url), headers=request.headers.raw, content=body)
        try:
            answer = await self._router.async_handler(asked)
        except httpx.ConnectError as error:
            raise httpx2.ConnectError(str(error)) from error
        return httpx2.Response(answer.status_code, headers=answer.headers.raw, content=answer.content)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[respx.Router]:
    """A service at ARACHNE_URL that answers as it is told, and a token for it; what fails is not tried again."""
    url = "https://service.example"
    monkeypatch.setenv("ARACHNE_URL", url)
    monkeypatch.setenv("ARACHNE_TOKEN", "a-token")
    with respx.mock(base_url=url, assert_all_called=False) as router:
        monkeypatch.setattr(clients, "Service", partial(clients.Service, transport=Routed(router)))
        monkeypatch.setattr(clients, "MAX_WAIT_S", 0)
        yield router


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch, database_url: str, tmp_path: Path) -> None:
    """Settings that name a migrated database."""
    monkeypatch.setenv("ARACHNE_DATABASE_URL", database_url)
    monkeypatch.setenv("ARACHNE_DATA_DIR", str(tmp_path / "data"))
