"""The scheduler sends what is due and outlives Redis; the periodic work is idempotent."""

import logging
from datetime import UTC, datetime, timedelta

import pendulum
import pytest
from dramatiq.errors import ConnectionClosed
from sqlalchemy import text

from arachne.actors import maintenance
from arachne.actors.broker import make_broker
from arachne.actors.maintenance import SCHEDULE, Housekeeping, declare_maintenance
from arachne.actors.residence import working
from arachne.actors.schedule import PatientScheduler
from arachne.cache import CacheKey
from arachne.complaints import Complaints
from arachne.errors import Unavailable
from arachne.settings import Settings


@pytest.fixture
def broker(settings: Settings):
    broker = make_broker(settings)
    yield broker
    broker.client.close()


def test_every_actor_fires_in_time(broker) -> None:
    """Each has a next time that comes: reconciling and erasing in a minute, retention in ten, all in an hour."""
    now, periods_s = pendulum.now(), {"reconcile": 60, "erase": 60, "retain": 600}
    for actor in declare_maintenance(broker, None):
        wait = actor.options["periodic"].next_valid_date(now) - now
        assert wait.total_seconds() <= periods_s.get(actor.actor_name, 3660)
    assert set(SCHEDULE) == {"reconcile", "erase", "partitions", "forget", "retain"}


def test_periodic_message_is_worked_off(broker, service, eventually) -> None:
    """What the scheduler sends, an IO worker does."""
    done = []

    class Work(Housekeeping):
        def reconcile(self) -> None:
            done.append("reconcile")

    actors = declare_maintenance(broker, Work(service.database, service.settings, service.storage))
    scheduler = PatientScheduler(actors=actors)
    with working(broker, {"maintenance"}, timeout_ms=10, threads=1):
        scheduler.send_actors([actor for actor in actors if actor.actor_name == "reconcile"], now=pendulum.now())
        eventually(lambda: done == ["reconcile"])


def test_late_periodic_message_is_dropped(broker, service) -> None:
    """One that waited while no worker lived is not done long after its time."""
    done = []

    class Work(Housekeeping):
        def reconcile(self) -> None:
            done.append("reconcile")

    actors = declare_maintenance(broker, Work(service.database, service.settings, service.storage))
    PatientScheduler(actors=actors).send_actors(actors[:1], now=pendulum.now().subtract(minutes=5))
    with working(broker, {"maintenance"}, timeout_ms=10, threads=1):
        broker.join("maintenance", timeout=10_000)
    assert done == []


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ConnectionClosed("gone"), "Redis takes no periodic messages"),
        (ValueError("nobody thought of this"), "periodic messages can't be sent"),
    ],
)
def test_scheduler_outlives_redis(
    broker, monkeypatch, caplog: pytest.LogCaptureFixture, error: Exception, line: str
) -> None:
    """A message that can't be sent is missed, with a line that says so."""
    actors = declare_maintenance(broker, None)

    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(broker, "enqueue", refuse)
    with caplog.at_level(logging.WARNING):
        PatientScheduler(actors=actors).send_actors(actors, now=pendulum.now())
    assert line in caplog.text


def test_housekeeping_without_a_database_is_one_line(broker, service, eventually, caplog, monkeypatch) -> None:
    """What can't be reached, or has a full disk, is no fault of the program: no traceback, once a minute at most."""
    monkeypatch.setattr(maintenance, "_complaints", Complaints(maintenance.log))
    done = []

    class Work(Housekeeping):
        def reconcile(self) -> None:
            done.append("reconcile")
            raise Unavailable("The database's disk is full.")

        erase = reconcile

    actors = declare_maintenance(broker, Work(service.database, service.settings, service.storage))
    with working(broker, {"maintenance"}, timeout_ms=10, threads=1):
        PatientScheduler(actors=actors).send_actors(
            [actor for actor in actors if actor.actor_name in {"reconcile", "erase"}], now=pendulum.now()
        )
        eventually(lambda: len(done) == 2)
    [told] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert told.exc_info is None
    assert told.getMessage().endswith("The database's disk is full.")


def test_housekeeping_is_safe_to_repeat(service) -> None:
    """On a fresh record each piece of it does nothing, twice."""
    work = Housekeeping(service.database, service.settings, service.storage)
    for name in (*SCHEDULE, *SCHEDULE):
        getattr(work, name)()


