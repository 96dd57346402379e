"""`arachne worker gpu`: reads images in subprocesses, woken by messages and by its own ticks."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from arachne import languages
from arachne.actors.broker import GPU, make_broker, require_redis_url
from arachne.actors.describing import Describing
from arachne.actors.dispatcher import Dispatcher
from arachne.actors.finisher import Finisher
from arachne.actors.heartbeat import Heartbeat
from arachne.actors.means import Means
from arachne.actors.pool import StagePool
from arachne.actors.residence import run_until_signal, working
from arachne.actors.second_reader import second_reader
from arachne.actors.stage_process import THREAD_LIMITS, Read
from arachne.actors.wake import WAKE_GPU, Waker, declare_wake
from arachne.announcer import Announcer
from arachne.cache import CacheKey, open_cache
from arachne.cache.erased import watching
from arachne.database import Database
from arachne.errors import LanguageMissing, SetupError
from arachne.jobs.claim import Claimed
from arachne.jobs.publications import Published, model_versions, publish
from arachne.pipeline import ReadRequest, pipeline_version, read_image
from arachne.reading import cache_key, choose_model
from arachne.schemas.options import Options
from arachne.settings import Settings
from arachne.storage import start_storage

log = logging.getLogger(__name__)
KIND = "gpu"
WORKER_TIMEOUT_MS = 50
POOL_SIZE = 8


@dataclass
class Reader:
    """What this machine reads with, and what that means for requests and cache keys.

    `facts` are replaced as a whole, so that any thread may look at them.
    """

    settings: Settings
    tessdata_dir: Path
    facts: Published

    def learn(self, versions: Mapping[str, str]) -> None:
        """Key the results of these models by these versions from now on."""
        self.facts = replace(self.facts, model_versions={**self.facts.model_versions, **versions})

    def model_of(self, image: Claimed) -> str | None:
        """The model that is to describe the image."""
        return choose_model(image.options, self.settings)

    def key_of(self, options: Options, account_id: str, digest: str) -> CacheKey:
        """What the result depends on.

        Raises:
            LanguageMissing: a language is not installed on this machine.
        """
        return cache_key(options, account_id, digest, self.settings, self.facts)

    def request_of(self, image: Claimed) -> ReadRequest:
        """What the subprocess is asked.

        Raises:
            LanguageMissing: a language is not installed on this machine.
        """
        settings, options = self.settings, image.options
        return ReadRequest(
            options=options,
            languages=languages.resolve(options.languages, settings.languages, self.facts.languages),
            tessdata_dir=self.tessdata_dir,
            max_pixels=settings.max_image_pixels,
            max_frames=settings.max_frames,
            soft_time_limit_s=settings.soft_time_limit_s,
            vlm_configured=settings.vlm_protocol != "none",
            model_version=image.key.model_version,
        )


def run(settings: Settings, *, read: Read | None = None) -> None:
    """Read images until SIGTERM or SIGINT; what is in hand then is finished, or goes back to the queue.

    `read` stands in for the pipeline with its second reader.

    Raises:
        SetupError: something this worker needs is missing; says what.
    """
    os.environ.update(THREAD_LIMITS)
    if read is not None:
        _run(settings, read)
        return
    with second_reader() as second:
        _run(settings, partial(read_image, second=second))


def _run(settings: Settings, read: Read) -> None:
    if settings.database_url is None:
        raise SetupError("Set ARACHNE_DATABASE_URL, or run `arachne up`, which brings its own.")
    require_redis_url(settings)
    reader, storage = find_reader(settings), asyncio.run(start_storage(settings))
    waker = Waker(settings)
    announcer = Announcer(settings.database_url, waker.wake_webhooks)
    database = Database(settings.database_url, pool_size=POOL_SIZE, on_commit=announcer.tell)
    database.run(publish, reader.facts)
    reader.learn(database.run(model_versions))
    cache, pool = open_cache(settings), StagePool(read, settings)
    finisher = Finisher(database, cache, settings)
    means = Means(database, storage, settings, reader.key_of, reader.request_of, reader.model_of, finisher)
    heartbeat = Heartbeat(settings.database_url, KIND, reader.facts.languages)
    describing = None
    if settings.vlm_protocol != "none":
        describing = Describing(settings, lambda: heartbeat.worker_id, reader.learn)
    dispatcher = Dispatcher(means, pool, lambda: heartbeat.worker_id, describing)
    heartbeat.start(dispatcher.abandon)
    try:
        if describing is not None:
            describing.start(dispatcher.wake)
        with listening(settings, dispatcher.wake), watching(database, cache):
            log.info("worker %s reads images in %d subprocesses", heartbeat.worker_id, settings.cpu_workers)
            run_until_signal(dispatcher.run, dispatcher.stop)
    finally:
        heartbeat.stop()
        announcer.close()
        waker.close()
        cache.close()
        database.close()


def find_reader(settings: Settings) -> Reader:
    """What is installed here.

    Raises:
        SetupError: there is no language data, or not that of the default languages.
    """
    tessdata_dir = languages.merge(settings.tessdata_dir, settings.data_dir / "cache")
    facts = Published(pipeline_version(tessdata_dir), languages.installed(settings.tessdata_dir))
    try:
        languages.resolve(None, settings.languages, facts.languages)
    except LanguageMissing as error:
        raise SetupError(f"ARACHNE_LANGUAGES: {error.message}") from None
    return Reader(settings, tessdata_dir, facts)


@contextmanager
def listening(settings: Settings, wake: Callable[[], object]) -> Iterator[None]:
    """Wake-ups from Redis reach `wake` meanwhile. Without Redis there are none, and nothing else is different."""
    broker = make_broker(settings)
    declare_wake(broker, WAKE_GPU, wake)
    with working(broker, {GPU}, timeout_ms=WORKER_TIMEOUT_MS, threads=1):
        yield
