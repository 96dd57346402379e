"""The schema of record: migrations and tables agree, in both directions."""

import warnings
from collections.abc import Callable, Iterator

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text

from arachne import migrations
from arachne.database import Database
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
    partitions = {
        name
        for name in inspect(database.engine).get_table_names()
        if name.startswith(tuple(f"{t}_" for t in PARTITIONED_BY_DAY))
    }
    with database.engine.connect() as connection, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Did not recognize type 'xid8'")
        context = MigrationContext.configure(
            connection,
            opts={
                "target_metadata": metadata,
                "compare_server_default": True,
                "include_name": lambda name, kind, _: kind != "table" or name not in partitions,
            },
        )
        assert compare_metadata(context, metadata) == []


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
        assert connection.scalar(text("SHOW idle_in_transaction_session_timeout")) == "30s"
        assert connection.scalar(text("SHOW transaction_timeout")) == "1min"


def test_a_wrong_url_says_what_is_right() -> None:
    """A URL of another database is refused with the right form."""
    from arachne.errors import SetupError

    with pytest.raises(SetupError, match="postgresql://"):
        Database("mysql://root@localhost/x")
