"""Images to fetch: a real server on loopback that may misbehave, jobs of URLs, and engines of the test's own."""

import asyncio
import io
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from PIL import Image as Picture
from sqlalchemy import text
from sqlmodel import col, select

from arachne.database import AsyncDatabase
from arachne.fetching import faults
from arachne.fetching.engine import FetchEngine
from arachne.fetching.means import Means
from arachne.ids import new_id
from arachne.jobs.submit import NewImage, NewJob, NewWebhook, submit
from arachne.jobs.workers import register
from arachne.net.policy import EgressPolicy
from arachne.net.urls import check_url
from arachne.schemas.options import Options
from arachne.schemas.tables import Account, Image, Job
from arachne.secretbox import SecretBox
from arachne.settings import Settings
from arachne.storage import Storage, open_storage

BOX = SecretBox([b"k" * 32])
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def png(shade: int = 0, size: tuple[int, int] = (8, 8)) -> bytes:
    """A small picture; other shades are other pictures."""
    buffer = io.BytesIO()
    Picture.new("RGB", size, (shade, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def gif(frames: int) -> bytes:
    """An animation of so many frames."""
    buffer = io.BytesIO()
    pictures = [Picture.new("RGB", (8, 8), (n * 20, 0, 0)) for n in range(frames)]
    pictures[0].save(buffer, "GIF", save_all=True, append_images=pictures[1:])
    return buffer.getvalue()


@dataclass
class Site:
    """A server on loopback: `pages` answer by path, all else is 404. Counts requests by path, and those under way."""

    pages: dict[str, bytes | Handler] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    headers: list[dict[str, str]] = field(default_factory=list)
    under_way: int = 0
    most: int = 0
    port: int = 0

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        """The URL of a page."""
        return f"http://{host}:{self.port}{path}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The page of a path."""
        self.asked[request.path] += 1
        self.headers.append(dict(request.headers))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            page = self.pages.get(request.path)
            if page is None:
                raise web.HTTPNotFound
            return web.Response(body=page) if isinstance(page, bytes) else await page(request)
        finally:
            self.under_way -= 1


@dataclass
class Fetching:
    """The record and the store, and shorthand for what tests do to them."""

    database: AsyncDatabase
    storage: Storage
    settings: Settings
    accounts: dict[str, str] = field(default_factory=dict)
    told: Counter[str] = field(default_factory=Counter)

    async def account(self, name: str = "somebody", **columns: object) -> str:
        """Id of the account of that name, made at first mention."""
        if name not in self.accounts:
            account = Account(account_id=new_id("acc"), name=name, **columns)  # type: ignore[arg-type]
            async with self.database.session() as session:
                session.add(account)
            self.accounts[name] = account.account_id
        return self.accounts[name]

    async def submit(self, *urls: str, account: str = "somebody", single: bool = False, **options: object) -> str:
        """Id of a job of these URLs."""
        images = [NewImage(None, None, None, 0, source_url=url, source_host=self.host(url)) for url in urls]
        url = check_url("https://hooks.example.com/", EgressPolicy.build())
        job = NewJob(
            account_id=await self.account(account),
            subject="tester",
            single=single,
            options=Options.model_validate(options),
            images=images,
            webhook=NewWebhook(url, ["job.*", "image.*"]),
        )
        return (await self.database.run(submit, job, self.settings, BOX)).job_id

    def host(self, url: str) -> str:
        """The host a submission notes."""
        return check_url(url, EgressPolicy.build(["0.0.0.0/0"], allow_http=True)).host

    async def engine(self, **changes: Any) -> FetchEngine:
        """An engine of a worker that lives; it may call loopback, where every name leads."""
        worker_id = await self.database.run(register, "io")
        means = Means(
            self.database,
            self.storage,
            self.settings,
            lambda: worker_id,
            lambda: self.told.update(["queued"]),
        )
        choices = {
            "policy": EgressPolicy.build(["127.0.0.0/8"], allow_http=True),
            "lookup": lambda _host, _port: ["127.0.0.1"],
            "tick_s": 0.05,
        }
        return FetchEngine(means, **{**choices, **changes})

    async def fetch(self, *urls: str, **options: object) -> list[Image]:
        """The images of a job of these URLs, after all that is due has been fetched."""
        job_id = await self.submit(*urls, **options)  # type: ignore[arg-type]
        await (await self.engine()).fetch_due()
        return await self.images(job_id)

    async def images(self, job_id: str) -> list[Image]:
        """The job's images as they now stand."""
        async with self.database.session() as session:
            rows = await session.execute(select(Image).where(col(Image.job_id) == job_id).order_by(col(Image.index)))
            return list(rows.scalars())

    async def job(self, job_id: str) -> Job:
        """The job as it now stands."""
        async with self.database.session() as session:
            return await session.get_one(Job, job_id)

    async def column(self, statement: str, **values: object) -> Sequence[Any]:
        """The first column of what a statement answers."""
        async with self.database.session() as session:
            found = await session.execute(text(statement), values)
            return found.scalars().all() if found.returns_rows else []

    async def events(self, job_id: str) -> list[str]:
        """The types of the job's events."""
        return list(
            await self.column("SELECT type FROM webhook_message WHERE job_id = :it ORDER BY sequence", it=job_id)
        )


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    """Return once it holds."""
    async with asyncio.timeout(20):
        while not await holds():  # noqa: ASYNC110  # rows tell no events
            await asyncio.sleep(0.01)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings with their data in a folder of this test's own."""
    return Settings(_env_file=None, data_dir=tmp_path, max_image_bytes=100_000, image_fetch_timeout_s=5)


@pytest.fixture
def fetching(async_database: AsyncDatabase, settings: Settings) -> Fetching:
    """An empty record and store."""
    return Fetching(async_database, open_storage(settings), settings)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A server with no pages yet."""
    made = Site()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", made.answer)
    async with TestServer(application) as server:
        made.port = server.port or 0
        yield made


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries that follow a failed one come at once."""
    monkeypatch.setattr(faults, "RETRY_DELAYS_S", (0.0, 0.0))
