"""Endpoints are removed once nothing leads to them, and not while a job may still need one."""

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from arachne.webhooks.endpoints import delete_endpoint, ensure_job_endpoint
from arachne.webhooks.retention import drop_unused_endpoints

if TYPE_CHECKING:
    from .conftest import World

URL = "http://127.0.0.1:9/hook"


def ensure(world: "World") -> str:
    """The account's hidden endpoint."""
    with world.database.transaction() as transaction:
        return ensure_job_endpoint(transaction.session, world.account_id, world.checked(URL))


def drop(world: "World") -> int:
    """Number removed."""
    with world.database.transaction() as transaction:
        return drop_unused_endpoints(transaction.session, 10)


def test_jobs_own_endpoints_go_with_their_last_delivery(world: "World") -> None:
    """A job keeps its endpoint for its retries, and so does a delivery; then it goes, and is made when asked for."""
    endpoint_id = ensure(world)
    job = world.finish_job(webhook_endpoint_id=endpoint_id)
    assert drop(world) == 0
    world.sql("DELETE FROM webhook_delivery")
    assert drop(world) == 0
    world.sql("UPDATE job SET finished_at = now() WHERE job_id = :id", id=job.job_id)
    assert drop(world) == 0
    world.sql("UPDATE job SET deleted_at = now() WHERE job_id = :id", id=job.job_id)
    assert (drop(world), drop(world)) == (1, 0)
    assert ensure(world) != endpoint_id


def test_deleted_endpoints_go_with_their_last_delivery(world: "World") -> None:
    """A deleted endpoint stays while its deliveries are on record; one that is only idle or disabled stays for good."""
    deleted = world.endpoint(URL).endpoint_id
    world.finish_job()
    kept = world.endpoint(URL).endpoint_id
    world.sql("UPDATE webhook_endpoint SET enabled = false WHERE endpoint_id = :id", id=kept)
    with world.database.transaction() as transaction:
        delete_endpoint(transaction.session, world.account_id, deleted)
    assert drop(world) == 0
    world.sql("DELETE FROM webhook_delivery")
    assert drop(world) == 1
    assert world.sql("SELECT endpoint_id FROM webhook_endpoint") == [(kept,)]


@pytest.mark.parametrize("first", ["submission", "removal"])
def test_a_submission_never_keeps_an_endpoint_that_goes(world: "World", first: str) -> None:
    """A job being submitted while its endpoint is being removed has one afterwards, whoever is first."""
    ensure(world)
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with ThreadPoolExecutor(1) as other:
        with world.database.transaction() as transaction:
            if first == "submission":
                found = ensure_job_endpoint(transaction.session, world.account_id, world.checked(URL))
                assert other.submit(drop, world).result() == 0
            else:
                assert drop_unused_endpoints(transaction.session, 10) == 1
                late = other.submit(ensure, world)
                while not late.done() and not world.sql(waits):
                    pass
        if first == "removal":
            found = late.result()
    assert world.sql("SELECT endpoint_id FROM webhook_endpoint") == [(found,)]
