"""Events in the outbox: once, in the caller's transaction, to whom it concerns, with bodies within bounds."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text
from sqlmodel import Session

from arachne.accounts import create_account
from arachne.database import Transaction
from arachne.errors import Conflict, InvalidOptions, NotFound
from arachne.ids import new_id
from arachne.news import News, news_of
from arachne.schemas.tables import Job
from arachne.schemas.webhook import EndpointChange, EndpointRequest
from arachne.webhooks.body import load_images
from arachne.webhooks.cancellation import cancel_orphans
from arachne.webhooks.endpoint_secrets import rotate_endpoint_secret
from arachne.webhooks.endpoints import (
    MAX_ENDPOINTS,
    create_endpoint,
    delete_endpoint,
    find_endpoint,
    list_endpoints,
    update_endpoint,
)
from arachne.webhooks.events import DEFAULT_EVENTS, EVENT_TYPES, check_filters, subscribes
from arachne.webhooks.outbox import emit_image_events, emit_job_event

from .conftest import add_job

if TYPE_CHECKING:
    from .conftest import World

URL = "http://127.0.0.1:9/hook"


def body_of(world: "World", job_id: str) -> dict[str, object]:
    """The frozen body of a job's only event."""
    [(body,)] = world.sql("SELECT body FROM webhook_message WHERE job_id = :job_id", job_id=job_id)
    assert isinstance(body, bytes)
    return dict(json.loads(body))


def test_body_has_the_documented_members(world: "World") -> None:
    """Exactly the contract's members, in its order, times in UTC with Z."""
    job = world.finish_job(1, labels={"a": "é"})
    body = body_of(world, job.job_id)
    assert list(body) == ["type", "timestamp", "data"]
    assert str(body["timestamp"]).endswith("Z")
    data = body["data"]
    assert isinstance(data, dict)
    assert list(data) == ["job_id", "sequence", "status", "progress", "metadata", "job_url", "images"]
    assert data["progress"]["percent"] == 100
    [image] = data["images"]
    names = ["image_id", "index", "name", "status", "cached", "degraded", "error", "result_url", "result"]
    assert list(image) == names
    assert image["result_url"] == f"{data['job_url']}/images/0/result"
    assert image["result"] == {"text": "page 0"}


@pytest.mark.parametrize(("count", "length"), [(1, 25_000), (30, 900), (2, 19_990)])
def test_results_are_inlined_all_or_none(world: "World", count: int, length: int) -> None:
    """Results that don't all fit are left out altogether, and the rows stay."""
    job = world.finish_job(count, result={"text": "x" * length})
    images = body_of(world, job.job_id)["data"]["images"]  # type: ignore[index]
    assert len(images) == count
    assert all(image["result"] is None for image in images)


def test_rows_that_do_not_fit_are_omitted(world: "World") -> None:
    """With too many images for the limit the body says so instead of listing them."""
    job = world.finish_job(150)
    data = body_of(world, job.job_id)["data"]
    assert isinstance(data, dict)
    assert (data["images"], data["images_omitted"]) == (None, True)


@pytest.mark.parametrize("limit_bytes", [0, 700, 2000, 20_000])
def test_the_limit_is_kept(world: "World", limit_bytes: int) -> None:
    """Whatever the limit, a body with rows stays within it."""
    world.settings = world.settings.model_copy(update={"webhook_inline_bytes": limit_bytes})
    for count in (1, 3, 10):
        world.finish_job(count, result={"text": "ไ" * 100})
    for (body,) in world.sql("SELECT body FROM webhook_message"):
        assert isinstance(body, bytes)
        omitted = json.loads(body)["data"].get("images_omitted", False)
        assert len(body) <= limit_bytes or omitted


def test_an_odd_result_never_stops_the_end_of_a_job(world: "World") -> None:
    """NaN and half surrogates, should they ever be stored, still give valid JSON."""
    job = world.finish_job(1, result={"text": "\ud800", "confidence": float("nan")})
    images = body_of(world, job.job_id)["data"]["images"]  # type: ignore[index]
    assert images[0]["result"] == {"text": "?", "confidence": None}


def test_nothing_is_written_if_the_transaction_fails(world: "World") -> None:
    """The event is part of what made it happen."""
    world.endpoint(URL)

    def work(transaction: Transaction) -> None:
        job = _running_job(world, transaction.session)
        assert emit_job_event(transaction.session, world.settings, job, "job.completed") == 1
        raise RuntimeError

    with pytest.raises(RuntimeError):
        world.database.run(work)
    assert world.sql("SELECT count(*) FROM webhook_message") == [(0,)]


