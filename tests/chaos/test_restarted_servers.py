"""PostgreSQL and Redis restarted, stalled and emptied under workers at work: images and webhooks go on, once each."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
import service_harness
from standardwebhooks import Webhook

from arachne.actors.broker import make_broker
from arachne.actors.wake import Waker
from arachne.secretbox import open_secret_box
from arachne.settings import Settings
from tests.machines.servers import Servers, own_servers
from tests.standins.happenings import Target, add_targets
from tests.standins.hooks import HEALTHY, Hooks

pytestmark = pytest.mark.chaos
IO = "io.run(Settings.load())"
IMAGES = 24


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Servers that may be harmed."""
    with own_servers(tmp_path_factory.mktemp("own"), durable=True) as running:
        yield running


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests, as the database is: it has the key to what is in there."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def settings(data_dir: Path, servers: Servers) -> Settings:
    """Settings of a small worker on these servers."""
    return service_harness.small_settings(data_dir, servers.postgres.url, servers.redis.url)


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    """A receiver."""
    with Hooks() as running:
        yield running


@contextmanager
def at_work(service, hooks: Hooks) -> Iterator[Target]:
    """A GPU and an IO worker, and an account that is told of the end of its jobs."""
    allowed = {"webhook_egress_allow": [f"127.0.0.1:{hooks.port}"], "egress_allow_http": True}
    variables = {
        "ARACHNE_WEBHOOK_EGRESS_ALLOW": json.dumps(allowed["webhook_egress_allow"]),
        "ARACHNE_EGRESS_ALLOW_HTTP": "true",
    }
    settings = service.settings.model_copy(update=allowed | {"public_url": "https://a.example"})
    (target,) = add_targets(service.database, open_secret_box(settings), settings, [hooks.url(HEALTHY)])
    service.account_id = target.account_id
    with ExitStack() as stack:
        stack.enter_context(service_harness.worker_process(service.settings, "slow_image", **variables))
        stack.enter_context(service_harness.part_process(service.settings, IO, **variables))
        yield target


def assert_done_and_told(service, eventually, hooks: Hooks, target: Target, job_id: str) -> None:
    """Each of the job's images ended once, at its first attempt; its end was told under one id, signed."""
    job = service.await_finished(job_id)
    assert (job.state, job.completed) == ("completed", IMAGES)
    count = partial("SELECT count(*) FROM {} WHERE job_id = '{}'".format, "usage_entry", job_id)
    assert service.scalar(count()) == IMAGES
    assert {image.attempts for image in service.images(job_id)} == {1}
    written = f"SELECT message_id FROM webhook_message WHERE job_id = '{job_id}' AND type = 'job.completed'"
    assert service.scalar(f"SELECT count(*) FROM ({written}) AS told") == 1
    message_id = service.scalar(written)
    eventually(lambda: message_id in {one.message_id for one in hooks.arrivals})
    for one in hooks.arrivals:
        assert Webhook(target.secret).verify(one.body, dict(one.headers))["type"] == "job.completed"


def test_postgres_restarted_in_mid_batch(service, servers: Servers, eventually, hooks: Hooks) -> None:
    """Fast, with its connections cut; then at once, as a crash does it: the same processes go on when it is back."""
    with at_work(service, hooks) as target:
        job_id = service.submit(*(f"image {n}" for n in range(IMAGES)))
        for number, done in ((signal.SIGINT, 2), (signal.SIGQUIT, 8)):
            eventually(lambda done=done: service.job(job_id).completed > done)
            servers.postgres.restart(number)
            assert service.job(job_id).finished_at is None
        assert_done_and_told(service, eventually, hooks, target, job_id)


def test_redis_stalled_then_restarted_without_its_data(service, servers: Servers, eventually, hooks: Hooks) -> None:
    """Nothing waits for it, and the same processes hear wake-ups from the new one."""
    with at_work(service, hooks) as target:
        servers.redis.freeze()
        job_id = service.submit(*(f"image {n}" for n in range(IMAGES)))
        assert_done_and_told(service, eventually, hooks, target, job_id)
        servers.redis.thaw()
        job_id = service.submit(*(f"image {n} again" for n in range(IMAGES)))
        eventually(lambda: service.job(job_id).completed > 2)
        servers.redis.restart(signal.SIGKILL, empty=True)
        assert_done_and_told(service, eventually, hooks, target, job_id)
        waker, broker = Waker(service.settings), make_broker(service.settings)
        waker.wake_gpu()
        waker.wake_webhooks()
        eventually(lambda: not waker._wanted)
        eventually(lambda: broker.count_waiting("gpu") == broker.count_waiting("webhooks") == 0)
        waker.close()
        broker.client.close()
