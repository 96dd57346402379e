"""One service on many machines: nothing that matters is on any of them, so each answers for all."""

import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import httpx
import pytest
from PIL import Image

from tests.acceptance.receiver import Receiver
from tests.machines.machine import API, GPU, IO, SCHEDULER, Machine, NewMachine, Part, machines, token
from tests.machines.object_store import ObjectStore, object_store
from tests.machines.servers import Servers, own_servers
from tests.machines.waiting import eventually

ONE, MANY, JOBS = "/api/extract/image", "/api/extract/images", "/api/extract/image-jobs"
FAST = {"detail_level": "fast"}
IMAGES = 48


@dataclass
class Estate:
    """Two machines with an API, three with a GPU worker, two with an IO worker; servers and a store that all share."""

    servers: Servers
    store: ObjectStore
    new_machine: NewMachine
    apis: list[Part]
    gpu: list[Part]
    io: list[Part]
    first: Machine

    def client(self, number: int, headers: dict[str, str]) -> httpx.Client:
        """A client of one of the APIs."""
        return self.apis[number].client(headers=headers)


@pytest.fixture(scope="module")
def estate(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Estate]:
    """The machines."""
    folder = tmp_path_factory.mktemp("estate")
    with own_servers(folder / "servers") as servers, object_store(folder) as store:
        shared = {
            "database_url": servers.postgres.url,
            "redis_url": servers.redis.url,
            "webhook_egress_allow": json.dumps([f"127.0.0.1:{receiver.port}"]),
            "vision_rate_limit": "8/hour",
            **store.settings,
        }
        with machines(folder, **shared) as new_machine:
            apis, gpu, io = ([new_machine() for _ in range(number)] for number in (2, 3, 2))
            estate = Estate(
                servers, store, new_machine,
                apis=[one.start(API) for one in apis],
                gpu=[one.start(GPU) for one in gpu],
                io=[one.start(IO) for one in io],
                first=apis[0],
            )  # fmt: skip
            io[0].start(SCHEDULER)
            yield estate
            left = [part for part in [*estate.apis, *estate.gpu, *estate.io] if part.runs()]
            for part in left:
                part.stop()


def picture(mark: int) -> bytes:
    """A small PNG of its own."""
    buffer = io.BytesIO()
    Image.new("RGB", (48, 24), (mark >> 8, mark & 255, 99)).save(buffer, "PNG")
    return buffer.getvalue()


def test_any_machine_answers_for_all(estate: Estate, receiver: Receiver) -> None:
    """Sent to one, told by the other; a worker that is killed loses nothing; a new machine knows all there is."""
    account = estate.first.new_account()
    with estate.apis[0].client() as anybody:
        headers = token(anybody, account)
    with estate.client(0, headers) as here, estate.client(1, headers) as there:
        hook = {"url": receiver.url("estate"), "events": ["image.*", "job.*"]}
        secret = here.post("/api/webhooks", json=hook).json()["secret"]
        sent = [picture(mark) for mark in range(IMAGES)]
        job_id = submit(here, sent)
        with ThreadPoolExecutor() as threads:
            streaming = threads.submit(stream, estate.apis[1], headers, job_id)
            kill_one_that_works(estate)
            job = wait(there, job_id)
            streamed = streaming.result()
        assert (job["status"], job["progress"]["completed"]) == ("completed", IMAGES)
        assert sorted(event["data"]["sequence"] for event in streamed) == [*range(1, len(streamed) + 1)]
        assert len(streamed) == IMAGES + 2
        check_originals(there, job_id, sent)
        assert len([name for name in estate.store.names() if "/originals/" in name]) == IMAGES
        check_cached(here, there, sent[7])
        check_deliveries(there, receiver, secret, streamed)
        check_shared_limit(estate, headers)
        check_like(estate, there, headers, job_id)


def submit(api: httpx.Client, pictures: list[bytes]) -> str:
    """Id of the job."""
    files = [("files", (f"{number}.png", data, "image/png")) for number, data in enumerate(pictures)]
    answer = api.post(MANY, files=files, data={"options": json.dumps(FAST)})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["job_id"])


def wait(api: httpx.Client, job_id: str) -> dict[str, Any]:
    """The job, finished."""
    eventually(lambda: api.get(f"{JOBS}/{job_id}", params={"wait": "10"}).json()["finished"], 300)
    found: dict[str, Any] = api.get(f"{JOBS}/{job_id}").json()
    return found


def stream(part: Part, headers: dict[str, str], job_id: str) -> list[dict[str, Any]]:
    """The job's events to its end."""
    with part.client(headers=headers) as api, api.stream("GET", f"{JOBS}/{job_id}/events") as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines]


def of_sequence(event: dict[str, Any]) -> int:
    """The event's place in its job."""
    return int(event["data"]["sequence"])


