"""Messages doubled, out of order, unknown or mere rubbish, and schedulers too many or killed: only time is lost."""

import random
import signal
from contextlib import ExitStack

import pytest
from dramatiq import Message

from arachne.actors.broker import GPU, MAINTENANCE, make_broker
from arachne.actors.wake import WAKE_GPU
from tests.chaos.test_killed_worker import assert_finished_once

pytestmark = pytest.mark.chaos
IO = "io.run(Settings.load())"
SCHEDULER = "schedule.run(Settings.load())"


def test_whatever_is_on_the_queue_images_are_read_once(service, worker_process, eventually) -> None:
    """Fifty times the same wake-up, shuffled among strangers and rubbish; real ones are heard afterwards."""
    broker, order = make_broker(service.settings), random.Random(3)
    wake = Message(queue_name=GPU, actor_name=WAKE_GPU, args=(), kwargs={}, options={})
    strangers = [wake.copy(actor_name="nobody"), wake.copy(args=("img_nobody",)), wake.copy(options={"eta": "x"})]
    for message in order.sample([wake] * 50 + strangers, 53):
        broker.enqueue(message)
    client = broker.client
    for key, body in (("rubbish", b"\x00{"), ("list", b"[]"), ("none", None)):
        if body is not None:
            client.hset("dramatiq:gpu.msgs", key, body)
        client.linsert("dramatiq:gpu", "BEFORE", client.lindex("dramatiq:gpu", order.randrange(50)), key)
    job_id = service.submit(*(f"image {n}" for n in range(12)))
    with worker_process("read_or_fail") as worker:
        assert_finished_once(service, job_id, 12)
        eventually(lambda: broker.count_waiting(GPU) == 0)
        broker.enqueue(wake)
        eventually(lambda: broker.count_waiting(GPU) == 0)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    assert {image.attempts for image in service.images(job_id)} == {1}
    client.close()


def test_two_schedulers_of_which_one_is_killed(service, part_process, eventually) -> None:
    """What both send is done once in effect; the one that is left goes on."""
    broker = make_broker(service.settings)
    job_id = service.submit("x", "y")
    service.scalar("UPDATE job SET deadline_at = now() - interval '1 s'")
    with ExitStack() as stack:
        first = stack.enter_context(part_process(SCHEDULER))
        second = stack.enter_context(part_process(SCHEDULER))
        eventually(lambda: broker.count_waiting(MAINTENANCE) >= 2)
        first.kill()
        first.wait()
        stack.enter_context(part_process(IO))
        eventually(lambda: broker.count_waiting(MAINTENANCE) == 0)
        assert service.await_finished(job_id).failed == 2
        assert second.poll() is None
        second.send_signal(signal.SIGTERM)
        assert second.wait(30) == 0
    assert service.scalar("SELECT count(*) FROM webhook_message WHERE type = 'job.failed'") == 1
    assert service.scalar("SELECT count(*) FROM webhook_message WHERE type = 'image.failed'") == 2
    broker.client.close()
