"""The IO worker and the scheduler as processes: they start, do their part, and leave when asked, Redis or not."""

import signal

import pytest
from psycopg import Connection

from arachne.actors.broker import make_broker
from arachne.actors.wake import Waker
from arachne.announcer import JOBS_CHANNEL
from arachne.database import plain_url

pytestmark = pytest.mark.chaos

IO = "io.run(Settings.load())"
SCHEDULER = "schedule.run(Settings.load())"
NO_REDIS = {"ARACHNE_REDIS_URL": "redis://127.0.0.1:9/0"}


@pytest.mark.parametrize("variables", [{}, NO_REDIS])
def test_io_worker_mends_the_queue_and_leaves_when_asked(service, part_process, eventually, variables) -> None:
    """It closes what others left open, by its own ticks, and ends with status 0."""
    job_id = service.submit("x")
    service.scalar("UPDATE job SET deadline_at = now() - interval '1 s'")
    with part_process(IO, **variables) as process:
        eventually(lambda: service.job(job_id).state == "failed")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_io_worker_takes_wake_ups(service, part_process, eventually) -> None:
    """Its wake-ups are received and gone."""
    broker, waker = make_broker(service.settings), Waker(service.settings)
    with part_process(IO):
        waker.wake_webhooks()
        waker.wake_fetches()
        eventually(lambda: not waker._wanted)
        eventually(lambda: broker.count_waiting("webhooks") == broker.count_waiting("fetches") == 0)
    waker.close()
    broker.client.close()


def test_what_a_gpu_worker_writes_is_told_while_the_job_goes_on(service, worker_process, eventually) -> None:
    """An image's end is notified, and deliverers are woken for it, though its job hasn't ended."""
    job_id = service.submit("good", "hang")
    service.scalar(
        "INSERT INTO webhook_endpoint (endpoint_id, account_id, url, events, enabled, hidden, max_in_flight) "
        f"VALUES ('whe_1', '{service.account_id}', 'https://example.com/', '{{image.*}}', true, false, 1) RETURNING 1"
    )
    broker = make_broker(service.settings)
    with Connection.connect(plain_url(service.settings.database_url), autocommit=True) as connection:
        connection.execute(f"LISTEN {JOBS_CHANNEL}")
        with worker_process("read_or_fail"):
            told = next(connection.notifies(timeout=60))
            eventually(lambda: broker.count_waiting("webhooks"))
            assert service.job(job_id).state == "processing"
    assert told.payload == job_id
    broker.client.close()


def test_scheduler_sends_at_once_and_leaves_when_asked(service, part_process, eventually) -> None:
    """The first minute's messages are there soon after its start."""
    broker = make_broker(service.settings)
    with part_process(SCHEDULER) as process:
        eventually(lambda: broker.count_waiting("maintenance") >= 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    broker.client.close()


def test_scheduler_outlives_redis(service, part_process, eventually, tmp_path) -> None:
    """It goes on with nobody to send to, and still leaves when asked."""
    log = tmp_path / "log"
    with part_process(SCHEDULER, log=log, **NO_REDIS) as process:
        eventually(lambda: "Redis takes no periodic messages" in log.read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