def test_partitions_are_made_ahead_and_dropped(service) -> None:
    """Today's and the next days' are there; one past keeping is gone."""
    old = datetime.now(UTC).date() - timedelta(days=40)
    service.scalar(
        f"CREATE TABLE webhook_attempt_{old:%Y%m%d} PARTITION OF webhook_attempt "
        f"FOR VALUES FROM ('{old}') TO ('{old + timedelta(days=1)}'); SELECT 1"
    )
    Housekeeping(service.database, service.settings, service.storage).partitions()
    names = service.scalar(
        "SELECT string_agg(inhrelid::regclass::text, ' ') FROM pg_inherits "
        "WHERE inhparent = 'webhook_attempt'::regclass"
    )
    assert f"{old:%Y%m%d}" not in names
    assert f"{datetime.now(UTC).date() + timedelta(days=3):%Y%m%d}" in names


@pytest.mark.parametrize(("table", "kept_days"), [("webhook_attempt", 30), ("api_usage_log", 400)])
def test_logs_are_kept_for_their_own_time(service, table: str, kept_days: int) -> None:
    """Attempts as long as the events they sent, calls for a year and a month; whole days go, and no younger one."""
    today = datetime.now(UTC).date()
    days = [today - timedelta(days=kept_days + 1), today - timedelta(days=kept_days - 1)]
    for day in days:
        service.scalar(
            f"CREATE TABLE {table}_{day:%Y%m%d} PARTITION OF {table} "
            f"FOR VALUES FROM ('{day}') TO ('{day + timedelta(days=1)}'); SELECT 1"
        )
    try:
        Housekeeping(service.database, service.settings, service.storage).partitions()
        there = [service.scalar(f"SELECT to_regclass('{table}_{day:%Y%m%d}') IS NOT NULL") for day in days]
        assert there == [False, True]
    finally:
        service.scalar(f"DROP TABLE IF EXISTS {table}_{days[1]:%Y%m%d}; SELECT 1")


def finish(service, *contents: str, age_s: float) -> str:
    """Id of a job that was finished so long ago."""
    job_id = service.submit(*contents)
    with service.database.transaction() as transaction:
        values = {"it": job_id, "age": age_s, "kept": service.settings.result_retention_s}
        run = transaction.session.execute
        run(
            text(
                "INSERT INTO image_result (result_id, account_id, scope, sha256, model_version, pipeline_version, "
                "options_hash, body, created_at) SELECT 'res_' || image_id, account_id, account_id, sha256, 'none', "
                "'p', 'o', '', now() - make_interval(secs => :age) FROM image WHERE job_id = :it"
            ),
            values,
        )
        run(text("UPDATE image SET state = 'completed', result_id = 'res_' || image_id WHERE job_id = :it"), values)
        run(
            text(
                "UPDATE job SET state = 'completed', completed = total, "
                "finished_at = now() - make_interval(secs => :age), "
                "expires_at = now() - make_interval(secs => :age - :kept) WHERE job_id = :it"
            ),
            values,
        )
        run(text("UPDATE blob SET stored_at = now() - make_interval(secs => :age)"), values)
    return job_id


def test_results_and_jobs_go_when_their_time_is_over(service) -> None:
    """Expired: the result goes and the job is a tombstone; past that it is gone; a newer one stays whole."""
    settings = service.settings
    work = Housekeeping(service.database, settings, service.storage)
    expired = finish(service, "old", age_s=settings.result_retention_s + 60)
    kept = finish(service, "new", age_s=settings.result_retention_s - 3600)
    work.retain()
    assert service.job(expired).deleted_at is not None
    assert service.images(expired)[0].result_id is None
    assert service.job(kept).deleted_at is None
    assert service.scalar("SELECT count(*) FROM image_result") == 1
    service.scalar(f"UPDATE job SET deleted_at = now() - interval '{settings.tombstone_s + 60} s' "
                   f"WHERE job_id = '{expired}' RETURNING 1")  # fmt: skip
    work.retain()
    assert service.scalar("SELECT string_agg(job_id, ' ') FROM job") == kept


def test_erased_results_leave_the_file_of_this_machine(service) -> None:
    """PostgreSQL answers with them no longer, so there is no use in the copy."""
    erased = CacheKey(service.account_id, "ab" * 32, "none", "p", "o")
    service.cache.put(erased, "res_erased", b"{}")
    Housekeeping(service.database, service.settings, service.storage).retain()
    assert service.cache.get(erased) is None


