"""Workers killed while models are asked: their slots are free at once, and no image is lost or described twice."""

import signal
from collections.abc import Iterator

import pytest

from arachne.jobs.reconcile import release_worker
from arachne.settings import Settings
from tests.actors.test_describing import picture
from tests.chaos.test_killed_worker import assert_finished_once
from tests.standins.process import OllamaProcess

pytestmark = pytest.mark.chaos

MODEL = "qwen2.5vl:7b"
HELD_BY = """
SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND objsubid = 2 AND application_name = 'arachne gate ' || """


@pytest.fixture
def server() -> Iterator[OllamaProcess]:
    """A model that takes its time."""
    with OllamaProcess(answer_s=0.3, parallel=16) as running:
        yield running


@pytest.fixture
def settings(settings: Settings, server: OllamaProcess) -> Settings:
    """Those of a service with a model, so that what is submitted is known to wait for it."""
    return settings.model_copy(update={"vlm_url": server.url, "vlm_api": "ollama"})


def test_worker_killed_with_requests_in_flight(service, worker_process, server, eventually) -> None:
    """After kill -9 the other worker has all slots, and only what was in flight is asked about again."""
    variables = {"ARACHNE_VLM_URL": server.url, "ARACHNE_VLM_PARALLEL": "4"}
    with (
        worker_process("read_to_describe", **variables) as victim,
        worker_process("read_to_describe", **variables),
    ):
        service.await_workers(2)
        job_id = service.submit(*(picture(n) for n in range(60)))
        eventually(lambda: _slots(service) == 4 and _workers_at_work(service) == 2)
        victim.kill()
        victim.wait()
        service.database.run(release_worker, host=_host(service), pid=victim.pid)
        assert_finished_once(service, job_id, 60)
        eventually(lambda: _slots(service) == 0)
    told = server.counts()
    assert service.job(job_id).degraded == 0
    assert told["gpu"]["max_in_flight"] <= 4 + 4  # what the dead one had asked goes on in the server for a moment
    assert 60 <= told["requests"][MODEL] <= 60 + 4
    assert {image.attempts for image in service.images(job_id)} == {1}


def test_worker_frozen_with_requests_in_flight(service, worker_process, server, eventually) -> None:
    """A stopped process keeps its connections; all the same the other worker has all slots once the lease is over."""
    variables = {"ARACHNE_VLM_URL": server.url, "ARACHNE_VLM_PARALLEL": "4", "ARACHNE_LEASE_S": "5"}
    with (
        worker_process("read_to_describe", **variables) as frozen,
        worker_process("read_to_describe", **variables) as other,
    ):
        service.await_workers(2)
        job_id = service.submit(*(picture(n) for n in range(60)))
        eventually(lambda: _holders(service) == 2 and _workers_at_work(service) == 2)
        frozen.send_signal(signal.SIGSTOP)
        other_id = service.scalar(f"SELECT worker_id FROM worker WHERE pid = {other.pid}")
        service.submit(*(picture(n) for n in range(60, 90)))
        eventually(lambda: service.scalar(HELD_BY + f"'{other_id}'") == 4)
        frozen.send_signal(signal.SIGCONT)
        assert service.await_finished(job_id).completed == 60
    assert service.job(job_id).degraded == 0


def test_worker_told_to_leave_answers_what_is_in_flight(service, worker_process, server, eventually) -> None:
    """SIGTERM: what the model has is finished, what waits goes back uncounted, and the slots are free."""
    with worker_process("read_to_describe", ARACHNE_VLM_URL=server.url) as worker:
        job_id = service.submit(*(picture(n) for n in range(20)))
        eventually(lambda: service.job(job_id).completed > 2 and _slots(service) == 2)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    images = service.images(job_id)
    assert {image.state for image in images} == {"completed", "queued"}
    assert {(image.lost_leases, image.degraded) for image in images} == {(0, False)}
    assert server.counts()["requests"][MODEL] == sum(image.state == "completed" for image in images)
    assert _slots(service) == 0


def _slots(service) -> int:
    return service.scalar("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2")


def _holders(service) -> int:
    return service.scalar("SELECT count(DISTINCT pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2")


def _workers_at_work(service) -> int:
    return service.scalar("SELECT count(DISTINCT worker_id) FROM image WHERE state = 'running'")


def _host(service) -> str:
    return str(service.scalar("SELECT host FROM worker LIMIT 1"))
