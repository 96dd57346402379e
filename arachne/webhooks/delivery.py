"""The delivery engine: claim → sign → send → record → schedule, resident in one process, woken or ticking by itself.

Postgres holds every timer and claim, so that any number of engines share the work and a lost wake-up costs one tick.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import aiohttp

from arachne import logs, tracing
from arachne.complaints import Complaints
from arachne.database import AsyncDatabase, Transaction
from arachne.errors import Unavailable
from arachne.metrics import count_delivery
from arachne.net.client import guarded_session
from arachne.net.policy import EgressPolicy, webhook_policy
from arachne.net.resolver import Lookup, look_up
from arachne.schemas.webhook import AttemptView
from arachne.secretbox import SecretBox
from arachne.settings import Settings
from arachne.webhooks.cancellation import cancel_orphans
from arachne.webhooks.claim import LEASE_MARGIN_S, Batch, Claim, claim_due
from arachne.webhooks.probe import claim_test
from arachne.webhooks.record import record
from arachne.webhooks.schedule import decide
from arachne.webhooks.sending import attempt

log = logging.getLogger(__name__)
_complaints = Complaints(log)

MAX_IN_FLIGHT = 256
NEARLY_FULL_SLOTS = 64  # of these, the last ones, kept for endpoints that don't fail and have nothing in flight
CLAIM_AT_ONCE = 64
RECORD_AT_ONCE = 6
TICK_S = 2.0
_REFILL_S = 0.01
_STOP_GRACE_S = 5.0
_ORPHANS_EVERY_S = 60.0


class DeliveryEngine:
    """Sends what is due. `run` stays resident; `deliver_due` works off what is due now; `wake` is for other threads."""

    def __init__(
        self,
        database: AsyncDatabase,
        box: SecretBox,
        settings: Settings,
        *,
        policy: EgressPolicy | None = None,
        lookup: Lookup = look_up,
        tick_s: float = TICK_S,
        worker_id: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`worker_id` names the worker whose beat vouches for this engine; without one its leases alone do."""
        self._database = database
        self._box = box
        self._settings = settings
        self._policy = policy or webhook_policy(settings)
        self._lookup = lookup
        self._tick_s = tick_s
        self._worker_id = worker_id
        self._lease_s = settings.webhook_timeout_s + LEASE_MARGIN_S
        self._cursor = ""
        self._sending: set[asyncio.Task[AttemptView | None]] = set()
        self._signal = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._record_gate = asyncio.Semaphore(RECORD_AT_ONCE)
        self._done = 0

    def wake(self) -> None:
        """Have the resident engine look for due deliveries now; from any thread, at any time."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has just been closed: nothing is left to wake
                loop.call_soon_threadsafe(self._signal.set)

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until `stop` is set; then finish what is being sent, or leave it to the lease."""
        self._loop = asyncio.get_running_loop()
        stopping = asyncio.create_task(stop.wait())
        stopping.add_done_callback(lambda _: self._signal.set())
        next_sweep_s = 0.0
        try:
            async with self._open_session() as session:
                while not stop.is_set():
                    self._signal.clear()
                    next_sweep_s = await self._step(session, next_sweep_s)
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._signal.wait(), self._tick_s)
                    await asyncio.sleep(_REFILL_S)  # one claim serves the wake-ups of these milliseconds
                await self._drain(_STOP_GRACE_S)
        finally:
            self._loop = None
            stopping.cancel()

    async def deliver_due(self) -> int:
        """Number of attempts made until nothing more was due and nothing was in flight."""
        before = self._done
        async with self._open_session() as session:
            try:
                self._signal.set()
                while self._sending or self._signal.is_set():
                    await self._signal.wait()  # what ends while a claim is made leaves room that it didn't count
                    self._signal.clear()
                    await self._fill(session)
            finally:
                await self._drain(_STOP_GRACE_S)
        return self._done - before

    async def send_test(self, account_id: str, endpoint_id: str) -> AttemptView:
        """A `webhook.test` sent now, once, whether or not the endpoint is enabled.

        Raises:
            NotFound: this account has no such endpoint.
            Unavailable: the database can't be reached.
        """

        def work(transaction: Transaction) -> Claim:
            return claim_test(transaction.session, self._box, account_id, endpoint_id, lease_s=self._lease_s)

        claim = await self._database.run(work)
        async with self._open_session() as session:
            return await self._deliver(session, claim)

    def _open_session(self) -> aiohttp.ClientSession:
        return guarded_session(self._policy, self._settings.webhook_timeout_s, max_connections=0, lookup=self._lookup)

    async def _step(self, session: aiohttp.ClientSession, next_sweep_s: float) -> float:
        """Start what is due, and now and then cancel what was orphaned; returns when to do that again."""
        await _survive(self._fill(session))
        now_s = asyncio.get_running_loop().time()
        if now_s < next_sweep_s:
            return next_sweep_s
        await _survive(self._database.run(lambda transaction: cancel_orphans(transaction.session)))
        return now_s + _ORPHANS_EVERY_S

    async def _fill(self, session: aiohttp.ClientSession) -> None:
        """Claim into the free slots, walking the endpoints once round."""
        ends_reached = 0
        while (free := MAX_IN_FLIGHT - len(self._sending)) > 0 and ends_reached < 2:
            began_at, nearly_full = self._cursor, free <= NEARLY_FULL_SLOTS
            limit = min(free if nearly_full else free - NEARLY_FULL_SLOTS, CLAIM_AT_ONCE)
            batch = await self._claim(limit, nearly_full=nearly_full)
            self._cursor = batch.cursor
            for claim in batch.claims:
                self._start(session, claim)
            if len(batch.claims) < limit and batch.cursor == "":
                ends_reached += 2 if began_at == "" else 1

    async def _claim(self, limit: int, *, nearly_full: bool) -> Batch:
        def work(transaction: Transaction) -> Batch:
            return claim_due(
                transaction.session,
                self._box,
                cursor=self._cursor,
                limit=limit,
                lease_s=self._lease_s,
                nearly_full=nearly_full,
                worker_id=self._worker_id(),
            )

        return await self._database.run(work)

    def _start(self, session: aiohttp.ClientSession, claim: Claim) -> None:
        task = asyncio.create_task(self._deliver_safely(session, claim))
        self._sending.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[AttemptView | None]) -> None:
        self._sending.discard(task)
        self._signal.set()

    async def _deliver_safely(self, session: aiohttp.ClientSession, claim: Claim) -> AttemptView | None:
        try:
            return await self._deliver(session, claim)
        except Exception:  # sent but not recorded: the lease ends and it is sent again with the same id
            log.exception("webhook attempt not recorded", extra=claim.ids)
            return None

    async def _deliver(self, session: aiohttp.ClientSession, claim: Claim) -> AttemptView:
        with (
            logs.bound(**claim.ids),
            tracing.span("delivery", claim.traceparent, kind="client", told=claim.ids) as span,
        ):
            logged = await self._send(session, claim)
            span.note(status_code=logged.status_code, failure=logged.failure)
            told = {"event_type": claim.event, "status_code": logged.status_code, "failure": logged.failure}
            log.info("webhook sent" if logged.failure is None else "webhook not taken", extra=told | {"ms": logged.ms})
        count_delivery(logged.failure, logged.ms / 1000)
        return logged

    async def _send(self, session: aiohttp.ClientSession, claim: Claim) -> AttemptView:
        outcome = await attempt(session, self._policy, self._box, claim)
        decision = decide(claim, outcome, self._settings.webhook_retry_seconds)
        disable_after_s = self._settings.webhook_disable_after_s

        def work(transaction: Transaction) -> AttemptView:
            return record(transaction.session, claim, outcome, decision, disable_after_s=disable_after_s)

        async with self._record_gate:
            logged = await self._database.run(work)
        self._done += 1
        return logged

    async def _drain(self, grace_s: float) -> None:
        if self._sending:
            _, late = await asyncio.wait(self._sending, timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


async def _survive(work: Awaitable[object]) -> None:
    """`work` is done or its fault is logged: the next tick tries again, and the engine stays."""
    try:
        await work
    except Unavailable as error:
        _complaints.tell("webhooks wait", error)
    except Exception:
        log.exception("looking for webhooks to send failed; it is tried again")