def test_a_terminal_event_exists_once(world: "World") -> None:
    """A second terminal event of a job is not written, whatever its type."""
    world.endpoint(URL)
    job = world.finish_job()
    with world.database.transaction() as transaction:
        assert emit_job_event(transaction.session, world.settings, job, "job.failed") == 0
    assert world.sql("SELECT type FROM webhook_message") == [("job.completed",)]
    assert world.sql("SELECT count(*) FROM webhook_delivery") == [(1,)]


def test_events_go_to_subscribers_of_the_account(world: "World") -> None:
    """Filters choose; other accounts, disabled and deleted endpoints get nothing."""
    with world.database.transaction() as transaction:
        stranger = create_account(transaction.session, "stranger").account_id
    wanted = {world.endpoint(URL, events=filters).endpoint_id for filters in (["job.*"], ["job.completed"], ["*"])}
    images = world.endpoint(URL, events=["image.*"]).endpoint_id
    world.endpoint(URL, account_id=stranger)
    disabled, deleted = world.endpoint(URL).endpoint_id, world.endpoint(URL).endpoint_id
    with world.database.transaction() as transaction:
        update_endpoint(transaction.session, world.account_id, disabled, EndpointChange(enabled=False), None)
        delete_endpoint(transaction.session, world.account_id, deleted)
    job = world.finish_job()
    assert {row[0] for row in world.sql("SELECT endpoint_id FROM webhook_delivery")} == wanted
    with world.database.transaction() as transaction:
        session = transaction.session
        [(image_id,)] = world.sql("SELECT image_id FROM image")
        assert emit_image_events(session, world.settings, job, [("image.completed", str(image_id))]) == 2
        delete_endpoint(session, world.account_id, images)
    rows = world.sql("SELECT sequence FROM webhook_message WHERE job_id = :id ORDER BY sequence", id=job.job_id)
    assert rows == [(1,), (2,)]


def test_events_nobody_subscribed_to_are_kept_for_the_feed(world: "World") -> None:
    """Without a subscriber `job.started` and `image.*` are written and numbered, and nothing is to be delivered."""
    with world.database.transaction() as transaction:
        session = transaction.session
        job = add_job(session, world.account_id, 1, state="processing")
        assert emit_job_event(session, world.settings, job, "job.started") == 0
        image_id = str(session.connection().execute(text("SELECT image_id FROM image")).scalar_one())
        assert emit_image_events(session, world.settings, job, [("image.completed", image_id)]) == 0
        assert news_of(session) == News({job.job_id}, deliveries=False)
    found = world.sql("SELECT type, sequence FROM webhook_message ORDER BY sequence")
    assert found == [("job.started", 1), ("image.completed", 2)]
    assert world.sql("SELECT count(*) FROM webhook_delivery") == [(0,)]


def test_deliverers_hear_of_every_event_somebody_wants(world: "World") -> None:
    """A start, an image and an end that an endpoint wants are news for whoever delivers, each by itself."""
    world.endpoint(URL, events=["*"])
    for event in ("job.started", "job.completed"):
        with world.database.transaction() as transaction:
            job = add_job(transaction.session, world.account_id, 1)
            emit_job_event(transaction.session, world.settings, job, event)
            assert news_of(transaction.session) == News({job.job_id}, deliveries=True)
    with world.database.transaction() as transaction:
        job = add_job(transaction.session, world.account_id, 1)
        (image,) = load_images(transaction.session, job.job_id)
        emit_image_events(transaction.session, world.settings, job, [("image.completed", image.image_id)])
        assert news_of(transaction.session) == News({job.job_id}, deliveries=True)


def test_orphans_are_cancelled(world: "World") -> None:
    """A delivery written while its endpoint was being disabled is not left pending for ever."""
    world.endpoint(URL)
    world.finish_job()
    world.sql("UPDATE webhook_endpoint SET enabled = false")
    with world.database.transaction() as transaction:
        assert cancel_orphans(transaction.session) == 1
        assert cancel_orphans(transaction.session) == 0


def test_filters() -> None:
    """Known names, prefixes with `.*`, each once; what matches nothing is told with its place."""
    assert check_filters(None) == list(DEFAULT_EVENTS)
    assert check_filters(["job.*", "image.failed", "job.*"]) == ["job.*", "image.failed"]
    assert subscribes(["webhook.*"], "webhook.endpoint.disabled")
    assert subscribes(["webhook.endpoint.*"], "webhook.endpoint.disabled")
    assert not subscribes(["job.*"], "jobs.completed")
    assert [event for event in EVENT_TYPES if subscribes(["job.*"], event)] == [
        "job.started",
        "job.completed",
        "job.partial",
        "job.failed",
        "job.cancelled",
    ]
    for bad in ([], [""], ["job"], ["job*"], [".*"], ["jobs.*"], ["*.completed"], ["job.completed.*"], ["JOB.*"]):
        with pytest.raises(InvalidOptions):
            check_filters(bad)
    with pytest.raises(InvalidOptions) as caught:
        check_filters(["job.*", "nope"])
    assert caught.value.errors[0]["loc"] == ["events", 1]


