"""`arachne extract` and a service that refuses."""

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import httpx2
import pytest

from arachne.cli import extract_remote
from arachne.client import AsyncClient
from arachne.client.chunks import MAX_IMAGES
from tests.cli.conftest import Run, problem
from tests.client.answers import make_job
from tests.http.pictures import png


def test_too_many_tokens_are_waited_for_and_one_is_enough(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command a file, as loops in shells make them, is no reason to fail."""
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path)
        if request.url.path == "/healthz":
            return httpx2.Response(200, json={"status": "ok"})
        if request.url.path == "/api/extract/images":
            return httpx2.Response(403, json=problem(403, "quota_exceeded"))
        if len(asked) == 1:
            return httpx2.Response(429, json=problem(429, "rate_limited"), headers={"Retry-After": "0"})
        return httpx2.Response(200, json={"access_token": "t", "token_type": "Bearer", "expires_in": 3600})

    for name in ("URL", "CLIENT_ID", "CLIENT_SECRET"):
        monkeypatch.setenv(f"ARACHNE_{name}", "http://service.example")
    monkeypatch.setattr(extract_remote, "AsyncClient", partial(AsyncClient, transport=httpx2.MockTransport(answer)))
    assert run("extract", "https://pictures.example/a.png")[0] == 1
    assert asked[-1] == "/api/extract/images"
    assert asked.count("/api/auth/token") == 2


class Sparing:
    """A service that takes a job and, once somebody waits for that, refuses so many others."""

    def __init__(self, code: str, status: int, *, refusals: int, **headers: str) -> None:
        self.refusal = httpx2.Response(status, json=problem(status, code), headers=headers)
        self.refusals = refusals
        self.jobs: list[Sequence[str]] = []
        self._followed = asyncio.Event()

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """What is asked for."""
        if request.url.path == "/api/extract/images":
            return await self._take(re.findall(r'filename="(.+?)"', (await request.aread()).decode("latin-1")))
        if found := re.match(r"/api/extract/image-jobs/job_(\d+)$", request.url.path):
            self._followed.set()
            return httpx2.Response(200, json=make_job(found[0].rpartition("/")[2], self.jobs[int(found[1])]))
        return httpx2.Response(200, json={"status": "ok"})

    async def _take(self, names: Sequence[str]) -> httpx2.Response:
        if self.jobs and self.refusals:
            self.refusals -= 1
            await self._followed.wait()
            return self.refusal
        self.jobs.append(names)
        return httpx2.Response(202, json=make_job(f"job_{len(self.jobs) - 1}", names, finished=False))


Make = Callable[[Sparing], tuple[set[str], Sequence[str]]]


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Make:
    """Makes pictures for more than one parcel, whose names it gives with the words of a command that sends them."""

    def make(service: Sparing) -> tuple[set[str], Sequence[str]]:
        (tmp_path / "shots").mkdir()
        names = {f"{number:02}" for number in range(MAX_IMAGES + 10)}
        for name in names:
            (tmp_path / "shots" / f"{name}.png").write_bytes(png((int(name), 1, 2)))
        for name, value in {"ARACHNE_URL": "http://service.example", "ARACHNE_TOKEN": "t"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setattr(
            extract_remote, "AsyncClient", partial(AsyncClient, transport=httpx2.MockTransport(service))
        )
        return names, ("extract", "shots", "--format", "txt", "--out", "read")

    return make


def test_a_quota_that_ends_in_the_middle_costs_nothing_of_what_was_taken(run: Run, order: Make, tmp_path: Path) -> None:
    """That is read and written; the others fail with the service's word, and the same command sends them alone."""
    service = Sparing("quota_exceeded", 403, refusals=1)
    names, words = order(service)
    code, out, err = run(*words)
    taken = {name.removesuffix(".png") for name in service.jobs[0]}
    assert (code, out, len(service.jobs), len(taken) in {10, MAX_IMAGES}) == (1, "", 1, True)
    assert {path.stem for path in (tmp_path / "read").iterdir()} == taken
    told = re.findall(r"shots/(\d\d)\.png: quota_exceeded: ", err)
    assert (set(told), len(err.splitlines())) == (names - taken, len(names - taken))
    assert run(*words) == (0, "", "")
    assert {path.stem for path in (tmp_path / "read").iterdir()} == names
    assert sorted(name for job in service.jobs for name in job) == sorted(f"{name}.png" for name in names)


def test_a_service_that_takes_no_more_for_a_while_is_waited_for(
    run: Run,
    order: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long it asks for; why it takes so long is said once."""
    monkeypatch.setattr(extract_remote, "_LONGEST_S", 0.01)
    service = Sparing("rate_limited", 429, refusals=3, **{"Retry-After": "86400"})
    names, words = order(service)
    code, out, err = run(*words)
    assert (code, out, len(err.splitlines()), "takes no more for now" in err) == (0, "", 1, True)
    assert {path.stem for path in (tmp_path / "read").iterdir()} == names
    assert service.refusals == 0
