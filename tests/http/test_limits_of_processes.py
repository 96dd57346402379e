"""Rate limits of the service as it runs: two API processes, one Redis that may stop and come back."""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import httpx
import pytest

from tests.http.pictures import png
from tests.http.sending import ONE
from tests.machines.machine import API, Machine, Part, machines, token
from tests.machines.servers import Servers, own_servers
from tests.machines.waiting import eventually

pytestmark = pytest.mark.processes
BRIEF = "3/4 seconds"


@dataclass
class Pair:
    """Two API processes with the limits there are by default, and one whose window is short."""

    servers: Servers
    machine: Machine
    apis: list[Part]
    brief: Part

    def headers(self) -> dict[str, str]:
        """An Authorization header of a user of their own."""
        with self.apis[0].client() as client:
            return token(client, self.machine.new_account())


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The processes."""
    folder = tmp_path_factory.mktemp("pair")
    with own_servers(folder / "servers") as servers:
        urls = {"database_url": servers.postgres.url, "redis_url": servers.redis.url}
        with machines(folder, **urls, vision_rate_limit="20/minute") as new_machine:
            machine = new_machine()
            apis = [machine.start(API) for _ in range(2)]
            yield Pair(servers, machine, apis, machine.start(API, vision_rate_limit=BRIEF))


def send(client: httpx.Client, headers: dict[str, str], number: int = 0) -> httpx.Response:
    return client.post(ONE, headers=headers, files={"file": ("a.png", png((number, 0, 0)))})


def is_back(api: Part, client: httpx.Client, headers: dict[str, str]) -> bool:
    """Whether the process counts in Redis again, which a request makes it look for."""
    client.get("/api/usage", headers=headers)
    return "counted in Redis again" in api.said()


def test_a_burst_of_forty_over_two_processes_passes_twenty(pair: Pair) -> None:
    """Sent at once, to one process and the other by turns; those over it are told when they may come again."""
    headers = pair.headers()
    with ExitStack() as stack:
        clients = [stack.enter_context(api.client()) for api in pair.apis]
        pool = stack.enter_context(ThreadPoolExecutor(40))
        answers = list(pool.map(lambda n: send(clients[n % 2], headers, n), range(40)))
    assert Counter(answer.status_code for answer in answers) == {202: 20, 429: 20}
    for answer in answers:
        assert answer.headers["ratelimit-policy"].startswith('"vision";q=20;w=60')
        assert '"vision";r=' in answer.headers["ratelimit"]
        if answer.status_code == 429:
            assert answer.json()["violated-policies"] == ["vision"]
            assert 1 <= int(answer.headers["retry-after"]) <= 61
            assert (answer.headers["x-ratelimit-limit"], answer.headers["x-ratelimit-remaining"]) == ("20", "0")


def test_after_its_wait_the_same_request_is_accepted(pair: Pair) -> None:
    """Whether the wait was told for a full window or for one that is nearly over."""
    headers = pair.headers()
    with pair.brief.client() as client, ThreadPoolExecutor(8) as pool:
        for _ in range(2):
            bursts = (list(pool.map(lambda n: send(client, headers, n), range(8))) for _ in range(20))
            refused = next(one for burst in bursts for one in burst if one.status_code == 429)
            time.sleep(int(refused.headers["retry-after"]))
            assert send(client, headers).status_code == 202


def test_the_limit_holds_while_redis_is_away_and_when_it_is_back(pair: Pair) -> None:
    """Ten before, ten while it is away, none after it has come back empty; another user is served all the while."""
    headers, other = pair.headers(), pair.headers()
    with pair.apis[0].client() as client:
        assert [send(client, headers).status_code for _ in range(10)] == [202] * 10
        pair.servers.redis.stop()
        try:
            assert [send(client, headers).status_code for _ in range(12)] == [202] * 10 + [429] * 2
            assert send(client, other).status_code == 202
        finally:
            pair.servers.redis.start()
        pair.servers.flush_redis()
        eventually(lambda: is_back(pair.apis[0], client, other))
        assert [send(client, headers).status_code for _ in range(12)] == [429] * 12
        assert send(client, other).status_code == 202
