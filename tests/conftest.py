"""Fixtures every layer uses: real servers, clean databases, and a block on outside sockets."""

import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from uuid import uuid4

import hypothesis
import pytest
import redis
from sqlalchemy import create_engine, select, text
from sqlalchemy.engine import make_url

from arachne import migrations
from arachne.database import AsyncDatabase, Database, driver_url
from arachne.embedded import Servers, servers
from arachne.partitions import ensure_partitions
from arachne.schemas.tables import Plan, metadata

LOOPBACK = ("127.", "::1", "localhost")
hypothesis.settings.register_profile("unhurried", deadline=None)  # an example takes longer beside other work
hypothesis.settings.load_profile("unhurried")


class Cleaner:
    """Takes every row out of a migrated database but those its migrations put in."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = create_engine(url, isolation_level="AUTOCOMMIT")
        with self._engine.connect() as connection:
            self._plans = [dict(row) for row in connection.execute(select(Plan.__table__)).mappings()]  # type: ignore[attr-defined]

    def empty(self) -> None:
        """End whatever the test left connected, then delete all rows."""
        with self._engine.connect() as connection:
            connection.execute(_END_OTHERS)
            connection.execute(text("SET session_replication_role = replica"))  # no order of foreign keys to keep
            for table in metadata.sorted_tables:
                connection.execute(table.delete())
            connection.execute(Plan.__table__.insert(), self._plans)  # type: ignore[attr-defined]

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()


_END_OTHERS = text("""
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
""")


@pytest.fixture(autouse=True)
def no_outside_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test connects anywhere but to loopback and Unix sockets."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        if isinstance(address, tuple) and not str(address[0]).startswith(LOOPBACK):
            raise AssertionError(f"a test tried to reach {address[0]}")
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Real PostgreSQL and Redis of this test process."""
    with servers(tmp_path_factory.mktemp("servers")) as running:
        yield running


@pytest.fixture(scope="session")
def migrated(embedded: Servers) -> Iterator[Cleaner]:
    """The migrated database of this test process, and how it is emptied."""
    url = _create(embedded.database_url, "migrated")
    migrations.upgrade(url)
    database = Database(url)
    database.run(ensure_partitions)
    database.close()
    cleaner = Cleaner(url)
    yield cleaner
    cleaner.close()


@pytest.fixture
def database_url(migrated: Cleaner) -> Iterator[str]:
    """URL of a migrated database with nothing in it. Emptying one takes 3 ms, making one a hundred times that."""
    yield migrated.url
    migrated.empty()


@pytest.fixture(scope="session")
def new_database_url(embedded: Servers) -> Callable[[], str]:
    """Makes migrated databases that nobody else empties: for shared services, and for tests that change the schema."""

    def create() -> str:
        url = _create(embedded.database_url, f"test_{uuid4().hex}")
        migrations.upgrade(url)
        return url

    return create


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A clean migrated database for threads."""
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
async def async_database(database_url: str) -> AsyncIterator[AsyncDatabase]:
    """A clean migrated database for the event loop."""
    database = AsyncDatabase(database_url)
    yield database
    await database.close()


@pytest.fixture
def redis_url(embedded: Servers) -> Iterator[str]:
    """URL of a Redis with nothing in it."""
    client = redis.Redis.from_url(embedded.redis_url)
    client.flushall()
    yield embedded.redis_url
    client.flushall()
    client.close()


@pytest.fixture
def images() -> Path:
    """Folder of rendered screenshots, each with its text beside it."""
    return Path(__file__).parent / "images"


def _create(server_url: str, name: str) -> str:
    _execute(server_url, f"CREATE DATABASE {name} TEMPLATE template0")
    return make_url(driver_url(server_url)).set(database=name).render_as_string(hide_password=False)


def _execute(server_url: str, statement: str) -> None:
    engine = create_engine(driver_url(server_url), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()
