"""Redis, Postgres and the store go away and come back while a whole service runs; nobody starts a part of it anew."""

import io
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from PIL import Image

from tests.machines.machine import API, GPU, IO, SCHEDULER, Machine, Part, machines, token
from tests.machines.servers import Servers, own_servers
from tests.machines.waiting import eventually

pytestmark = pytest.mark.chaos
ONE, JOBS = "/api/extract/image", "/api/extract/image-jobs"
FAST = {"detail_level": "fast"}
OPEN = {"/healthz", "/openapi.json", "/docs", "/console", "/.well-known/oauth-authorization-server", "/readyz"}
_marks = iter(range(1 << 24))


@dataclass
class Whole:
    """A whole service on one machine and an account's client of it."""

    servers: Servers
    machine: Machine
    api: httpx.Client
    part: Part

    def submit(self, **headers: str) -> httpx.Response:
        """The answer to a picture nobody has sent before."""
        return self.api.post(ONE, params=FAST, files={"file": ("a.png", picture())}, headers=headers)

    def finish(self, answer: httpx.Response) -> dict[str, Any]:
        """The job of the answer, once it is finished."""
        assert answer.status_code in {200, 202}, answer.text
        url = f"{JOBS}/{answer.json()['job_id']}"
        eventually(lambda: self.api.get(url, params={"wait": "10"}).json()["finished"])
        found: dict[str, Any] = self.api.get(url).json()
        return found

    def readiness(self) -> tuple[int, str, dict[str, str]]:
        """Status code, status and checks."""
        answer = self.api.get("/readyz")
        return answer.status_code, answer.json()["status"], answer.json()["checks"]

    def await_ready(self) -> None:
        """All is well again."""
        eventually(lambda: self.readiness()[1] == "ok")

    def count(self, table: str) -> int:
        """Number of rows."""
        return int(str(self.servers.ask(f"SELECT count(*) FROM {table}")[0][0]))


