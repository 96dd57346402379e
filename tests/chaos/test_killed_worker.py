"""Worker processes killed, stopped and frozen, and Redis emptied or gone: every image ends once all the same."""

import os
import signal

import psutil
import pytest
import redis

from arachne.actors.broker import broker_database, make_client
from arachne.actors.wake import Waker
from arachne.jobs.reconcile import reconcile, release_worker

pytestmark = pytest.mark.chaos


def assert_finished_once(service, job_id: str, total: int) -> None:
    """Every image is completed, with one result and one ledger entry; the terminal event exists once."""
    job = service.await_finished(job_id)
    assert (job.state, job.completed) == ("completed", total)
    assert service.scalar("SELECT count(*) FROM usage_entry") == total
    assert service.scalar("SELECT count(DISTINCT image_id) FROM usage_entry") == total
    assert service.scalar("SELECT count(*) FROM image_result") == total
    assert service.scalar("SELECT count(*) FROM webhook_message WHERE type = 'job.completed'") == 1
    assert service.scalar("SELECT count(*) FROM flight") == 0


@pytest.mark.parametrize("reaped", [True, False])
def test_worker_killed_in_mid_batch(service, worker_process, eventually, reaped: bool) -> None:
    """After kill -9 another worker goes on: where a supervisor tells of it long before the lease is over, else then."""
    lease_s = "3600" if reaped else "5"
    with worker_process("slow_image") as victim, worker_process("slow_image", ARACHNE_LEASE_S=lease_s):
        service.await_workers(2)
        job_id = service.submit(*(f"image {n}" for n in range(60)))
        eventually(lambda: service.scalar("SELECT count(DISTINCT worker_id) FROM image WHERE state = 'running'") == 2)
        children = psutil.Process(victim.pid).children(recursive=True)
        victim.kill()
        victim.wait()
        if reaped:
            service.database.run(release_worker, host=os.uname().nodename, pid=victim.pid)
        assert_finished_once(service, job_id, 60)
    assert sum(image.lost_leases for image in service.images(job_id)) > 0
    assert children
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert {image.attempts for image in service.images(job_id)} == {1}


def test_worker_killed_in_a_native_call(service, worker_process, eventually, tmp_path) -> None:
    """Its subprocess, where no signal handler runs, is gone with it; the image was lost once and attempted never."""
    mark = tmp_path / "mark"
    job_id = service.submit(str(mark))
    with worker_process("mark_and_hang", ARACHNE_HARD_TIME_LIMIT_S="600") as victim:
        eventually(mark.exists)
        children = psutil.Process(victim.pid).children(recursive=True)
        victim.kill()
        victim.wait()
    eventually(lambda: not any(_lives(child) for child in children))
    service.database.run(release_worker, host=os.uname().nodename, pid=victim.pid)
    assert reconcile(service.database, service.settings).recovered == 1
    assert [(image.lost_leases, image.attempts) for image in service.images(job_id)] == [(1, 0)]
    with worker_process("slow_image"):
        assert_finished_once(service, job_id, 1)


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_terminated_worker_leaves_in_good_order(service, worker_process, eventually) -> None:
    """SIGTERM: exit status 0, no row, nothing running, nothing counted against an image."""
    with worker_process("slow_image") as worker:
        job_id = service.submit(*(f"image {n}" for n in range(60)))
        eventually(lambda: service.job(job_id).completed > 2)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    images = service.images(job_id)
    assert {image.state for image in images} == {"completed", "queued"}
    assert {image.lost_leases for image in images} == {0}
    assert service.scalar("SELECT count(*) FROM worker") == 0
    with worker_process("slow_image"):
        assert_finished_once(service, job_id, 60)


def test_frozen_worker_is_replaced_and_writes_nothing_late(service, worker_process, eventually) -> None:
    """A worker stopped for longer than its lease wakes up a zombie: its images are others', and it registers anew."""
    with worker_process("slow_image") as frozen, worker_process("slow_image", ARACHNE_LEASE_S="5"):
        service.await_workers(2)
        job_id = service.submit(*(f"image {n}" for n in range(40)))
        eventually(lambda: service.scalar("SELECT count(DISTINCT worker_id) FROM image WHERE state = 'running'") == 2)
        frozen.send_signal(signal.SIGSTOP)
        eventually(lambda: service.scalar("SELECT count(*) FROM image WHERE lost_leases > 0") > 0)
        frozen.send_signal(signal.SIGCONT)
        assert_finished_once(service, job_id, 40)
        eventually(lambda: service.scalar("SELECT count(*) FROM worker") == 2)


def test_redis_emptied_in_mid_batch(service, worker_process, eventually) -> None:
    """FLUSHALL costs nothing: workers look by themselves, and wake-ups arrive again afterwards."""
    client = redis.Redis.from_url(service.settings.redis_url)
    with worker_process("slow_image"):
        job_id = service.submit(*(f"image {n}" for n in range(20)))
        eventually(lambda: service.job(job_id).completed > 2)
        client.flushall()
        assert_finished_once(service, job_id, 20)
        waker = Waker(service.settings)
        waker.wake_gpu()
        broker = make_client(
            service.settings.redis_url, timeout_s=5, database=broker_database(service.settings.redis_url)
        )
        eventually(lambda: not waker._wanted and broker.llen("dramatiq:gpu") == 0)
        waker.close()
        broker.close()
    client.close()


def test_worker_without_redis_works(service, worker_process) -> None:
    """Nobody answers where Redis should be, and the batch is read all the same."""
    with worker_process("read_or_fail", ARACHNE_REDIS_URL="redis://127.0.0.1:9/0") as worker:
        job_id = service.submit(*(f"image {n}" for n in range(20)))
        assert_finished_once(service, job_id, 20)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
