"""The fetch engine: claim → download → look at → store → queue, resident in one process, woken or ticking by itself.

Postgres holds every timer and claim, so that any number of engines share the work and a lost wake-up costs one tick.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import closing
from uuid import UUID

import aiohttp

from arachne import logs, tracing
from arachne.complaints import Complaints
from arachne.errors import ImageError, Unavailable
from arachne.fetching.arrival import leave_nothing, take_in
from arachne.fetching.download import download
from arachne.fetching.faults import AnswerRejectedError, Fault, judge
from arachne.fetching.means import Means
from arachne.jobs.fetch_claim import Cursor, Fetch, Fetches, claim_fetches, find_lost_fetches
from arachne.jobs.fetch_finish import Fetched, fetch_later, finish_fetched, finish_unfetched
from arachne.jobs.fetch_recovery import give_fetches_back, recover_unheld_fetches
from arachne.jobs.submit import NewImage
from arachne.net.client import guarded_session
from arachne.net.failures import classify
from arachne.net.policy import EgressPolicy, image_policy
from arachne.net.resolver import Lookup, look_up
from arachne.net.urls import redact_query
from arachne.resident_loop import TICK_S, ResidentLoop
from arachne.spool import Spool, SpoolBudget

log = logging.getLogger(__name__)
_complaints = Complaints(log)

CLAIM_AT_ONCE = 32
STORE_AT_ONCE = 4  # images whole in memory, on their way from the spool to the store
CONNECT_TIMEOUT_S = 10.0
UNAVAILABLE_AGAIN_S = 5.0
ClaimId = tuple[str, UUID]


class FetchEngine:
    """Fetches what is due. `run` stays resident; `fetch_due` works off what is due now; `wake` is for other threads."""

    def __init__(
        self, means: Means, *, policy: EgressPolicy | None = None, lookup: Lookup = look_up, tick_s: float = TICK_S
    ) -> None:
        self._means = means
        self._policy = policy or image_policy(means.settings)
        self._lookup = lookup
        self._tick_s = tick_s
        self._cursor = Cursor()
        self._held: dict[ClaimId, asyncio.Task[object]] = {}
        self._bringing: set[ClaimId] = set()  # of these, those of which nothing is being written yet
        self._fetches = ResidentLoop(log, "fetching waits", at_once=CLAIM_AT_ONCE, tick_s=tick_s)
        self._looks_at_s = 0.0
        self._spools = SpoolBudget(means.settings.max_temporary_bytes)
        self._store_gate = asyncio.Semaphore(STORE_AT_ONCE)

    def wake(self) -> None:
        """Have the resident engine look for images now; from any thread, at any time."""
        self._fetches.wake()

    def abandon(self) -> None:
        """Have the resident engine leave what it fetches: others hold it by now. From any thread."""
        self._fetches.call(lambda: self._cut(list(self._held)))

    async def run(self, stop: asyncio.Event) -> None:
        """Fetch until `stop` is set; what is still under way then goes back, uncounted."""
        async with self._open_session() as session:
            await self._fetches.run(stop, lambda: self._look(session))
            await self._fetches.survive(self._means.database.run(give_fetches_back, self._means.worker_id()))

    async def fetch_due(self) -> None:
        """Nothing more is due and nothing is under way."""
        async with self._open_session() as session:
            await self._fetches.settle(lambda: self._fill(session))

    def _open_session(self) -> aiohttp.ClientSession:
        return guarded_session(
            self._policy,
            self._means.settings.image_fetch_timeout_s,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            max_connections=0,
            lookup=self._lookup,
        )

    async def _look(self, session: aiohttp.ClientSession) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._looks_at_s:
            self._looks_at_s = now_s + self._tick_s
            await self._fetches.survive(self._look_after())
        await self._fetches.survive(self._fill(session))

    async def _look_after(self) -> None:
        """Cut what was cancelled meanwhile, and free what the record alone has us holding."""
        run, held = self._means.database.run, list(self._held)
        if held:
            self._cut(await run(find_lost_fetches, held))
        image_ids = [image_id for image_id, _ in held]
        await run(recover_unheld_fetches, self._means.worker_id(), image_ids, self._means.settings)

    def _cut(self, claims: Iterable[ClaimId]) -> None:
        for one in claims:
            if one in self._bringing:
                self._held[one].cancel()

    async def _fill(self, session: aiohttp.ClientSession) -> None:
        async def claim(limit: int, nearly_full: bool) -> tuple[int, bool]:
            found = await self._claim(limit, nearly_full=nearly_full)
            self._cursor = found.cursor
            for fetch in found.images:
                self._start(session, fetch)
            return len(found.images), found.cursor == Cursor()

        await self._fetches.fill(claim, at_start=self._cursor == Cursor())

    async def _claim(self, limit: int, *, nearly_full: bool) -> Fetches:
        run, worker_id, settings = self._means.database.run, self._means.worker_id(), self._means.settings
        return await run(claim_fetches, worker_id, limit, settings, cursor=self._cursor, nearly_full=nearly_full)

    def _start(self, session: aiohttp.ClientSession, fetch: Fetch) -> None:
        claim = _claim_of(fetch)
        self._held[claim] = self._fetches.start(self._fetch_safely(session, fetch))
        self._held[claim].add_done_callback(lambda _: self._held.pop(claim))

    async def _fetch_safely(self, session: aiohttp.ClientSession, fetch: Fetch) -> None:
        """What becomes of the image is written; where it can't be, the next look finds it held by the record alone."""
        with logs.bound(**fetch.ids), tracing.span("fetch", fetch.traceparent, told=fetch.ids):
            await self._fetch_and_survive(session, fetch)

    async def _fetch_and_survive(self, session: aiohttp.ClientSession, fetch: Fetch) -> None:
        try:
            done = await self._fetch(session, fetch)
        except Unavailable as error:
            log.warning("image %s is fetched again: %s", fetch.image_id, error.message)
            await self._fetches.survive(
                self._means.database.run(fetch_later, fetch, UNAVAILABLE_AGAIN_S, counted=False)
            )
        except Exception:
            log.exception("what became of image %s could not be written", fetch.image_id)
        else:
            if done.queued:
                self._means.queued()

    async def _fetch(self, session: aiohttp.ClientSession, fetch: Fetch) -> Fetched:
        run, settings = self._means.database.run, self._means.settings
        try:
            image = await self._bring(session, fetch)
        except Unavailable:
            raise
        except ImageError as error:
            return await run(finish_unfetched, fetch, error, settings)
        except Exception as error:  # whatever it is, the image must end
            fault = judge(error, fetch.attempts)
            _log_fault(fetch, fault, error)
            if fault.retry_s is not None:
                return await run(fetch_later, fetch, fault.retry_s, counted=True)
            return await run(finish_unfetched, fetch, fault.error, settings)
        done = await run(finish_fetched, fetch, image, settings)
        if not done.written:
            await leave_nothing(self._means, fetch, image)
        return done

    async def _bring(self, session: aiohttp.ClientSession, fetch: Fetch) -> NewImage:
        settings = self._means.settings
        max_bytes, timeout_s = settings.max_image_bytes, settings.image_fetch_timeout_s
        self._bringing.add(_claim_of(fetch))
        try:
            with closing(Spool(budget=self._spools, account_id=fetch.account_id)) as spool:
                found = await download(
                    session, self._policy, fetch.url, spool, max_bytes=max_bytes, timeout_s=timeout_s
                )
                async with self._store_gate:
                    return await take_in(self._means, fetch, found, spool)
        finally:
            self._bringing.discard(_claim_of(fetch))


def _claim_of(fetch: Fetch) -> ClaimId:
    return fetch.image_id, fetch.claim_id


def _log_fault(fetch: Fetch, fault: Fault, error: Exception) -> None:
    """What failed is logged; of our own faults the place as well."""
    log.info("image %s from %s: %s", fetch.image_id, redact_query(fetch.url), fault.error.message)
    if classify(error) == "ours" and not isinstance(error, AnswerRejectedError):
        _complaints.tell(f"image {fetch.image_id} could not be fetched", error)
