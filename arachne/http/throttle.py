"""Which limits a request counts against, and the answer when it is over one."""

from starlette.requests import Request

from arachne.errors import RateLimited
from arachne.http import limiter
from arachne.http.exchange import Caller, Exchange, exchange_of
from arachne.http.limiter import Verdict
from arachne.http.parts import Parts
from arachne.jobs.idempotency import is_taken
from arachne.schemas.text import is_storable

VISION = "vision"


async def throttle_request(request: Request, parts: Parts, caller: Caller, policy: str) -> None:
    """Count the request against its policy. A repeated submission makes no job, so it costs nothing.

    Raises:
        RateLimited: over the limit.
    """
    key = request.headers.get("idempotency-key")
    if policy == VISION and key and is_storable(key) and await parts.database.run(is_taken, caller.account_id, key):
        return
    await throttle(request, parts, caller, policy)


async def throttle_new_job(request: Request, parts: Parts, caller: Caller) -> None:
    """Count a submission that was let through as a repeat and has to make a job after all.

    Raises:
        RateLimited: over the limit.
    """
    if VISION not in exchange_of(request.scope).verdicts:
        await throttle(request, parts, caller, VISION)


async def throttle(request: Request, parts: Parts, caller: Caller, policy: str, *, cost: int = 1) -> None:
    """Count `cost` hits of the caller against a policy and tell how it stands in the answer's headers.

    Raises:
        RateLimited: over the limit; says when it will pass.
    """
    found = limiter.policies(parts.settings, caller.rates)[policy]
    verdict = await parts.limiter.hit(found, caller.account_id, caller.subject, cost=cost)
    exchange = exchange_of(request.scope)
    note(exchange, verdict)
    if not verdict.passed:
        raise refusal(exchange, verdict)


def note(exchange: Exchange, verdict: Verdict) -> None:
    """Put the verdict, with those before it, on the answer's headers."""
    exchange.verdicts[verdict.policy.name] = verdict
    exchange.headers.update(limiter.headers(exchange.verdicts))


def refusal(exchange: Exchange, verdict: Verdict) -> RateLimited:
    """The error for a hit that didn't pass."""
    name, window = verdict.policy.name, verdict.policy.window
    exchange.extra["violated-policies"] = [name]
    detail = f"Over the limit {name!r}: {window.amount} in any {window.window_s} seconds. Wait as Retry-After says."
    return RateLimited(detail, retry_after_s=verdict.retry_after_s)
