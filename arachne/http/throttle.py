"""Which limits a request counts against, and the answer when it is over one."""

from starlette.requests import Request

from arachne.errors import RateLimited
from arachne.http import limiter
from arachne.http.exchange import Caller, Exchange, exchange_of
from arachne.http.limiter import Verdict
from arachne.http.parts import Parts
from arachne.http.windows import Policy
from arachne.jobs.idempotency import is_taken
from arachne.schemas.limits import RateWindow
from arachne.schemas.plan import OF_ACCOUNT
from arachne.schemas.text import is_storable

VISION = "vision"


async def throttle_request(request: Request, parts: Parts, caller: Caller, policy: str) -> None:
    """Count the request against its policy. A repeated submission makes no job, so it costs nothing.

    Raises:
        RateLimited: over the limit.
    """
    key = request.headers.get("idempotency-key")
    if policy == VISION and key and is_storable(key) and await parts.database.run(is_taken, caller.account_id, key):
        stands = [await parts.limiter.look(found, *identity) for found, identity in _limits(parts, caller, policy)]
        exchange_of(request.scope).headers.update(limiter.headers({stand.policy.name: stand for stand in stands}))
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
        RateLimited: over the user's limit or the account's; says when it will pass.
    """
    exchange = exchange_of(request.scope)
    counted = _limits(parts, caller, policy)
    if len(counted) > 1:  # what one of them refuses must cost nothing with the other
        looked = [await parts.limiter.look(found, *identity, cost=cost) for found, identity in counted]
        if not all(verdict.passed for verdict in looked):
            note(exchange, *looked)
            raise refusal(exchange)
    for found, identity in counted:
        verdict = await parts.limiter.hit(found, *identity, cost=cost)
        note(exchange, verdict)
        if not verdict.passed:
            raise refusal(exchange)


def most_at_once(parts: Parts, caller: Caller, policy: str) -> RateWindow:
    """The strictest window of those the caller's hits count in: more at once never pass."""
    return min(found.window for found, _ in _limits(parts, caller, policy))


def note(exchange: Exchange, *verdicts: Verdict) -> None:
    """Put the verdicts, with those before them, on the answer's headers."""
    exchange.verdicts.update({verdict.policy.name: verdict for verdict in verdicts})
    exchange.headers.update(limiter.headers(exchange.verdicts))


def refusal(exchange: Exchange) -> RateLimited:
    """The error for a request one of whose hits didn't pass. After its wait the same request passes all of them."""
    violated = [verdict.policy for verdict in exchange.verdicts.values() if not verdict.passed]
    exchange.extra["violated-policies"] = [policy.name for policy in violated]
    told = ", ".join(f"{one.name!r}: {one.window.amount} in any {one.window.window_s} seconds" for one in violated)
    wait_s = max(verdict.retry_after_s for verdict in exchange.verdicts.values())
    return RateLimited(f"Over the limit {told}. Wait as Retry-After says.", retry_after_s=wait_s)


def _limits(parts: Parts, caller: Caller, policy: str) -> list[tuple[Policy, tuple[str, ...]]]:
    """What the caller's hits count against, and under which identity: the user's, and its account's if there is one."""
    known = limiter.policies(parts.settings, caller.rates)
    account = known.get(OF_ACCOUNT + policy)
    users = (known[policy], (caller.account_id, caller.subject))
    return [users] if account is None else [users, (account, (caller.account_id,))]