def test_originals_go_when_no_job_needs_them(service) -> None:
    """An original goes once every job that has it ended too long ago; one that an open job has stays."""
    settings = service.settings
    work = Housekeeping(service.database, settings, service.storage)
    service.scalar(
        "INSERT INTO blob (sha256, size_bytes, format) VALUES "
        "(encode(sha256('old'), 'hex'), 3, 'png'), (encode(sha256('shared'), 'hex'), 6, 'png') RETURNING 1"
    )
    job_id = finish(service, "old", "shared", age_s=settings.original_retention_s + 60)
    service.submit("shared")
    old, shared = (image.sha256 for image in service.images(job_id))
    work.retain()
    assert service.scalar("SELECT sha256 FROM blob") == shared
    assert service.storage.read(shared) == b"shared"
    from arachne.errors import Gone

    with pytest.raises(Gone):
        service.storage.read(old)


def test_events_go_when_delivered_or_too_old(service) -> None:
    """Old events go with their deliveries, but not while one is still to be delivered."""
    age = f"now() - interval '{service.settings.event_retention_s + 60} s'"
    service.submit("x")
    for message_id, state in (("msg_1", "succeeded"), ("msg_2", "pending"), ("msg_3", "succeeded")):
        created_at = "now()" if message_id == "msg_3" else age
        service.scalar(
            "INSERT INTO webhook_endpoint (endpoint_id, account_id, url, events, enabled, hidden, max_in_flight) "
            f"VALUES ('whe_1', '{service.account_id}', 'https://example.com', '{{}}', true, false, 1) "
            "ON CONFLICT DO NOTHING; "
            "INSERT INTO webhook_message (message_id, account_id, type, body, created_at) "
            f"VALUES ('{message_id}', '{service.account_id}', 'webhook.test', '', {created_at}); "
            "INSERT INTO webhook_delivery (message_id, endpoint_id, account_id, state, attempts) "
            f"VALUES ('{message_id}', 'whe_1', '{service.account_id}', '{state}', 1) RETURNING 1"
        )
    Housekeeping(service.database, service.settings, service.storage).retain()
    assert service.scalar("SELECT string_agg(message_id, ' ' ORDER BY message_id) FROM webhook_message") == (
        "msg_2 msg_3"
    )


def test_keys_and_tokens_are_forgotten(service) -> None:
    """What has run out goes; what has not stays."""
    service.scalar(
        "INSERT INTO idempotency_key (account_id, key, holder, lease_until, expires_at) VALUES "
        "('a', 'old', gen_random_uuid(), now(), now() - interval '1 s'), "
        "('a', 'new', gen_random_uuid(), now(), now() + interval '1 h'); "
        "INSERT INTO revoked_token (issuer, jti, expires_at) VALUES "
        "('i', 'old', now() - interval '1 s'), ('i', 'new', now() + interval '1 h') RETURNING 1"
    )
    Housekeeping(service.database, service.settings, service.storage).forget()
    assert service.scalar("SELECT string_agg(key, ' ') FROM idempotency_key") == "new"
    assert service.scalar("SELECT string_agg(jti, ' ') FROM revoked_token") == "new"


def test_a_step_that_fails_keeps_no_other_back(service, caplog: pytest.LogCaptureFixture) -> None:
    """With the store away results and events still go; what failed is logged."""
    settings = service.settings
    finish(service, "old", age_s=settings.original_retention_s + 60)
    service.scalar(
        "INSERT INTO blob (sha256, size_bytes, format, stored_at) "
        "VALUES (encode(sha256('old'), 'hex'), 3, 'png', now() - interval '90 days') RETURNING 1"
    )
    service.scalar(
        "INSERT INTO webhook_message (message_id, account_id, type, body, created_at) "
        f"VALUES ('msg_1', '{service.account_id}', 'webhook.test', '', now() - interval '90 days') RETURNING 1"
    )

    class Store:
        def delete(self, digest: str) -> None:
            raise Unavailable(f"no {digest}")

    Housekeeping(service.database, settings, Store()).retain()  # type: ignore[arg-type]
    assert "is left to the next time" in caplog.text
    assert service.scalar("SELECT count(*) FROM webhook_message") == 0
