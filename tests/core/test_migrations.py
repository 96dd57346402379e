"""The schema of record: migrations and tables agree, in both directions."""

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import inspect, text
from sqlalchemy.exc import DBAPIError

from arachne import migrations
from arachne.cli.migrate import prepare_schema
from arachne.database import AsyncDatabase, Database, Transaction
from arachne.errors import SetupError, Unavailable
from arachne.locks import Lock
from arachne.migrations.fingerprint import compute_fingerprint, find_differences, read_fingerprint
from arachne.partitions import drop_partitions, ensure_partitions
from arachne.schemas.tables import PARTITIONED_BY_DAY, metadata


@pytest.fixture
def own_database(new_database_url: Callable[[], str]) -> Iterator[Database]:
    """A migrated database whose schema may be changed."""
    database = Database(new_database_url())
    yield database
    database.close()


def test_migrations_give_exactly_the_tables(database: Database) -> None:
    """No table, column, index or default differs between the migrations and the models."""
    tables = {
        name
        for name in inspect(database.engine).get_table_names()
        if not name.startswith(tuple(f"{t}_" for t in PARTITIONED_BY_DAY))
    }
    assert tables == {*metadata.tables, "alembic_version"}
    with database.engine.connect() as connection:
        assert find_differences(connection) == []


def set_fingerprint(database: Database, value: str) -> None:
    """What the database says its schema is."""
    with database.engine.begin() as connection:
        connection.execute(text(f"COMMENT ON TABLE alembic_version IS {value}"))


def test_a_database_of_another_checkout_is_refused(own_database: Database) -> None:
    """At the same revision, but with other tables, with a fingerprint or from before there were any.

    It says what differs and what to do. What no comparison of tables sees, the fingerprint tells alone.
    """
    prepare_schema(own_database.url)
    set_fingerprint(own_database, "'another'")
    with pytest.raises(SetupError, match=r"in a constraint.*another --data-dir"):
        prepare_schema(own_database.url)
    for change, told in (
        ("DROP INDEX ix_image_result_sha256", "add_index ix_image_result_sha256"),
        ("ALTER TABLE image_result DROP COLUMN sha256; ALTER TABLE image DROP COLUMN units", "add_column image units"),
        ("DROP TABLE erased_result", "add_table erased_result"),
    ):
        with own_database.engine.begin() as connection:
            connection.execute(text(change))
        for fingerprint in ("'another'", "NULL"):
            set_fingerprint(own_database, fingerprint)
            with pytest.raises(SetupError, match=told):
                prepare_schema(own_database.url)


def test_a_database_from_before_fingerprints_is_taken_if_it_is_the_same(database: Database) -> None:
    """It gets its fingerprint, and is not compared again."""
    set_fingerprint(database, "NULL")
    migrations.upgrade(database.url)
    with database.engine.connect() as connection:
        assert read_fingerprint(connection) == compute_fingerprint()


