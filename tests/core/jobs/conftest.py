"""A queue to work on: accounts, submitted jobs, claims and readings, each in a transaction of its own."""

import json
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlmodel import col, select

from arachne.bodies import Reading
from arachne.cache import CacheKey
from arachne.database import Database
from arachne.ids import new_id
from arachne.jobs.claim import Claimed, claim
from arachne.jobs.finish import Finish, finish_cached, finish_completed
from arachne.jobs.submit import NewImage, reserve_blobs
from arachne.jobs.workers import register
from arachne.schemas.options import Options
from arachne.schemas.tables import Account, Image, Job
from arachne.settings import Settings
from arachne.storage import Storage, open_storage


def key_of(options: Options, account_id: str, digest: str) -> CacheKey:
    """Keys as a worker without a VLM makes them."""
    told = options.model_dump_json(exclude={"cache"})
    read = options.model_dump_json(exclude={"cache", "model", "prompt"})
    return CacheKey(
        account_id, digest, options.model if options.model != "auto" else "none", "pipeline-1",
        sha256(told.encode()).hexdigest(), reading_hash=sha256(read.encode()).hexdigest(),
    )  # fmt: skip


def reading(value: str = "read", **facts: object) -> Reading:
    """A result that says `value`."""
    return Reading(zlib.compress(json.dumps({"text": value}).encode()), "none", **facts)  # type: ignore[arg-type]


@dataclass
class Queue:
    """Shorthand for what tests do to the queue."""

    database: Database
    settings: Settings
    accounts: dict[str, str] = field(default_factory=dict)

    def account(self, name: str = "somebody", **columns: object) -> str:
        """Id of the account of that name, made at first mention."""
        if name not in self.accounts:
            with self.database.transaction() as transaction:
                account = Account(account_id=new_id("acc"), name=name, **columns)  # type: ignore[arg-type]
                transaction.session.add(account)
                self.accounts[name] = account.account_id
        return self.accounts[name]

    def submit(
        self,
        *contents: str,
        account: str = "somebody",
        options: dict[str, object] | None = None,
        deadline_s: float = 600,
    ) -> str:
        """Id of a job of one image for each of the contents."""
        image_ids = sorted(new_id("img") for _ in contents)
        account_id, job_id, now = self.account(account), new_id("job"), datetime.now(UTC)
        job = Job(
            job_id=job_id, account_id=account_id, subject="tester", options=options or {}, total=len(contents),
            deadline_at=now + timedelta(seconds=deadline_s),
        )  # fmt: skip
        images = [
            Image(
                image_id=image_id, job_id=job_id, account_id=account_id, index=index, size_bytes=len(content),
                sha256=sha256(content.encode()).hexdigest(), due_at=now + timedelta(seconds=min(len(contents), 600)),
            )
            for index, (image_id, content) in enumerate(zip(image_ids, contents, strict=True))
        ]  # fmt: skip
        with self.database.transaction() as transaction:
            transaction.session.add(job)
            transaction.session.flush()
            transaction.session.add_all(images)
        return job_id

    def worker(self) -> str:
        """Id of a living worker."""
        return self.database.run(register, "gpu")

    def witness(self) -> None:
        """A worker that has beaten all along, so that another's silence is that one's own."""
        self.column("UPDATE worker SET steady_since = now() - interval '1 min' WHERE worker_id = :it", it=self.worker())

    def claim(self, worker_id: str, limit: int = 10, start: str = "") -> list[Claimed]:
        """What the worker gets."""
        return self.database.run(claim, worker_id, limit, key_of, self.settings, start=start).images

    def complete(self, claimed: Claimed, **facts: object) -> Finish:
        """The image is read, or answered from the cache."""
        if claimed.hit:
            return self.database.run(finish_cached, claimed, self.settings)
        return self.database.run(finish_completed, claimed, reading(**facts), self.settings)  # type: ignore[arg-type]

    def work(self, worker_id: str | None = None, limit: int = 10) -> int:
        """Number of images read until nothing is left."""
        worker_id, done = worker_id or self.worker(), 0
        while claimed := self.claim(worker_id, limit):
            done += sum(not image.hit for image in claimed)
            for image in claimed:
                self.complete(image)
        return done

    def images(self, job_id: str) -> list[Image]:
        """The job's images as they now stand."""
        with self.database.transaction() as transaction:
            query = select(Image).where(col(Image.job_id) == job_id).order_by(col(Image.index))
            return list(transaction.session.exec(query))

    def job(self, job_id: str) -> Job:
        """The job as it now stands."""
        with self.database.transaction() as transaction:
            return transaction.session.get_one(Job, job_id)

    def events(self, job_id: str) -> list[str]:
        """The types of the job's events."""
        return self.column("SELECT type FROM webhook_message WHERE job_id = :it ORDER BY sequence", it=job_id)

    def ends(self, job_id: str) -> list[str]:
        """The types of the job's events that tell of its end: there is to be one."""
        return [event for event in self.events(job_id) if event.startswith("job.") and event != "job.started"]

    def column(self, statement: str, **values: object) -> list[Any]:
        """The first column of what a statement answers."""
        with self.database.transaction() as transaction:
            found = transaction.session.execute(text(statement), values)
            return list(found.scalars()) if found.returns_rows else []


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings with their data in a folder of this test's own."""
    return Settings(data_dir=tmp_path)


@pytest.fixture
def queue(database: Database, settings: Settings) -> Queue:
    """An empty queue."""
    return Queue(database, settings)


@pytest.fixture
def make_reading() -> Callable[..., Reading]:
    """Results that say what they are told."""
    return reading


@pytest.fixture
def storage(queue: Queue) -> Storage:
    """The store of originals."""
    return open_storage(queue.settings)


@pytest.fixture
def store(queue: Queue, storage: Storage) -> Callable[..., Awaitable[None]]:
    """Puts originals on record and into the store."""

    async def put(*contents: str) -> None:
        for content in contents:
            digest = sha256(content.encode()).hexdigest()
            queue.database.run(reserve_blobs, [NewImage(None, digest, "png", len(content))])
            await storage.write_async(digest, content.encode())

    return put
