"""`arachne doctor` on the way to a service: whether it is there, lets this client in, and tells the same time."""

import time
from collections.abc import Iterator
from email.utils import formatdate

import pytest
from aiohttp import web

from arachne.cli.client_checks import examine_client
from arachne.cli.finding import Check
from arachne.client import ClientSettings
from tests.standins.served import Served


class Service(Served):
    """Answers like a service whose clock is `ahead_s` ahead, and refuses what `refusals` says."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_s = 0.0
        self.is_ours = True
        self.refusal: tuple[int, str] | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    async def answer(self, request: web.Request) -> web.Response:
        """What is asked for."""
        headers = {"Date": formatdate(time.time() + self.ahead_s, usegmt=True)}
        headers |= {"X-Request-Id": "req_1"} if self.is_ours else {}
        if request.path == "/healthz":
            return web.json_response({"status": "ok"}, headers=headers)
        if self.refusal is not None:
            status, code = self.refusal
            told = {"type": "about:blank", "title": "No", "status": status, "detail": "No.", "code": code}
            return web.json_response(told | {"request_id": "1"}, status=status, headers=headers)
        return web.json_response({"data": [], "next_cursor": None}, headers=headers)


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as running:
        yield running


def look(**given: object) -> dict[str, Check]:
    """What is found with these settings, by its name."""
    return {check.name: check for check in examine_client(ClientSettings(_env_file=None, **given))}


def states(found: dict[str, Check]) -> dict[str, str]:
    return {name: check.state for name, check in found.items()}


def test_a_service_that_lets_in(service: Service) -> None:
    """All is well, also where the token may not read jobs."""
    well = {"service url": "ok", "clock": "ok", "credentials": "ok"}
    assert states(look(url=service.url, token="t")) == well
    service.refusal = (403, "insufficient_scope")
    assert states(look(url=service.url, token="t")) == well


def test_a_service_that_does_not(service: Service) -> None:
    """A refused token, none at all, a clock that is wrong, something else in its place: each with what to do."""
    service.refusal = (401, "invalid_token")
    service.ahead_s = 3600
    found = look(url=service.url, token="t")
    assert states(found) == {"service url": "ok", "clock": "warning", "credentials": "failed"}
    seconds, said = found["clock"].found.split(" s ")
    assert int(seconds) == pytest.approx(3600, abs=300)  # `Date` has whole seconds, and the answer takes a while
    assert said.startswith("behind")
    service.is_ours = False
    service.ahead_s = -3600
    found |= look(url=service.url)
    assert states(found) == {"service url": "failed", "clock": "warning", "credentials": "warning"}
    assert "ahead" in found["clock"].found
    assert "account create" in found["credentials"].mend
    assert all(check.mend for check in found.values())


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "service.example", "ftp://service.example", "http://[::1"])
def test_an_address_that_leads_nowhere(url: str) -> None:
    found = look(url=url, token="t")
    assert states(found) == {"service url": "failed"}
    assert "ARACHNE_URL" in found["service url"].mend


def test_an_address_that_is_not_where_the_service_of_this_folder_is() -> None:
    """What is said leads to the service that runs here, and not to starting another."""
    settings = ClientSettings(_env_file=None, url="http://127.0.0.1:9", token="t")
    [check] = examine_client(settings, running_here="http://127.0.0.1:8123")
    assert check.mend.endswith("export ARACHNE_URL=http://127.0.0.1:8123")
    [check] = examine_client(settings, running_here="http://127.0.0.1:9")
    assert "arachne up" in check.mend


def test_nobody_is_called_where_nothing_names_a_service() -> None:
    assert states(look()) == {"client": "ok"}
