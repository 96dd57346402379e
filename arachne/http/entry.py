"""A request that makes a job, once however often it is repeated with its `Idempotency-Key`."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import Response

from arachne.bodies import StoredJson
from arachne.database import Transaction
from arachne.errors import (
    AccountQueueFull,
    IdempotencyKeyInUse,
    IdempotencyKeyReused,
    InvalidOptions,
    QueueFull,
    QuotaExceeded,
    TooManyImages,
    Unavailable,
)
from arachne.http.answers import answer_job
from arachne.http.exchange import Caller, caller_of
from arachne.http.parts import Parts
from arachne.http.preferences import read_wait
from arachne.http.throttle import throttle_new_job
from arachne.jobs.idempotency import RENEW_S, Remembered, Reservation, release, renew, reserve
from arachne.jobs.submit import NewJob, Submitted, submit
from arachne.jobs.views import show_job

log = logging.getLogger(__name__)
MAX_KEY = 255
_KEY = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)
REPLAYED = "Idempotent-Replayed"
MADE_HEADERS = (REPLAYED, "Preference-Applied")
MAKING = (
    QuotaExceeded, TooManyImages, IdempotencyKeyInUse, IdempotencyKeyReused, AccountQueueFull, QueueFull,
    InvalidOptions,
)  # fmt: skip
Made = tuple[Submitted, dict[str, object] | None]
"""A job just made, and its resource where it is finished already."""
Held = Reservation | Remembered | None
"""The request's key: reserved for it, standing for an earlier job, or not given."""


async def make_once(request: Request, parts: Parts, make: Callable[[Held], Awaitable[Made | None]]) -> Response:
    """The job as the answer: the one `make` makes, or the one that the request's key stands for, where it gives None.

    Raises:
        IdempotencyKeyInUse: the first request with the key is still being accepted.
        RateLimited: over the limit.
        Gone: the job that the key stands for was deleted.
    """
    caller = caller_of(request)
    held = await _reserve(request, parts, caller)
    try:
        if not isinstance(held, Remembered):
            await throttle_new_job(request, parts, caller)
        async with _renewed(parts, held):
            made = await make(held)
    except BaseException:
        await _give_up(parts, held)
        raise
    wait_s, receive = read_wait(request.headers), request.receive
    if made is None:
        assert isinstance(held, Remembered)
        response = await answer_job(parts, caller, held.job_id, receive=receive, wait_s=wait_s)
        response.headers[REPLAYED] = "true"
        return response
    job, shown = made
    _tell(parts, job)
    return await answer_job(parts, caller, job.job_id, receive=receive, wait_s=wait_s, shown=shown)


def _tell(parts: Parts, job: Submitted) -> None:
    log.info("job accepted", extra={"job_id": job.job_id, "waiting": job.waiting, "fetching": job.fetching})
    if job.waiting:
        parts.waker.wake_gpu()
    if job.fetching:
        parts.waker.wake_fetches()


def make_job(
    transaction: Transaction, new: NewJob, parts: Parts, nearby: Mapping[str, StoredJson] = MappingProxyType({})
) -> Made:
    """The job written; `nearby` are results by id that need not be loaded to show it."""
    submitted = submit(transaction, new, parts.settings, parts.box)
    if not submitted.finished:
        return submitted, None
    base_url, tombstone_s = parts.settings.base_url, parts.settings.tombstone_s
    return submitted, show_job(
        transaction, new.account_id, submitted.job_id, base_url=base_url, tombstone_s=tombstone_s, known=nearby
    )


async def _reserve(request: Request, parts: Parts, caller: Caller) -> Held:
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        raise InvalidOptions(f"An Idempotency-Key has 1 to {MAX_KEY} printable ASCII characters.")
    return await parts.database.run(reserve, caller.account_id, key, parts.settings)


@asynccontextmanager
async def _renewed(parts: Parts, held: Held) -> AsyncIterator[None]:
    """The key stays held for as long as the request takes, and no longer than a lease after this process."""
    if not isinstance(held, Reservation):
        yield
        return

    async def keep() -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                await parts.database.run(renew, held)
            except Exception:  # the next try may pass; if none does, the fence tells at the end
                log.exception("an idempotency key's lease could not be renewed")

    task = asyncio.create_task(keep())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _give_up(parts: Parts, held: Held) -> None:
    """Free the key for the next request; where that fails, its lease ends by itself."""
    if isinstance(held, Reservation):
        with suppress(Unavailable):
            await parts.database.run(release, held)
