"""An IO worker killed or frozen while it fetches images: another one does, and nothing is lost or done twice."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator

import pytest
from aiohttp import web
from sqlalchemy import text

from arachne.jobs.fetch_claim import PER_HOST
from arachne.jobs.reconcile import release_worker
from tests.core.fetching.conftest import png
from tests.standins.served import Served

pytestmark = pytest.mark.chaos
IO = "io.run(Settings.load())"
NUMBER = 3 * PER_HOST


class HangingHost(Served):
    """A host that hangs until `release`; then it answers with a picture for each path."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self._released = asyncio.Event()

    def release(self) -> None:
        """Answer from now on."""
        self.soon(self._released.set)

    async def answer(self, request: web.Request) -> web.Response:
        """A picture, in the end."""
        self.asked.append(request.path)
        await self._released.wait()
        return web.Response(body=png(int(request.path.strip("/"))))


@pytest.fixture
def host() -> Iterator[HangingHost]:
    """A host that hangs."""
    with HangingHost() as running:
        yield running


def variables_for(host: HangingHost) -> dict[str, str]:
    """Settings of IO workers that may fetch from the host."""
    return {
        "ARACHNE_IMAGE_EGRESS_ALLOW": json.dumps([f"127.0.0.1:{host.port}"]),
        "ARACHNE_EGRESS_ALLOW_HTTP": "true",
        "ARACHNE_LEASE_S": "5",
    }


def submit_urls(service, host: HangingHost) -> str:
    """A job whose images are all still to be fetched from the host."""
    made: str = service.submit(*(str(n) for n in range(NUMBER)))
    with service.database.transaction() as transaction:
        transaction.session.execute(
            text(
                "UPDATE image SET state = 'fetching', fetch_at = now(), sha256 = NULL, source_host = '127.0.0.1', "
                "source_url = format('http://127.0.0.1:%s/%s', CAST(:port AS text), index)"
            ),
            {"port": str(host.port)},
        )
    return made


def assert_fetched_once(service, job_id: str, host: HangingHost) -> None:
    """Each image has its own bytes after one attempt; those in hand were lost once and asked for once more."""
    images = service.images(job_id)
    assert {image.state for image in images} == {"queued"}
    assert len({image.sha256 for image in images}) == NUMBER
    assert {image.fetch_attempts for image in images} == {1}
    assert sum(image.lost_leases for image in images) == PER_HOST
    assert len(host.asked) == NUMBER + PER_HOST
    assert service.scalar("SELECT count(*) FROM webhook_message WHERE type LIKE 'image.%'") == 0


@pytest.mark.parametrize("reaped", [True, False])
def test_killed_fetcher_loses_nothing(service, part_process, eventually, host: HangingHost, reaped: bool) -> None:
    """After kill -9 in mid-fetch another worker goes on: at once where a supervisor tells, else after the lease."""
    job_id, variables = submit_urls(service, host), variables_for(host)
    with part_process(IO, **variables) as victim:
        eventually(lambda: len(host.asked) == PER_HOST)
        victim.kill()
        victim.wait()
        if reaped:
            service.database.run(release_worker, host=os.uname().nodename, pid=victim.pid)
        with part_process(IO, **variables):
            host.release()
            eventually(lambda: {image.state for image in service.images(job_id)} == {"queued"})
    assert_fetched_once(service, job_id, host)


def test_frozen_fetcher_writes_nothing_late(service, part_process, eventually, host: HangingHost) -> None:
    """Frozen for longer than its lease it is replaced; thawed, it has what it asked for and writes none of it."""
    job_id, variables = submit_urls(service, host), variables_for(host)
    with part_process(IO, **variables) as victim:
        eventually(lambda: len(host.asked) == PER_HOST)
        victim.send_signal(signal.SIGSTOP)
        with part_process(IO, **variables):
            host.release()
            eventually(lambda: {image.state for image in service.images(job_id)} == {"queued"})
            victim.send_signal(signal.SIGCONT)
            victim.send_signal(signal.SIGTERM)
            assert victim.wait() == 0
    assert_fetched_once(service, job_id, host)
