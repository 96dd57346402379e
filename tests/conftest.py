"""Fixtures every layer uses: real servers, clean databases, and a block on outside sockets."""

import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import redis
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from arachne import migrations
from arachne.database import AsyncDatabase, Database, driver_url
from arachne.embedded import Servers, servers
from arachne.partitions import ensure_partitions

LOOPBACK = ("127.", "::1", "localhost")


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
def migrated_template(embedded: Servers) -> str:
    """Name of a migrated, empty database that tests copy."""
    url = _create(embedded.database_url, "template_migrated")
    migrations.upgrade(url)
    database = Database(url)
    database.run(ensure_partitions)
    database.close()
    return "template_migrated"


@pytest.fixture
def database_url(embedded: Servers, migrated_template: str) -> Iterator[str]:
    """URL of a migrated database of this test's own."""
    name = f"test_{uuid4().hex}"
    yield _create(embedded.database_url, name, template=migrated_template)
    _execute(embedded.database_url, f"DROP DATABASE {name} WITH (FORCE)")


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


def _create(server_url: str, name: str, template: str = "template0") -> str:
    _execute(server_url, f"CREATE DATABASE {name} TEMPLATE {template}")
    return make_url(driver_url(server_url)).set(database=name).render_as_string(hide_password=False)


def _execute(server_url: str, statement: str) -> None:
    engine = create_engine(driver_url(server_url), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()
