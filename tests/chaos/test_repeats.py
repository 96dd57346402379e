"""One Idempotency-Key makes one job, whichever process it is sent to, and whenever one of them dies."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier
from typing import Any

import httpx
import pytest
from psycopg import Connection

from arachne.database import plain_url
from tests.http.pictures import png
from tests.machines.machine import API, Machine, Part, machines, token
from tests.machines.servers import Servers, own_servers
from tests.machines.waiting import eventually

pytestmark = pytest.mark.chaos
ONE, JOBS = "/api/extract/image", "/api/extract/image-jobs"
TRIES = 100


@dataclass
class Pair:
    """Two API processes on two machines that share everything else, and an account."""

    servers: Servers
    machines: tuple[Machine, Machine]
    apis: list[Part]
    account: dict[str, str]
    headers: dict[str, str]

    def send(self, number: int, key: str, **more: Any) -> httpx.Response:
        """The answer of one of the two to a picture under a key."""
        with self.apis[number].client(headers=self.headers) as api:
            headers = {"Idempotency-Key": key, **more.pop("headers", {})}
            return api.post(ONE, files={"file": ("a.png", png())}, headers=headers, **more)

    def jobs(self, key: str) -> list[str]:
        """The jobs made by requests that name the key in their metadata."""
        asked = "SELECT job_id FROM job WHERE account_id = %s AND labels ->> 'key' = %s"
        return [str(row[0]) for row in self.servers.ask(asked, self.account["account_id"], key)]

    def hold_leases(self) -> None:
        """The leases of all reservations are long, however long this machine takes for what comes next."""
        self.servers.ask("UPDATE idempotency_key SET lease_until = now() + interval '1 h' WHERE job_id IS NULL")

    def end_leases(self) -> None:
        """The leases of all reservations are over, as they are by themselves a quarter of a minute later."""
        self.servers.ask("UPDATE idempotency_key SET lease_until = now() - interval '1 s' WHERE job_id IS NULL")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both APIs; no worker takes anything."""
    folder = tmp_path_factory.mktemp("pair")
    with own_servers(folder / "servers") as servers:
        shared = {"database_url": servers.postgres.url, "redis_url": servers.redis.url}
        storage = {"storage_url": f"file://{folder}/storage"}
        with machines(folder, **shared, **storage) as new_machine:
            both = (new_machine(), new_machine())
            apis = [machine.start(API) for machine in both]
            account = both[0].new_account()
            with apis[0].client() as api:
                headers = token(api, account)
            yield Pair(servers, both, apis, account, headers)


def named(key: str) -> dict[str, Any]:
    """Metadata by which the test finds its jobs."""
    return {"data": {"metadata": json.dumps({"key": key})}}


def test_two_that_race_to_two_processes_make_one_job(pair: Pair) -> None:
    """A hundred times: the other is told to wait, or gets the same job."""
    start = Barrier(2)

    def send(api: httpx.Client, key: str) -> httpx.Response:
        start.wait(60)
        return api.post(ONE, files={"file": ("a.png", png())}, headers={"Idempotency-Key": key}, **named(key))

    with (
        ThreadPoolExecutor(2) as threads,
        pair.apis[0].client(headers=pair.headers) as here,
        pair.apis[1].client(headers=pair.headers) as there,
    ):
        for number in range(TRIES):
            key = f"race-{number}"
            answers = list(threads.map(send, (here, there), (key, key)))
            [job_id] = pair.jobs(key)
            made = [answer for answer in answers if answer.status_code == 202]
            others = [answer.json()["code"] for answer in answers if answer.status_code != 202]
            assert {answer.json()["job_id"] for answer in made} == {job_id}
            assert others in ([], ["idempotency_key_in_use"])
            assert [answer.headers.get("idempotent-replayed") for answer in made].count(None) == 1


def test_a_process_killed_while_it_reads_has_accepted_nothing(pair: Pair) -> None:
    """Its key is held until the lease ends; then the repeat is the first."""
    key = "cut-in-the-body"
    address = httpx.URL(pair.apis[0].url)
    head = [
        f"POST {ONE} HTTP/1.1", "Host: x", f"Authorization: {pair.headers['Authorization']}",
        f"Idempotency-Key: {key}", "Content-Type: multipart/form-data; boundary=b", "Content-Length: 100000", "", "--b",
    ]  # fmt: skip
    with socket.create_connection((address.host, address.port or 0)) as half:
        half.sendall("\r\n".join(head).encode())
        eventually(lambda: pair.servers.ask("SELECT 1 FROM idempotency_key WHERE key = %s", key))
        kill_and_replace(pair)
    check_taken_once(pair, key)


def test_a_process_killed_before_its_commit_has_accepted_nothing(pair: Pair) -> None:
    """It is killed in the transaction that makes the job, while that waits for a lock."""
    key = "cut-in-the-commit"
    with ThreadPoolExecutor() as threads, Connection.connect(plain_url(pair.servers.postgres.url)) as other:
        other.execute("LOCK TABLE image IN EXCLUSIVE MODE")
        lost = threads.submit(pair.send, 0, key, **named(key))
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'image'::regclass"
        eventually(lambda: pair.servers.ask(waiting))
        kill_and_replace(pair)
        assert isinstance(lost.exception(), httpx.TransportError)
        other.rollback()
    eventually(lambda: not pair.servers.ask("SELECT 1 FROM pg_stat_activity WHERE state LIKE '%in transaction%'"))
    check_taken_once(pair, key)


def check_taken_once(pair: Pair, key: str) -> None:
    """The key is in use, then free: its next request makes the one job there is, which further ones get."""
    assert pair.jobs(key) == []
    early = pair.send(1, key, **named(key))
    assert (early.status_code, early.json()["code"]) == (409, "idempotency_key_in_use")
    assert int(early.headers["retry-after"]) >= 1
    pair.end_leases()
    taken = pair.send(1, key, **named(key))
    again = pair.send(0, key, **named(key))
    assert (taken.status_code, again.status_code) == (202, 202)
    assert [taken.json()["job_id"]] == [again.json()["job_id"]] == pair.jobs(key)
    assert again.headers["idempotent-replayed"] == "true"


def test_a_process_killed_after_its_commit_has_accepted_the_job(pair: Pair) -> None:
    """Its client got no answer; the repeat, sent to the other, is answered with that job at once."""
    key = "cut-in-the-answer"
    with ThreadPoolExecutor() as threads:
        lost = threads.submit(pair.send, 0, key, headers={"Prefer": "wait=60"}, **named(key))
        eventually(lambda: pair.jobs(key))
        kill_and_replace(pair)
        assert isinstance(lost.exception(), httpx.TransportError)
    again = pair.send(1, key, **named(key))
    assert (again.status_code, again.headers["idempotent-replayed"]) == (202, "true")
    assert pair.jobs(key) == [again.json()["job_id"]]


def kill_and_replace(pair: Pair) -> None:
    """The first API is gone from one moment to the next, and another one is there in its place."""
    pair.apis[0].kill()
    pair.hold_leases()
    pair.apis[0] = pair.machines[0].start(API)