def picture() -> bytes:
    """A small PNG; each is another one."""
    mark, buffer = next(_marks), io.BytesIO()
    Image.new("RGB", (48, 24), (mark >> 16, mark >> 8 & 255, mark & 255)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    """The service, in which the very processes of the start still run at the end."""
    folder = tmp_path_factory.mktemp("whole")
    with own_servers(folder / "servers") as servers, machines(folder, **urls(servers)) as new_machine:
        machine = new_machine()
        for words in (GPU, IO, SCHEDULER):
            machine.start(words)
        part = machine.start(API)
        with part.client() as api:
            api.headers.update(token(api, machine.new_account()))
            yield Whole(servers, machine, api, part)
        assert [part.said() for part in machine.parts if not part.runs()] == []
        for part in machine.parts:
            part.stop()


def urls(servers: Servers) -> dict[str, str]:
    """The settings that name them."""
    return {"database_url": servers.postgres.url, "redis_url": servers.redis.url}


@contextmanager
def away(server: Any, how: str) -> Iterator[None]:
    """The server is stopped or frozen meanwhile."""
    leave, come_back = (server.stop, server.start) if how == "stopped" else (server.freeze, server.thaw)
    leave()
    try:
        yield
    finally:
        come_back()


@pytest.mark.parametrize("how", ["stopped", "frozen"])
def test_without_redis_jobs_are_taken_and_read(whole: Whole, how: str) -> None:
    """Workers look by themselves, limits are counted in memory; that is told, once each way, and mends itself."""
    whole.await_ready()
    said = len(whole.part.said())
    with away(whole.servers.redis, how):
        jobs = [whole.finish(whole.submit()) for _ in range(3)]
        assert [job["status"] for job in jobs] == ["completed"] * 3
        eventually(lambda: whole.readiness()[:2] == (200, "degraded"))
        checks = whole.readiness()[2]
        assert (checks["redis"], checks["postgres"]) == ("unavailable", "ok")
    whole.await_ready()
    eventually(lambda: whole.submit().is_success and "counted in Redis again" in whole.part.said()[said:])
    told = whole.part.said()[said:]
    assert (told.count("counted in memory"), told.count("counted in Redis again")) == (1, 1)
    assert whole.finish(whole.submit())["status"] == "completed"


@pytest.mark.parametrize("how", ["stopped", "frozen"])
def test_without_postgres_every_route_is_503_until_it_is_back(whole: Whole, how: str) -> None:
    """Each route says so in the form of all errors, with a time to try again; then everything goes on by itself."""
    whole.await_ready()
    before = whole.submit()
    with away(whole.servers.postgres, how):
        needing = [one for one in operations(whole.api) if one[1] not in OPEN]
        with ThreadPoolExecutor(len(needing)) as threads:
            answers = list(threads.map(lambda one: whole.api.request(one[0], fill(one[1]), **body_of(*one)), needing))
        told = [(one.status_code, one.headers["content-type"], one.json()["code"]) for one in answers]
        expected = (503, "application/problem+json", "unavailable")
        assert [one for one in zip(needing, told, strict=True) if one[1] != expected] == []
        assert all(int(one.headers["retry-after"]) >= 1 for one in answers)
        eventually(lambda: whole.readiness()[:2] == (503, "unavailable"))
        assert whole.readiness()[2]["postgres"] == "unavailable"
        assert whole.api.get("/healthz").status_code == 200
    whole.await_ready()
    assert whole.finish(before)["status"] == "completed"
    assert whole.finish(whole.submit())["status"] == "completed"


@pytest.mark.parametrize("how", ["gone", "a file"])
def test_without_the_store_nothing_is_written(whole: Whole, how: str) -> None:
    """Neither a job nor a key that blocks the next try; and no folder is made in the place of one that is gone."""
    whole.await_ready()
    folder, aside = whole.machine.data_dir / "storage", whole.machine.data_dir / "aside"
    jobs, keys = whole.count("job"), whole.count("idempotency_key")
    kept = whole.submit()
    whole.finish(kept)
    folder.rename(aside)
    if how == "a file":
        folder.touch()
    try:
        key = {"Idempotency-Key": f"while {how}".replace(" ", "-")}
        refused = whole.submit(**key)
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        assert int(refused.headers["retry-after"]) >= 1
        assert (whole.count("job"), whole.count("idempotency_key")) == (jobs + 1, keys)
        assert folder.is_file() is (how == "a file")
        eventually(lambda: whole.readiness()[0] == 503)
        original = whole.api.get(f"{JOBS}/{kept.json()['job_id']}/images/0/original")
        assert original.status_code == 503, "what can't be looked at isn't gone"
    finally:
        folder.unlink(missing_ok=True)
        aside.rename(folder)
    accepted = whole.submit(**key)
    assert "idempotent-replayed" not in accepted.headers
    assert whole.finish(accepted)["status"] == "completed"
    assert whole.api.get(f"{JOBS}/{kept.json()['job_id']}/images/0/original").status_code == 200
    whole.await_ready()


def test_images_wait_for_a_store_that_is_away(whole: Whole) -> None:
    """An original that can't be looked at is not one that is missing: its image is read once the store is back."""
    folder, aside = whole.machine.data_dir / "storage", whole.machine.data_dir / "aside"
    worker = next(part for part in whole.machine.parts if part.words == GPU)
    worker.process.send_signal(19)
    try:
        answer = whole.submit()
        folder.rename(aside)
        worker.process.send_signal(18)
        said = len(worker.said())
        eventually(lambda: "store" in worker.said()[said:])
    finally:
        worker.process.send_signal(18)
        aside.rename(folder)
    assert whole.finish(answer)["status"] == "completed"


def operations(api: httpx.Client) -> list[tuple[str, str]]:
    """Every method and path the service tells of."""
    paths = api.get("/openapi.json").json()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods if method != "parameters"]


def fill(path: str) -> str:
    """The path with an id for each name."""
    return re.sub(r"\{[^}]*\}", lambda name: "0" if "index" in name[0] else "x_01JZZZZZZZZZZZZZZZZZZZZZZZ", path)


def body_of(method: str, path: str) -> dict[str, Any]:
    """Something the route may take."""
    if method not in {"POST", "PUT", "PATCH"}:
        return {}
    if path.endswith("/token"):
        return {"data": {"grant_type": "client_credentials"}, "auth": ("cli_x", "x")}
    if path in {ONE, "/api/extract/images"}:
        return {"files": {"file" if path == ONE else "files": ("a.png", picture())}}
    return {"json": {}}
