"""Every API call on record: who, which route, how it went. Written in the background, so that no request waits."""

import asyncio
import logging
import time
from datetime import UTC, datetime

from sqlalchemy import text
from sqlalchemy.dialects.postgresql import insert
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arachne.database import AsyncDatabase, Transaction
from arachne.errors import Unavailable
from arachne.http.exchange import Exchange, exchange_of
from arachne.metrics import USAGE_DROPPED
from arachne.schemas.tables import ApiUsageLog

log = logging.getLogger(__name__)
QUEUE_ROWS = 10_000
BATCH_ROWS = 500
FLUSH_S = 0.5
# Held until the calls are written, so that erasing an account finds them all.
_THERE = text("SELECT account_id FROM account WHERE account_id = ANY(:account_ids) ORDER BY account_id FOR KEY SHARE")
LAST_WRITE_S = 5.0  # when stopping
_MAX_ROUTE = 200


class UsageLog:
    """A bounded queue of calls and the task that writes them; `dropped` counts those there was no room for."""

    def __init__(self, database: AsyncDatabase) -> None:
        self._database = database
        self._rows: asyncio.Queue[dict[str, object]] = asyncio.Queue(QUEUE_ROWS)
        self.dropped = 0

    def add(self, row: dict[str, object]) -> None:
        """Put a call on record soon; when the database lags too far behind, count it as dropped instead."""
        try:
            self._rows.put_nowait(row)
        except asyncio.QueueFull:
            self.dropped += 1
            USAGE_DROPPED.inc()
            if self.dropped % 1000 == 1:
                log.warning("usage log: %d calls not recorded, the database lags behind", self.dropped)

    async def run(self) -> None:
        """Write rows in batches until cancelled; rows not written by then are waiting still."""
        while True:
            first = await self._rows.get()
            self._put_back([first])  # only to learn that there is one: nothing is out of the queue while we wait
            await asyncio.sleep(FLUSH_S)
            try:
                await self._write_batch()
            except Unavailable as error:
                log.warning("usage log: written later: %s", error.message)
            except Exception:  # whatever it is, the calls to come have to be recorded
                log.exception("usage log: calls not recorded")

    async def flush(self) -> None:
        """Write what is waiting, in one attempt and within `LAST_WRITE_S`; what can't be written is dropped."""
        try:
            async with asyncio.timeout(LAST_WRITE_S):
                while not self._rows.empty():
                    await self._write_batch()
        except (Unavailable, TimeoutError) as error:
            self.dropped += self._rows.qsize()
            USAGE_DROPPED.inc(self._rows.qsize())
            log.warning("usage log: %d calls not recorded at the end: %r", self._rows.qsize(), error)

    async def _write_batch(self) -> None:
        """Nothing; some rows are written, or in the queue again where the database is away or we are cancelled."""
        batch = [self._rows.get_nowait() for _ in range(min(BATCH_ROWS, self._rows.qsize()))]
        try:
            await self._database.run(_insert, batch)
        except (Unavailable, asyncio.CancelledError):
            self._put_back(batch)
            raise
        except Exception:
            self.dropped += len(batch)
            USAGE_DROPPED.inc(len(batch))
            raise

    def _put_back(self, batch: list[dict[str, object]]) -> None:
        for row in batch:
            self.add(row)


class UsageLogMiddleware:
    """Notes each call of the API once its answer is out."""

    def __init__(self, app: ASGIApp, usage_log: UsageLog) -> None:
        self.app = app
        self.usage_log = usage_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not scope["path"].startswith("/api/"):
            await self.app(scope, receive, send)
            return
        counts = {"in": 0, "out": 0, "status": 500}

        async def count_in() -> Message:
            message = await receive()
            counts["in"] += len(message.get("body", b""))
            return message

        async def count_out(message: Message) -> None:
            counts["status"] = message.get("status", counts["status"])
            counts["out"] += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, count_in, count_out)
        finally:
            self.usage_log.add(_row(exchange_of(scope), scope["method"], counts))


def _row(exchange: Exchange, method: str, counts: dict[str, int]) -> dict[str, object]:
    caller = exchange.caller
    return {
        "at": datetime.now(UTC),
        "request_id": exchange.request_id,
        "account_id": caller.account_id if caller else None,
        "subject": caller.subject if caller else None,
        "method": method[:16],
        "route": exchange.route[:_MAX_ROUTE] or "-",
        "status": counts["status"],
        "ms": round((time.perf_counter() - exchange.started_s) * 1000, 3),
        "bytes_in": counts["in"],
        "bytes_out": counts["out"],
    }


def _insert(transaction: Transaction, rows: list[dict[str, object]]) -> None:
    """Nothing; the calls are on record, those of accounts erased meanwhile without whose they were."""
    there = set(transaction.session.scalars(_THERE, {"account_ids": list({row["account_id"] for row in rows})}))
    rows = [row if row["account_id"] in there else row | {"account_id": None, "subject": None} for row in rows]
    transaction.session.connection().execute(insert(ApiUsageLog).on_conflict_do_nothing(), rows)
