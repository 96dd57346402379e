"""An account, jobs with images, and receivers that misbehave in named ways. All receivers are real servers."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from sqlalchemy import text
from sqlmodel import Session

from arachne.accounts import create_account
from arachne.database import AsyncDatabase, Database
from arachne.ids import new_id
from arachne.net.policy import webhook_policy
from arachne.net.urls import CheckedUrl, check_url
from arachne.schemas.tables import Image, ImageResult, Job
from arachne.schemas.webhook import EndpointRequest, NewEndpointView
from arachne.secretbox import SecretBox
from arachne.settings import Settings
from arachne.webhooks.delivery import DeliveryEngine
from arachne.webhooks.endpoints import create_endpoint
from arachne.webhooks.outbox import emit_job_event

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Received:
    """A request as it arrived."""

    headers: dict[str, str]
    body: bytes
    path: str

    @property
    def message_id(self) -> str:
        """The event's id."""
        return self.headers["webhook-id"]

    @property
    def event(self) -> dict[str, object]:
        """The body, read."""
        return dict(json.loads(self.body))


@dataclass
class Receiver:
    """A running receiver, its URL and what it got."""

    server: TestServer
    received: list[Received] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def url(self, path: str = "/hook") -> str:
        """Where to send to."""
        return str(self.server.make_url(path))

    async def wait_for(self, count: int, *, limit_s: float = 20) -> None:
        """Return once `count` requests have arrived."""
        async with asyncio.timeout(limit_s):
            while len(self.received) < count:
                self.arrived.clear()
                await self.arrived.wait()


class Receivers:
    """Starts receivers, each with its own way to answer, and stops them at the end."""

    def __init__(self) -> None:
        self.running: list[TestServer] = []

    async def start(self, answer: Answer) -> Receiver:
        """A receiver that keeps what it gets and answers so."""
        application = web.Application()
        receiver = Receiver(TestServer(application))

        async def receive(request: web.Request) -> web.StreamResponse:
            headers = {name.lower(): value for name, value in request.headers.items()}
            receiver.received.append(Received(headers, await request.read(), request.path_qs))
            receiver.arrived.set()
            return await answer(request)

        application.router.add_route("*", "/{path:.*}", receive)
        await receiver.server.start_server()
        self.running.append(receiver.server)
        return receiver

    async def healthy_receiver(self, status: int = 200) -> Receiver:
        """Answers at once."""

        async def answer(_request: web.Request) -> web.Response:
            return web.Response(status=status, text="thanks")

        return await self.start(answer)

    async def slow_receiver(self, release: asyncio.Event) -> Receiver:
        """Answers only once it is released."""

        async def answer(_request: web.Request) -> web.Response:
            await release.wait()
            return web.Response()

        return await self.start(answer)

    async def flaky_receiver(self, *statuses: int, headers: dict[str, str] | None = None) -> Receiver:
        """Answers with these statuses in turn, then always with 204."""
        left = iter(statuses)

        async def answer(_request: web.Request) -> web.Response:
            status = next(left, 204)
            return web.Response(
                status=status, headers=headers if status != 204 else None, text="" if status == 204 else "no"
            )

        return await self.start(answer)

    async def redirecting_receiver(self, location: str) -> Receiver:
        """Sends elsewhere."""

        async def answer(_request: web.Request) -> web.Response:
            return web.Response(status=308, headers={"Location": location})

        return await self.start(answer)

    async def gone_receiver(self) -> Receiver:
        """Says that it is gone for good."""
        return await self.healthy_receiver(410)

    async def stop(self) -> None:
        """Stop them all."""
        for server in self.running:
            await server.close()


@pytest.fixture
async def receivers() -> AsyncIterator[Receivers]:
    """Receivers of this test."""
    found = Receivers()
    yield found
    await found.stop()


@dataclass
class World:
    """An account in a clean database, and an engine that may reach loopback."""

    database: Database
    account_id: str
    box: SecretBox
    settings: Settings

    def checked(self, url: str) -> CheckedUrl:
        """The URL, allowed."""
        return check_url(url, webhook_policy(self.settings))

    def endpoint(self, url: str, *, events: list[str] | None = None, account_id: str | None = None) -> NewEndpointView:
        """A new endpoint."""
        request = EndpointRequest(url=url, events=events)
        with self.database.transaction() as transaction:
            return create_endpoint(
                transaction.session, self.box, account_id or self.account_id, request, self.checked(url)
            )

    def finish_job(self, count: int = 1, **changes: object) -> Job:
        """A finished job with its images and results, and its terminal event written."""
        with self.database.transaction() as transaction:
            job = add_job(transaction.session, self.account_id, count, **changes)
            emit_job_event(transaction.session, self.settings, job, f"job.{job.state}")
            return job

    def sql(self, statement: str, **values: object) -> list[tuple[object, ...]]:
        """Rows of a statement, for looking and for turning the clock."""
        with self.database.transaction() as transaction:
            result = transaction.session.connection().execute(text(statement), values)
            return [tuple(row) for row in result] if result.returns_rows else []

    def make_due(self) -> None:
        """All that waits for its time is due."""
        self.sql("UPDATE webhook_delivery SET next_attempt_at = now() WHERE state = 'pending'")


def add_job(
    session: Session, account_id: str, count: int, *, result: dict[str, object] | None = None, **changes: object
) -> Job:
    """A job whose images are all read, with `result` for each."""
    job_id = new_id("job")
    members: dict[str, object] = {"state": "completed", "total": count, "completed": count} | changes
    job = Job(
        job_id=job_id, account_id=account_id, subject="s", options={}, deadline_at=datetime.now(UTC) + timedelta(days=1)
    ).model_copy(update=members)
    job = Job(**{**job.model_dump(exclude={"created_at"}), **members})
    session.add(job)
    session.flush()
    for index in range(count):
        result_id = new_id("res")
        body = zlib.compress(json.dumps(result or {"text": f"page {index}"}).encode())
        session.add(
            ImageResult(
                result_id=result_id,
                account_id=account_id,
                scope=account_id,
                sha256="0" * 64,
                model_version="none",
                pipeline_version="1",
                options_hash="x",
                body=body,
            )
        )
        session.flush()
        session.add(
            Image(
                image_id=new_id("img"),
                job_id=job_id,
                account_id=account_id,
                index=index,
                name=f"{index}.png",
                state="completed",
                due_at=datetime.now(UTC),
                result_id=result_id,
            )
        )
    session.flush()
    return job


@pytest.fixture
def settings() -> Settings:
    """Settings that allow receivers on loopback."""
    return Settings(
        webhook_egress_allow=["127.0.0.0/8"],
        egress_allow_http=True,
        webhook_timeout_s=30,
        public_url="https://a.example",
    )


@pytest.fixture
def world(database: Database, settings: Settings) -> World:
    """An account in a clean database."""
    with database.transaction() as transaction:
        account = create_account(transaction.session, "acme")
    return World(database, account.account_id, SecretBox([b"k" * 32]), settings)


@pytest.fixture
def engine(world: World, async_database: AsyncDatabase) -> DeliveryEngine:
    """The engine over the same database."""
    return DeliveryEngine(async_database, world.box, world.settings)
