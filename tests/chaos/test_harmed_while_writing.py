"""Workers killed, stopped or cut off in mid-transaction: what they wrote counts whole or not at all, and once."""

import os
import signal
from contextlib import AbstractContextManager

import pytest

from arachne.actors.dispatcher import count_ahead
from arachne.jobs.reconcile import reconcile, release_worker
from tests.chaos.held_writes import Gate, hold_writes
from tests.chaos.test_killed_worker import assert_finished_once

pytestmark = pytest.mark.chaos
IMAGES = 8
IN_HAND = 2 + count_ahead(2)  # of a worker of two subprocesses


def hold_finishes(service) -> AbstractContextManager[Gate]:
    """Holds whoever finishes an image: its row is written by then, its charge not yet."""
    return hold_writes(service.settings.database_url, "usage_entry", "INSERT")


def hold_claims(service) -> AbstractContextManager[Gate]:
    """Holds whoever claims images."""
    when = "WHEN (OLD.state = 'queued' AND NEW.state = 'running')"
    return hold_writes(service.settings.database_url, "image", "UPDATE", when)


def submit_listened(service) -> str:
    """A job of a few images, each of whose events somebody wants."""
    job_id = service.submit(*(f"image {n}" for n in range(IMAGES)))
    service.scalar(
        "INSERT INTO webhook_endpoint (endpoint_id, account_id, url, events, enabled, hidden, max_in_flight) "
        f"VALUES ('whe_1', '{service.account_id}', 'https://example.com/', '{{*}}', true, false, 1) RETURNING 1"
    )
    return job_id


def assert_told_once(service, job_id: str) -> None:
    """Every image ended once: one result, one charge, one event and one delivery of it."""
    assert_finished_once(service, job_id, IMAGES)
    assert service.scalar("SELECT count(*) FROM webhook_message WHERE type = 'image.completed'") == IMAGES
    assert service.scalar("SELECT count(*) FROM webhook_delivery") == IMAGES + 2  # with the job's start and end
    assert service.scalar("SELECT count(DISTINCT sequence) FROM webhook_message") == IMAGES + 2
    assert {image.attempts for image in service.images(job_id)} == {1}


def test_worker_killed_in_mid_transaction(service, worker_process, eventually) -> None:
    """After kill -9 in mid-claim and in mid-finish nothing of the open transaction stays; another worker does it."""
    job_id = submit_listened(service)
    for hold, lost in ((hold_claims, 0), (hold_finishes, IN_HAND)):
        with hold(service) as gate, worker_process("read_or_fail") as victim:
            eventually(lambda held=gate.held, lost=lost: len(held()) == (lost or 1))
            victim.kill()
            victim.wait()
            service.database.run(release_worker, host=os.uname().nodename, pid=victim.pid)
            gate.open()
            reconcile(service.database, service.settings)
        assert service.scalar("SELECT count(*) FROM usage_entry") == 0
    with worker_process("read_or_fail"):
        assert_told_once(service, job_id)
    assert sum(image.lost_leases for image in service.images(job_id)) == IN_HAND


def test_connections_dropped_in_mid_transaction(service, worker_process, eventually) -> None:
    """What was cut off in mid-claim or mid-finish is done again by the same worker, and counted against nobody."""
    job_id = submit_listened(service)
    with hold_claims(service) as claiming, worker_process("read_or_fail"):
        eventually(claiming.held)
        with hold_finishes(service) as finishing:
            assert claiming.drop_connections() == 1
            claiming.open()
            eventually(lambda: len(finishing.held()) == IN_HAND)
            assert finishing.drop_connections() == IN_HAND
        assert_told_once(service, job_id)
        assert {image.lost_leases for image in service.images(job_id)} == {0}
        assert service.scalar("SELECT count(*) FROM worker") == 1


def test_zombie_whose_transactions_were_ended_writes_nothing(service, worker_process, eventually) -> None:
    """Frozen in mid-finish for longer than its lease and than the server waits: all is another's when it wakes."""
    job_id = submit_listened(service)
    with hold_finishes(service) as gate, worker_process("read_or_fail") as zombie:
        eventually(lambda: len(gate.held()) == IN_HAND)
        zombie.send_signal(signal.SIGSTOP)
        zombie_id = service.scalar("SELECT worker_id FROM worker")
        gate.drop_connections()  # as the server does by itself after a while
        gate.open()
        with worker_process("read_or_fail", ARACHNE_LEASE_S="5"):
            assert_told_once(service, job_id)
        finished_by = {image.worker_id for image in service.images(job_id)}
        zombie.send_signal(signal.SIGCONT)
        eventually(lambda: service.scalar("SELECT count(*) FROM worker") == 1)
        zombie.send_signal(signal.SIGTERM)
        assert zombie.wait(30) == 0
    assert_told_once(service, job_id)
    assert {image.worker_id for image in service.images(job_id)} == finished_by
    assert zombie_id not in finished_by
    assert sum(image.lost_leases > 0 for image in service.images(job_id)) >= IN_HAND


def test_zombie_whose_transactions_are_open_still_finishes_once(service, worker_process, eventually) -> None:
    """Until the server ends them its rows are locked, and nobody takes them for lost; whoever ends them, once."""
    settings = service.settings.model_copy(update={"lease_s": 3})
    job_id = submit_listened(service)
    with hold_finishes(service) as gate, worker_process("read_or_fail") as zombie:
        eventually(lambda: len(gate.held()) == IN_HAND)
        zombie.send_signal(signal.SIGSTOP)
        gate.open()
        eventually(lambda: reconcile(service.database, settings).lost_workers == 1)
        reconcile(service.database, settings)
        zombie.send_signal(signal.SIGCONT)
        assert_told_once(service, job_id)
