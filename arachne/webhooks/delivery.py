"""The delivery engine: claim → sign → send → record → schedule, resident in one process, woken or ticking by itself.

Postgres holds every timer and claim, so that any number of engines share the work and a lost wake-up costs one tick.
"""

import asyncio
import logging
from collections.abc import Callable

import aiohttp

from arachne import logs, tracing
from arachne.database import AsyncDatabase, Transaction
from arachne.metrics import count_delivery
from arachne.net.client import guarded_session
from arachne.net.policy import EgressPolicy, webhook_policy
from arachne.net.resolver import Lookup, look_up
from arachne.resident_loop import TICK_S, ResidentLoop
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

CLAIM_AT_ONCE = 64
RECORD_AT_ONCE = 6
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
        self._worker_id = worker_id
        self._lease_s = settings.webhook_timeout_s + LEASE_MARGIN_S
        self._cursor = ""
        self._sends = ResidentLoop(log, "webhooks wait", at_once=CLAIM_AT_ONCE, tick_s=tick_s)
        self._sweeps_at_s = 0.0
        self._record_gate = asyncio.Semaphore(RECORD_AT_ONCE)
        self._done = 0

    def wake(self) -> None:
        """Have the resident engine look for due deliveries now; from any thread, at any time."""
        self._sends.wake()

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until `stop` is set; then finish what is being sent, or leave it to the lease."""
        async with self._open_session() as session:
            await self._sends.run(stop, lambda: self._look(session))

    async def deliver_due(self) -> int:
        """Number of attempts made until nothing more was due and nothing was in flight."""
        before = self._done
        async with self._open_session() as session:
            await self._sends.settle(lambda: self._fill(session))
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

    async def _look(self, session: aiohttp.ClientSession) -> None:
        """Start what is due, and now and then cancel what was orphaned."""
        await self._sends.survive(self._fill(session))
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._sweeps_at_s:
            await self._sends.survive(self._database.run(lambda transaction: cancel_orphans(transaction.session)))
            self._sweeps_at_s = now_s + _ORPHANS_EVERY_S

    async def _fill(self, session: aiohttp.ClientSession) -> None:
        async def claim(limit: int, nearly_full: bool) -> tuple[int, bool]:
            batch = await self._claim(limit, nearly_full=nearly_full)
            self._cursor = batch.cursor
            for one in batch.claims:
                self._sends.start(self._deliver_safely(session, one))
            return len(batch.claims), batch.cursor == ""

        await self._sends.fill(claim, at_start=self._cursor == "")

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
