"""`/healthz`: the process lives. `/readyz`: what it needs is there, states only."""

import asyncio
from collections.abc import Awaitable

import anyio.to_thread
from redis.asyncio import Redis
from redis.exceptions import RedisError
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from arachne.cache import CacheKey
from arachne.database import Transaction
from arachne.errors import ArachneError
from arachne.http.operations import Answer, Operation, Resource
from arachne.http.parts import Parts
from arachne.schemas.health import Checks, Health, Readiness, State

CHECK_TIMEOUT_S = 2.0
_NEEDED = ("postgres", "storage")
_PROBE = CacheKey("probe", "", "", "", "")


async def show_health(_request: Request, _parts: Parts) -> Response:
    """Always `ok`: whoever can answer lives."""
    return JSONResponse(Health(status="ok").model_dump())


async def show_readiness(_: Request, parts: Parts) -> Response:
    """200 `ok` or `degraded`; 503 when nothing could be accepted."""
    states = await asyncio.gather(
        _state(parts.database.run(_ping)),
        _state(_ping_redis(parts.settings.redis_url or "")),
        _state(parts.storage.check_async()),
        _cache(parts),
        _vlm(parts),
    )
    checks = Checks(postgres=states[0], redis=states[1], storage=states[2], cache=states[3], vlm=states[4])
    down = {name for name, state in checks.model_dump().items() if state == "unavailable"}
    status: State = "unavailable" if down & set(_NEEDED) else "degraded" if down else "ok"
    return JSONResponse(
        Readiness(status=status, checks=checks).model_dump(),
        503 if status == "unavailable" else 200,
        headers={"Retry-After": "5"} if status == "unavailable" else {},
    )


async def _state(check: Awaitable[object]) -> State:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await check
    except (ArachneError, SQLAlchemyError, RedisError, OSError):  # a TimeoutError is an OSError
        return "unavailable"
    return "ok"


async def _cache(parts: Parts) -> State:
    """Whether what is put into this machine's cache comes out again."""

    def probe() -> bool:
        parts.cache.put(_PROBE, b"{}")
        return parts.cache.get(_PROBE) == b"{}"

    return "ok" if await anyio.to_thread.run_sync(probe) else "unavailable"


async def _vlm(parts: Parts) -> State:
    if parts.settings.vlm_protocol == "none":
        return "not_configured"
    return await _published(parts, "vlm", default="unavailable")


async def _published(parts: Parts, name: str, *, default: State) -> State:
    """What the workers last said of a part of theirs."""
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            found = await parts.database.run(_read_state, name)
    except (ArachneError, SQLAlchemyError, OSError):
        return "unavailable"
    return found if found is not None else default


def _read_state(transaction: Transaction, name: str) -> State | None:
    query = text("SELECT value ->> 'state' FROM publication WHERE name = :name")
    found = transaction.session.scalar(query, {"name": name})
    return None if found is None else "ok" if found == "ok" else "unavailable"


def _ping(transaction: Transaction) -> None:
    transaction.session.execute(text("SELECT 1"))


async def _ping_redis(url: str) -> None:
    client = Redis.from_url(url, socket_timeout=CHECK_TIMEOUT_S, socket_connect_timeout=CHECK_TIMEOUT_S)
    try:
        await client.exists("arachne:readiness")
    finally:
        await client.aclose()


RESOURCES = (
    Resource(
        "/healthz",
        {
            "GET": Operation(
                show_health,
                "Whether the process lives",
                scope=None,
                policy=None,
                answers={200: Answer("It does", Health)},
            )
        },
    ),
    Resource(
        "/readyz",
        {
            "GET": Operation(
                show_readiness,
                "Whether the service can do its work",
                scope=None,
                policy=None,
                answers={200: Answer("It can, if perhaps degraded", Readiness), 503: Answer("It can't", Readiness)},
            )
        },
    ),
)
