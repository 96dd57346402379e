"""A real server on a socket, a worker that reads whatever comes, a wire between, and clients of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import httpx
import pytest

from arachne.client import AsyncClient
from arachne.database import AsyncDatabase
from arachne.settings import Settings
from tests.client.wire import Wire
from tests.http.conftest import SECRET_KEY, Service
from tests.http.test_server import serve
from tests.http.worker import Worker

NewClient = Callable[..., AsyncClient]


@pytest.fixture
def settings(database_url: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of a service on this test's servers."""
    return Settings(
        _env_file=None,
        database_url=database_url,
        redis_url=redis_url,
        data_dir=tmp_path_factory.mktemp("data"),
        secret_key=SECRET_KEY,
        public_url="http://arachne.test",
    )


@pytest.fixture
async def live(settings: Settings, async_database: AsyncDatabase) -> AsyncIterator[Service]:
    """A service on a socket with the account `acme`; nobody reads its images yet."""
    async with serve(settings, async_database) as listening:
        url = f"http://127.0.0.1:{listening.port}"
        async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
            yield Service(listening.service.app, client, settings, async_database)


@pytest.fixture
async def wire(live: Service) -> AsyncIterator[Wire]:
    """The way to the service."""
    async with Wire(str(live.client.base_url)) as running:
        yield running


@pytest.fixture
async def reading(live: Service) -> AsyncIterator[Worker]:
    """A worker that reads all that comes, until the test's end."""
    worker = await Worker(live).start()

    async def read() -> None:
        while True:
            if not await worker.read_all():
                await asyncio.sleep(0.02)

    task = asyncio.create_task(read())
    yield worker
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.fixture
async def new_client(live: Service, wire: Wire) -> AsyncIterator[NewClient]:
    """Makes clients of the account `acme` at the end of the wire."""
    account = await live.account()
    made: list[AsyncClient] = []

    def make(**options: object) -> AsyncClient:
        credentials = {"client_id": account.client_id, "client_secret": account.client_secret}
        client = AsyncClient(wire.url, **{**credentials, **options})  # type: ignore[arg-type]
        made.append(client)
        return client

    yield make
    for client in made:
        await client.close()
