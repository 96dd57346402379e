"""The application on real PostgreSQL and Redis, spoken to over ASGI."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from sqlalchemy import text

from arachne.accounts import NewAccount, create_account
from arachne.database import AsyncDatabase
from arachne.embedded import Servers
from arachne.http.app import App, create_app
from arachne.schemas.token import CLIENT_SCOPES
from arachne.secretbox import open_secret_box
from arachne.settings import Settings
from arachne.signing_keys import rotate_keys
from arachne.tokens import issue_operator_token

BASE_URL = "http://arachne.test"
SECRET_KEY = "a secret key of the tests that is long enough"


@dataclass
class Service:
    """A running app, a client of it, and its settings."""

    app: App
    client: httpx.AsyncClient
    settings: Settings
    database: AsyncDatabase

    async def account(self, name: str = "acme") -> NewAccount:
        """A new account."""
        return await self.database.run(lambda tx: create_account(tx.session, name))

    async def token(self, name: str = "acme", scopes: tuple[str, ...] = CLIENT_SCOPES, ttl_s: float = 600) -> str:
        """A token of an account that exists."""
        box = open_secret_box(self.settings)
        return await self.database.run(
            lambda tx: issue_operator_token(tx.session, box, self.settings, name, scopes, ttl_s)
        )

    async def headers(self, name: str = "acme", scopes: tuple[str, ...] = CLIENT_SCOPES) -> dict[str, str]:
        """An Authorization header."""
        return {"Authorization": f"Bearer {await self.token(name, scopes)}"}

    async def rotate_keys(self) -> None:
        """A new key signs from now on."""
        box = open_secret_box(self.settings)
        await self.database.run(lambda tx: rotate_keys(tx.session, box))

    async def execute(self, statement: str) -> None:
        """Run a statement."""
        async with self.database.session() as session:
            await session.execute(text(statement))

    async def count(self, table: str) -> int:
        """Number of rows."""
        async with self.database.session() as session:
            return int((await session.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one())


Start = Callable[..., AbstractAsyncContextManager[Service]]


@pytest.fixture
def settings(database_url: str, redis_url: str, tmp_path: Path) -> Settings:
    """Settings of a service on this test's servers."""
    return Settings(
        _env_file=None,
        database_url=database_url,
        redis_url=redis_url,
        data_dir=tmp_path,
        secret_key=SECRET_KEY,
        public_url=BASE_URL,
    )


@asynccontextmanager
async def run_service(settings: Settings, database: AsyncDatabase) -> AsyncIterator[Service]:
    """A running app and a client of it."""
    app = create_app(settings)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with app.lifespan(), httpx.AsyncClient(transport=transport, base_url=BASE_URL) as client:
        yield Service(app, client, settings, database)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared(
    embedded: Servers, new_database_url: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Service]:
    """One service for all tests that only see it refuse; nearly without rate limits, with the account `acme`."""
    url = new_database_url()
    rate = "1000000/minute"
    settings = Settings(
        _env_file=None,
        database_url=url,
        redis_url=embedded.redis_url,
        data_dir=tmp_path_factory.mktemp("shared"),
        secret_key=SECRET_KEY,
        public_url=BASE_URL,
        vision_rate_limit=rate,
        image_rate_limit=rate,
        read_rate_limit=rate,
        other_rate_limit=rate,
    )
    database = AsyncDatabase(url)
    async with run_service(settings, database) as service:
        await service.account()
        yield service
    await database.close()


@pytest.fixture
def start(settings: Settings, async_database: AsyncDatabase) -> Start:
    """Starts services with settings of their own; each is closed with its context."""

    @asynccontextmanager
    async def started(**changes: object) -> AsyncIterator[Service]:
        async with run_service(settings.model_copy(update=changes), async_database) as running:
            yield running

    return started


@pytest.fixture
async def service(start: Start) -> AsyncIterator[Service]:
    """A running service with the account `acme`."""
    async with start() as running:
        await running.account()
        yield running