def test_the_fingerprint_knows_constraints(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state more that an image may have is another schema; the same tables are always the same."""
    before = compute_fingerprint()
    assert compute_fingerprint() == before
    check = next(one for one in metadata.tables["image"].constraints if one.name == "ck_image_state")
    monkeypatch.setattr(check, "sqltext", text("state IN ('queued')"))
    assert compute_fingerprint() != before


def test_every_migration_goes_down_and_up_again(own_database: Database) -> None:
    """Down to nothing leaves nothing behind, and up again works."""
    migrations.downgrade(own_database.url, "base")
    assert inspect(own_database.engine).get_table_names() == ["alembic_version"]
    migrations.upgrade(own_database.url)
    assert migrations.is_current(own_database.url)


def test_partitions_are_made_once_and_dropped_whole(own_database: Database) -> None:
    """Making partitions again makes none; dropping takes only whole days before the date."""
    from datetime import date

    first = date(2031, 3, 1)
    assert own_database.run(ensure_partitions, today=first, days_ahead=2) == 3 * len(PARTITIONED_BY_DAY)
    assert own_database.run(ensure_partitions, today=first, days_ahead=2) == 0
    with own_database.transaction() as transaction:
        before = set(inspect(transaction.session.connection()).get_table_names())
        assert drop_partitions(transaction, "webhook_attempt", before=date(2031, 3, 3)) >= 2
        gone = before - set(inspect(transaction.session.connection()).get_table_names())
    assert {"webhook_attempt_20310301", "webhook_attempt_20310302"} <= gone
    assert "webhook_attempt_20310303" not in gone
    assert not any(name.startswith("api_usage_log") for name in gone)


def test_no_transaction_may_linger(database: Database) -> None:
    """Every connection carries time limits: a forgotten transaction is ended by the server."""
    with database.engine.connect() as connection:
        assert connection.scalar(text("SHOW idle_in_transaction_session_timeout")) == "10s"
        assert connection.scalar(text("SHOW transaction_timeout")) == "1min"


def test_no_claim_is_compiled(database: Database) -> None:
    """Servers that can do so would: the estimates of what claims cost are over their bound for it."""
    with database.engine.connect() as connection:
        assert connection.scalar(text("SHOW jit")) == "off"


async def test_connections_to_machines_that_are_gone_end(database: Database, async_database: AsyncDatabase) -> None:
    """The kernel asks whether the other end is still there, and gives up within half a minute."""
    with database.engine.connect() as connection:
        found = [connection.connection.dbapi_connection.info.get_parameters()]  # type: ignore[union-attr]
    async with async_database.engine.connect() as connection:
        raw = await connection.get_raw_connection()
        found.append(raw.driver_connection.info.get_parameters())  # type: ignore[union-attr]
    for told in found:
        assert int(told["keepalives_idle"]) + int(told["keepalives_interval"]) * int(told["keepalives_count"]) <= 30
        assert 0 < int(told["tcp_user_timeout"]) <= 30_000


def test_a_wrong_url_says_what_is_right() -> None:
    """A URL of another database is refused with the right form."""
    with pytest.raises(SetupError, match="postgresql://"):
        Database("mysql://root@localhost/x")


def add_call(database: Database, at: str, request_id: str) -> None:
    """A line of the usage log."""
    with database.transaction() as transaction:
        transaction.session.execute(
            text(
                "INSERT INTO api_usage_log (at, request_id, method, route, status, ms, bytes_in, bytes_out) "
                "VALUES (:at, :request_id, 'GET', '/', 200, 1, 0, 0)"
            ),
            {"at": at, "request_id": request_id},
        )


def test_rows_that_came_before_their_partition_move_into_it(own_database: Database) -> None:
    """A day that has rows in the default partition gets its own all the same, with those rows, and takes new ones."""
    from datetime import date

    add_call(own_database, "2031-03-02 00:00Z", "first")
    add_call(own_database, "2031-03-03 00:00Z", "next day")
    made = own_database.run(ensure_partitions, today=date(2031, 3, 1), days_ahead=1)
    assert made == 2 * len(PARTITIONED_BY_DAY)
    add_call(own_database, "2031-03-02 23:59:59Z", "last")
    with own_database.engine.connect() as connection:
        found = connection.execute(text("SELECT tableoid::regclass::text, request_id FROM api_usage_log ORDER BY at"))
        assert found.all() == [
            ("api_usage_log_20310302", "first"),
            ("api_usage_log_20310302", "last"),
            ("api_usage_log_rest", "next day"),
        ]
    assert own_database.run(drop_partitions, "api_usage_log", before=date(2031, 3, 4)) == 2
    with own_database.engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM api_usage_log")) == 0


def test_a_partition_that_cannot_be_made_keeps_no_other_back(
    own_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """A table in the way of one day is logged; the other days and logs get theirs, and the schema counts as ready."""
    from datetime import UTC, datetime

    today = datetime.now(UTC).date()
    with own_database.transaction() as transaction:
        transaction.session.execute(text(f"CREATE TABLE webhook_attempt_{today:%Y%m%d} (at int)"))
    assert own_database.run(ensure_partitions, today=today, days_ahead=1) == 2 * len(PARTITIONED_BY_DAY) - 1
    assert "has to wait" in caplog.text
    prepare_schema(own_database.url)


def test_parameters_are_in_no_error(database: Database) -> None:
    """What is passed to a statement doesn't come out of its failure."""
    with pytest.raises(DBAPIError) as caught, database.transaction() as transaction:
        transaction.session.execute(text("SELECT 1 / CAST(:n AS int), CAST(:it AS text)"), {"n": 0, "it": "whsec_x"})
    assert "whsec_x" not in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("SET TRANSACTION READ ONLY; DELETE FROM revoked_token", "no writes"),
        ("DO $$ BEGIN RAISE SQLSTATE '25P03'; END $$", "too long"),  # idle_in_transaction_session_timeout
        ("DO $$ BEGIN RAISE SQLSTATE '25P04'; END $$", "too long"),  # transaction_timeout
    ],
)
def test_read_only_servers_and_time_limits_are_unavailable(database: Database, statement: str, told: str) -> None:
    """They are no fault of the program, and pass."""

    def run(transaction: Transaction) -> None:
        transaction.session.execute(text(statement))

    with pytest.raises(Unavailable, match=told):
        database.run(run)


def test_losing_against_others_time_and_again_is_unavailable(database: Database) -> None:
    """After the last attempt the caller is asked to come back."""
    attempts = []

    def lose(transaction: Transaction) -> None:
        attempts.append(1)
        transaction.session.execute(text("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$"))

    with pytest.raises(Unavailable, match="busy"):
        database.run(lose)
    assert len(attempts) > 1


def test_no_two_uses_share_a_lock() -> None:
    """Each advisory lock has a number of its own."""
    assert len({int(lock) for lock in Lock.__members__.values()}) == len(Lock.__members__) >= 4