def test_endpoints_of_an_account(world: "World") -> None:
    """Made, listed by pages, changed member by member, deleted; nobody else's business, and never with their secret."""
    made = [world.endpoint(f"{URL}/{n}").endpoint_id for n in range(5)]
    with world.database.transaction() as transaction:
        session, account_id = transaction.session, world.account_id
        first = list_endpoints(session, account_id, limit=3)
        rest = list_endpoints(session, account_id, limit=3, cursor=first.next_cursor)
        assert [view.endpoint_id for view in first.data + rest.data] == made
        assert rest.next_cursor is None
        assert all("secret" not in view.model_dump() for view in first.data)
        change = EndpointChange(description="mine", events=["image.*"])
        view = update_endpoint(session, account_id, made[0], change, None)
        assert (view.description, view.events, view.url) == ("mine", ["image.*"], f"{URL}/0")
        moved = update_endpoint(session, account_id, made[0], EndpointChange(url=URL), world.checked(URL))
        assert (moved.url, moved.description) == (URL, "mine")
        assert update_endpoint(session, account_id, made[0], EndpointChange(description=None), None).description is None
        with pytest.raises(NotFound):
            find_endpoint(session, "acc_other", made[0])
        delete_endpoint(session, account_id, made[0])
        with pytest.raises(NotFound):
            delete_endpoint(session, account_id, made[0])
    assert world.sql("SELECT secret FROM webhook_endpoint WHERE endpoint_id = :id", id=made[0]) == [(None,)]


def test_secrets_are_sealed_at_rest(world: "World") -> None:
    """No stored byte of a secret is readable, and each is bound to its endpoint."""
    endpoint = world.endpoint(URL)
    [(sealed,)] = world.sql("SELECT secret FROM webhook_endpoint")
    assert isinstance(sealed, bytes)
    assert endpoint.secret.encode() not in sealed
    assert world.box.decrypt(sealed, f"webhook-endpoint:{endpoint.endpoint_id}") == endpoint.secret.encode()


@pytest.mark.parametrize("grace_s", [-1, 10**9])
def test_odd_graces_are_refused(world: "World", grace_s: int) -> None:
    """A grace is between none and 30 days."""
    endpoint = world.endpoint(URL)
    with world.database.transaction() as transaction, pytest.raises(InvalidOptions):
        rotate_endpoint_secret(transaction.session, world.box, world.account_id, endpoint.endpoint_id, grace_s=grace_s)


def test_endpoints_are_bounded(world: "World") -> None:
    """An account can't multiply its events without end."""
    for n in range(MAX_ENDPOINTS):
        world.sql(
            "INSERT INTO webhook_endpoint (endpoint_id, account_id, url, events, enabled, hidden, max_in_flight) "
            "VALUES (:id, :account, 'https://x.example/', '{}', true, false, 1)",
            id=f"whe_{n}",
            account=world.account_id,
        )
    with world.database.transaction() as transaction, pytest.raises(Conflict):
        create_endpoint(transaction.session, world.box, world.account_id, EndpointRequest(url=URL), world.checked(URL))


def test_endpoints_made_at_once_are_bounded_too(world: "World", monkeypatch: pytest.MonkeyPatch) -> None:
    """Who makes the last one makes others wait for the count."""
    monkeypatch.setattr("arachne.webhooks.endpoints.MAX_ENDPOINTS", 1)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with ThreadPoolExecutor(1) as threads:
        with world.database.transaction() as transaction:
            checked = world.checked(URL)
            create_endpoint(transaction.session, world.box, world.account_id, EndpointRequest(url=URL), checked)
            other = threads.submit(world.endpoint, URL)
            while not other.done() and world.sql(waiting) == [(0,)]:
                time.sleep(0.01)
        with pytest.raises(Conflict):
            other.result()


def _running_job(world: "World", session: Session) -> Job:
    job = Job(
        job_id=new_id("job"),
        account_id=world.account_id,
        subject="s",
        options={},
        total=1,
        deadline_at=datetime.now(UTC),
    )
    session.add(job)
    session.flush()
    return job
