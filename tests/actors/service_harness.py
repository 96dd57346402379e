"""A whole service below HTTP: jobs submitted straight into the record, and dispatchers to work on them."""

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any

from sqlalchemy import text
from sqlmodel import col, select

from arachne.actors.batcher import Policy
from arachne.actors.describing import Describing
from arachne.actors.dispatcher import Dispatcher
from arachne.actors.finisher import Finisher
from arachne.actors.gpu import find_reader
from arachne.actors.heartbeat import Heartbeat
from arachne.actors.means import Means
from arachne.actors.pool import StagePool
from arachne.cache import VisionCache, open_cache
from arachne.database import Database
from arachne.ids import new_id
from arachne.reading import choose_model
from arachne.schemas.options import Options
from arachne.schemas.tables import Account, Image, Job
from arachne.settings import Settings
from arachne.storage import Storage, open_storage
from tests.machines.waiting import eventually

STRANGE: dict[str, object] = {"invented": True}  # options of another version


@dataclass
class Service:
    """The record, the store, and shorthand for what tests do to them."""

    settings: Settings
    database: Database
    storage: Storage
    cache: VisionCache
    account_id: str = ""
    wake: Callable[[], object] = lambda: None

    def submit(
        self, *contents: str | bytes, options: dict[str, object] | None = None, lost: Collection[str] = ()
    ) -> str:
        """Id of a job of one image for each of the contents, whose bytes are stored unless they are `lost`."""
        model = choose_model(Options.model_validate(options or {}), self.settings) if options != STRANGE else None
        job_id, now = new_id("job"), datetime.now(UTC)
        image_ids = sorted(new_id("img") for _ in contents)
        with self.database.transaction() as transaction:
            session = transaction.session
            if not self.account_id:
                self.account_id = new_id("acc")
                session.add(Account(account_id=self.account_id, name="somebody"))
                session.flush()
            session.add(
                Job(
                    job_id=job_id, account_id=self.account_id, subject="tester", options=options or {},
                    total=len(contents), deadline_at=now + timedelta(seconds=600),
                )
            )  # fmt: skip
            session.flush()
            for index, (image_id, content) in enumerate(zip(image_ids, contents, strict=True)):
                data = content.encode() if isinstance(content, str) else content
                digest = sha256(data).hexdigest()
                if content not in lost:
                    self.storage._store.put(f"originals/{digest[:2]}/{digest}", data)
                session.add(
                    Image(
                        image_id=image_id, job_id=job_id, account_id=self.account_id, index=index, sha256=digest,
                        size_bytes=len(data), model=model, due_at=now + timedelta(seconds=len(contents)),
                    )
                )  # fmt: skip
        self.wake()
        return job_id

    def job(self, job_id: str) -> Job:
        """The job as it now stands."""
        with self.database.transaction() as transaction:
            return transaction.session.get_one(Job, job_id)

    def images(self, job_id: str) -> list[Image]:
        """The job's images as they now stand."""
        with self.database.transaction() as transaction:
            query = select(Image).where(col(Image.job_id) == job_id).order_by(col(Image.index))
            return list(transaction.session.exec(query))

    def scalar(self, statement: str) -> object:
        """What a statement answers first; None where it answers nothing."""
        with self.database.transaction() as transaction:
            found = transaction.session.execute(text(statement))
            return found.scalar() if found.returns_rows else None

    def await_workers(self, number: int) -> None:
        """So many workers are there, so that none comes too late for a share of what is submitted now."""
        eventually(lambda: self.scalar("SELECT count(*) FROM worker") == number)

    def await_finished(self, job_id: str) -> Job:
        """The job once it is finished."""
        eventually(lambda: self.job(job_id).finished_at is not None)
        return self.job(job_id)

    @contextmanager
    def dispatcher(self, read: Callable[..., object], policy: Policy | None = None) -> Iterator[Dispatcher]:
        """A resident dispatcher in this process, with subprocesses of its own, and a model where one is set."""
        reader = find_reader(self.settings)
        pool = StagePool(read, self.settings)  # type: ignore[arg-type]
        finisher = Finisher(self.database, self.cache, self.settings)
        means = Means(
            self.database, self.storage, self.settings, reader.key_of, reader.request_of, reader.model_of, finisher
        )
        heartbeat = Heartbeat(str(self.settings.database_url), "gpu")
        describing = None
        if self.settings.vlm_protocol != "none":
            describing = Describing(self.settings, lambda: heartbeat.worker_id, reader.learn, policy=policy)
        dispatcher = Dispatcher(means, pool, lambda: heartbeat.worker_id, describing)
        heartbeat.start(dispatcher.abandon)
        if describing is not None:
            describing.start(dispatcher.wake)
        thread = Thread(target=dispatcher.run)
        thread.start()
        self.wake = dispatcher.wake
        try:
            yield dispatcher
        finally:
            dispatcher.stop()
            thread.join()
            heartbeat.stop()


@contextmanager
def open_service(settings: Settings) -> Iterator[Service]:
    """An empty service on these servers."""
    database, cache = Database(str(settings.database_url)), open_cache(settings)
    try:
        yield Service(settings, database, open_storage(settings), cache)
    finally:
        cache.close()
        database.close()


@contextmanager
def worker_process(settings: Settings, reader: str, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A GPU worker in a process of its own, which reads with the named reader; killed at the end if it still runs."""
    with part_process(settings, f"gpu.run(Settings.load(), read=stage_faults.{reader})", **more) as process:
        yield process


@contextmanager
def part_process(
    settings: Settings, call: str, *, within: Sequence[str] = (), log: Path | None = None, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs one part of the service by `call`, such as `io.run(Settings.load())`.

    `within` are words of a command that starts it; what it says goes to `log`, or where ours goes.
    """
    code = (
        "import stage_faults; from arachne import logs; from arachne.actors import gpu, io, schedule; "
        f"from arachne.settings import Settings; logs.configure('INFO'); {call}"
    )
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parent),
        "ARACHNE_DATABASE_URL": str(settings.database_url),
        "ARACHNE_REDIS_URL": str(settings.redis_url),
        "ARACHNE_DATA_DIR": str(settings.data_dir),
        "ARACHNE_CPU_WORKERS": "2",
    }
    with nullcontext() if log is None else log.open("ab") as output:
        process = subprocess.Popen(
            [*within, sys.executable, "-c", code], env=environment | variables, cwd=settings.data_dir, stderr=output
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def small_settings(data_dir: Path, database_url: str, redis_url: str, **more: object) -> Settings:
    """Settings of a small worker on these servers."""
    chosen = {"cpu_workers": 2, "stage_memory_bytes": 256 * 1024 * 1024, "hard_time_limit_s": 6.0} | more
    return Settings(data_dir=data_dir, database_url=database_url, redis_url=redis_url, **chosen)  # type: ignore[arg-type]
