"""Workers whose clock jumps by days: leases and retry timers go by the database's clock."""

import json
import signal

import pytest

from arachne.secretbox import open_secret_box
from tests.chaos.test_killed_worker import assert_finished_once
from tests.standins.happenings import add_targets, finish_job
from tests.standins.hooks import HANGING, HEALTHY, Hooks

pytestmark = pytest.mark.chaos
SKEWED = "import skewed_clock; skewed_clock.jump_at_signals(); "
DELAY_S = 3600  # far less than the jump


def test_clock_of_a_gpu_worker_jumps(service, part_process, worker_process, eventually) -> None:
    """Neither it nor another one takes anybody for dead, and every image is read once."""
    skewed = SKEWED + "gpu.run(Settings.load(), read=stage_faults.slow_image)"
    lease = {"ARACHNE_LEASE_S": "300"}  # far less than the jump, and more than a busy machine makes anybody wait
    with part_process(skewed, **lease) as worker, worker_process("slow_image", **lease):
        service.await_workers(2)  # its clock may jump by now
        job_id = service.submit(*(f"image {n}" for n in range(40)))
        for number, done in ((signal.SIGUSR1, 2), (signal.SIGUSR2, 12)):
            eventually(lambda done=done: service.job(job_id).completed > done)
            worker.send_signal(number)
        assert_finished_once(service, job_id, 40)
        assert service.scalar("SELECT count(*) FROM worker") == 2
    assert {(image.attempts, image.lost_leases) for image in service.images(job_id)} == {(1, 0)}
    assert service.scalar("SELECT bool_and(abs(extract(epoch FROM now() - finished_at)) < 3600) FROM image") is True


def test_clock_of_an_io_worker_jumps(service, part_process, eventually) -> None:
    """What is to be sent again in an hour is not sent two days early, nor what is due now two days late."""
    with Hooks() as hooks:
        allowed = {"webhook_egress_allow": [f"127.0.0.1:{hooks.port}"], "egress_allow_http": True}
        settings = service.settings.model_copy(update=allowed | {"public_url": "https://a.example"})
        urls = [hooks.url(f"{kind}/1") for kind in (HANGING, HEALTHY)]
        failing, healthy = add_targets(service.database, open_secret_box(settings), settings, urls)
        variables = {
            "ARACHNE_WEBHOOK_EGRESS_ALLOW": json.dumps(allowed["webhook_egress_allow"]),
            "ARACHNE_EGRESS_ALLOW_HTTP": "true",
            "ARACHNE_WEBHOOK_RETRY_SECONDS": json.dumps([DELAY_S]),
            "ARACHNE_WEBHOOK_TIMEOUT_S": "0.5",
        }
        finish_job(service.database, settings, failing.account_id)
        with part_process(SKEWED + "io.run(Settings.load())", **variables) as worker:
            for number in (signal.SIGUSR1, signal.SIGUSR2):
                eventually(lambda: service.scalar("SELECT count(*) FROM webhook_delivery WHERE attempts = 1") > 0)
                worker.send_signal(number)
                finish_job(service.database, settings, healthy.account_id)
                eventually(lambda: service.scalar("SELECT count(*) FROM webhook_delivery WHERE state = 'pending'") == 1)
        assert len(hooks.received(HEALTHY)) == 2
        assert len([one for one in hooks.arrivals if HANGING in one.path]) == 1
        left = "SELECT extract(epoch FROM next_attempt_at - now()) FROM webhook_delivery WHERE state = 'pending'"
        assert 0.7 * DELAY_S < service.scalar(left) < 1.3 * DELAY_S
