"""What a running API process holds open. Nothing here outlives a request's meaning: any replica answers alike."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from arachne.actors.render_pool import RenderPool
from arachne.actors.wake import Waker
from arachne.announcer import Announcer
from arachne.cache import VisionCache, open_cache
from arachne.cache.erased import ErasureWatch
from arachne.database import AsyncDatabase, Database
from arachne.errors import SetupError
from arachne.http.authentication import Authenticator
from arachne.http.limiter import Limiter
from arachne.http.readiness import ReadinessProbe
from arachne.http.standing_watch import StandingWatch
from arachne.http.uploads import Uploads
from arachne.http.usage_log import UsageLog
from arachne.http.waiting import JobWatcher
from arachne.net.policy import image_policy, webhook_policy
from arachne.secretbox import SecretBox, open_secret_box
from arachne.settings import Settings
from arachne.spool import SpoolBudget
from arachne.storage import Storage, start_storage
from arachne.tokens import trusted_issuers

LOADING = 2  # images or large JSON bodies held in memory at once to be looked at, however many requests there are
ERASING = 2  # jobs erased at once, each in a thread
STORING = 3  # images held in memory at once on their way to or from the store, which may be slow


@dataclass(frozen=True)
class Parts:
    """The open parts of one API process."""

    settings: Settings
    database: AsyncDatabase
    storage: Storage
    box: SecretBox
    limiter: Limiter
    authenticator: Authenticator
    usage_log: UsageLog
    watcher: JobWatcher
    standing: StandingWatch
    waker: Waker
    announcer: Announcer
    cache: VisionCache
    loading: asyncio.Semaphore
    storing: asyncio.Semaphore
    uploads: Uploads
    spools: SpoolBudget
    renderer: RenderPool
    readiness: ReadinessProbe
    records: Database
    """The database for threads: of those that erase, and of the one that watches for erasures."""
    erasing: asyncio.Semaphore


@asynccontextmanager
async def open_parts(settings: Settings) -> AsyncIterator[Parts]:
    """The parts, closed at the end with what was still to be written.

    Raises:
        SetupError: a needed setting is missing or unusable.
    """
    _check(settings)
    parts = _open(settings, await start_storage(settings))
    resident = (parts.usage_log.run(), parts.watcher.run(), parts.watcher.follow(), parts.standing.run())
    tasks = [asyncio.create_task(work) for work in resident]
    erasures = ErasureWatch(parts.records, parts.cache)
    erasures.start()
    try:
        yield parts
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await asyncio.to_thread(erasures.stop)
        await asyncio.to_thread(parts.records.close)
        await asyncio.to_thread(parts.renderer.stop)
        await asyncio.to_thread(parts.announcer.close)
        await asyncio.to_thread(parts.waker.close)
        await asyncio.to_thread(parts.cache.close)
        await parts.authenticator.close()
        await parts.usage_log.flush()
        await parts.readiness.close()
        await parts.limiter.close()
        await parts.database.close()


def _check(settings: Settings) -> None:
    if settings.database_url is None or settings.redis_url is None:
        raise SetupError("Set ARACHNE_DATABASE_URL and ARACHNE_REDIS_URL, or run `arachne up`, which brings its own.")
    # What can't be read or used is told now, not to clients later.
    image_policy(settings), webhook_policy(settings), trusted_issuers(settings)


def _open(settings: Settings, storage: Storage) -> Parts:
    assert settings.database_url is not None
    assert settings.redis_url is not None
    box, cache = open_secret_box(settings), open_cache(settings)
    waker = Waker(settings)
    announcer = Announcer(settings.database_url, waker.wake_webhooks)
    database = AsyncDatabase(settings.database_url, on_commit=announcer.tell)
    return Parts(
        settings=settings,
        database=database,
        storage=storage,
        box=box,
        limiter=Limiter(settings.redis_url),
        authenticator=Authenticator(settings, database),
        usage_log=UsageLog(database),
        watcher=JobWatcher(database),
        standing=StandingWatch(database),
        waker=waker,
        announcer=announcer,
        cache=cache,
        loading=asyncio.Semaphore(LOADING),
        storing=asyncio.Semaphore(STORING),
        uploads=Uploads(),
        spools=SpoolBudget(settings.max_temporary_bytes),
        renderer=RenderPool(settings),
        readiness=ReadinessProbe(settings, database, storage, cache),
        records=Database(settings.database_url, pool_size=ERASING + 1, on_commit=announcer.tell),
        erasing=asyncio.Semaphore(ERASING),
    )


def parts_of(connection: HTTPConnection) -> Parts:
    """The parts of the app that serves this request."""
    found = connection.app.state.parts
    assert isinstance(found, Parts)
    return found