def kill_one_that_works(estate: Estate) -> None:
    """A GPU worker with images in its hands is gone."""
    working = "SELECT worker.pid FROM worker JOIN image USING (worker_id) WHERE image.state = 'running' LIMIT 1"
    found: list[tuple[object, ...]] = []
    eventually(lambda: found.extend(estate.servers.ask(working)) or found, pause_s=0.01)
    next(part for part in estate.gpu if part.process.pid == found[0][0]).kill()


def check_originals(api: httpx.Client, job_id: str, sent: list[bytes]) -> None:
    """The stored bytes are those that were sent."""
    for index in (0, IMAGES - 1):
        assert api.get(f"{JOBS}/{job_id}/images/{index}/original").content == sent[index]


def check_cached(here: httpx.Client, there: httpx.Client, data: bytes) -> None:
    """What one machine's worker read, each API answers at once."""
    for api in (here, there):
        answer = api.post(ONE, params=FAST, files={"file": ("again.png", data)})
        assert (answer.status_code, answer.json()["cached"]) == (200, True)


def check_deliveries(api: httpx.Client, receiver: Receiver, secret: str, streamed: list[dict[str, Any]]) -> None:
    """Each event of the job was delivered once, by whichever worker, as it was streamed."""
    [endpoint] = api.get("/api/webhooks").json()["data"]
    pending = f"/api/webhooks/{endpoint['endpoint_id']}/deliveries?status=pending"
    eventually(lambda: api.get(pending).json()["data"] == [])
    taken = receiver.taken("estate")
    assert len({delivery.headers["webhook-id"] for delivery in taken}) == len(taken)
    delivered = [delivery.verified(secret) for delivery in taken]
    job_id = streamed[0]["data"]["job_id"]
    of_job = sorted((one for one in delivered if one["data"]["job_id"] == job_id), key=of_sequence)
    assert of_job == sorted(streamed, key=of_sequence)


def check_shared_limit(estate: Estate, headers: dict[str, str]) -> None:
    """Three of eight submissions were made; five more pass, wherever they are sent."""
    with estate.client(0, headers) as here, estate.client(1, headers) as there:
        turns = cycle((here, there))
        codes = [next(turns).post(ONE, params=FAST, files={"file": ("x.png", picture(9))}) for _ in range(8)]
    assert [answer.status_code for answer in codes] == [200] * 5 + [429] * 3


def check_like(estate: Estate, there: httpx.Client, headers: dict[str, str], job_id: str) -> None:
    """An API on a new machine, with nothing but the shared settings, answers as one that was there all along."""
    paths = [
        f"{JOBS}?limit=3",
        f"{JOBS}/{job_id}?include=results",
        *(f"{JOBS}/{job_id}/images/5{rest}" for rest in ("", "/original", "/result?format=md", "/result?format=hocr")),
        "/api/events",
        "/api/usage",
        "/api/webhooks",
        "/.well-known/jwks.json",
        "/openapi.json",
    ]
    [endpoint] = there.get("/api/webhooks").json()["data"]
    deliveries = f"/api/webhooks/{endpoint['endpoint_id']}/deliveries"
    eventually(lambda: there.get(f"{deliveries}?status=pending").json()["data"] == [])
    estate.apis[0].stop()
    estate.apis[0] = estate.new_machine().start(API)
    with estate.client(0, headers) as api:
        for path in [*paths, f"{deliveries}?limit=200"]:
            ours, theirs = api.get(path), there.get(path)
            assert (ours.status_code, ours.content) == (200, theirs.content), path


def test_a_store_that_is_away_holds_nothing_else_up(estate: Estate) -> None:
    """Submissions are 503 and leave nothing; all else is answered meanwhile, and all goes on once it is back."""
    account = estate.first.new_account()
    with estate.apis[0].client() as api:
        api.headers.update(token(api, account))
        before = submit(api, [picture(1)])
        wait(api, before)
        estate.store.freeze()
        try:
            with ThreadPoolExecutor() as threads, estate.apis[0].client(headers=api.headers) as second:
                key = {"Idempotency-Key": "once"}
                late = threads.submit(second.post, ONE, files={"file": ("a.png", picture(2))}, headers=key)
                while not late.done():
                    assert api.get("/healthz").status_code == 200
                    assert api.get(f"{JOBS}/{before}").status_code == 200
            refused = late.result()
            assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
            assert int(refused.headers["retry-after"]) >= 1
            for table, rows in (("job", 1), ("idempotency_key", 0)):
                counted = f"SELECT count(*) FROM {table} WHERE account_id = %s"
                assert estate.servers.ask(counted, account["account_id"]) == [(rows,)]
        finally:
            estate.store.thaw()
        accepted = api.post(ONE, params=FAST, files={"file": ("a.png", picture(2))}, headers=key)
        assert wait(api, accepted.json()["job_id"])["status"] == "completed"
