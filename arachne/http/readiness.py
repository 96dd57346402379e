"""Whether the service can do its work: what it needs is looked at once in a while, however many ask."""

import asyncio
import time
from collections.abc import Awaitable

import anyio.to_thread
from alembic.script import ScriptDirectory
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from arachne.cache import CacheKey, VisionCache
from arachne.database import AsyncDatabase, Transaction
from arachne.errors import ArachneError, SetupError, Unavailable
from arachne.jobs.workers import vlm_seen
from arachne.migrations import alembic_config
from arachne.schemas.health import Checks, Readiness, State
from arachne.settings import Settings
from arachne.storage import Storage

CHECK_TIMEOUT_S = 2.0
KEPT_S = 1.5
_NEEDED = ("postgres", "storage")
_PROBE = CacheKey("probe", "", "", "", "")
_WRITABLE = text("SELECT NOT pg_is_in_recovery() AND NOT current_setting('transaction_read_only')::boolean")
# No row is locked, so no replica waits for another, a frozen one least of all; the commit waits for the disk.
_LOG = text("SELECT pg_logical_emit_message(true, 'arachne', 'readiness')")
_SPILL = text("SELECT set_config('work_mem', '64kB', true)"), text("SELECT count(*) FROM generate_series(1, 20000)")
_REVISIONS = text("SELECT version_num FROM alembic_version")


class ReadinessProbe:
    """Looks at the parts, at most once in `KEPT_S` and never twice at a time: asking is open to all."""

    def __init__(self, settings: Settings, database: AsyncDatabase, storage: Storage, cache: VisionCache) -> None:
        self._settings = settings
        self._database, self._storage, self._cache = database, storage, cache
        self._redis = Redis.from_url(
            settings.redis_url or "",
            socket_timeout=CHECK_TIMEOUT_S,
            socket_connect_timeout=CHECK_TIMEOUT_S,
            retry=Retry(NoBackoff(), 1),  # a kept connection may have ended meanwhile
        )
        self._lock = asyncio.Lock()
        self._revisions: tuple[set[str], set[str]] | None = None
        self._verdict: Readiness | None = None
        self._looked_s = 0.0

    async def look(self) -> Readiness:
        """How things stand, or stood a moment ago."""
        async with self._lock:
            if self._verdict is None or time.monotonic() - self._looked_s >= KEPT_S:
                self._verdict = await self._look()
                self._looked_s = time.monotonic()
            return self._verdict

    async def close(self) -> None:
        """Close the connection."""
        await self._redis.aclose()

    async def _look(self) -> Readiness:
        states = await asyncio.gather(
            _state(self._check_database()),
            _state(self._redis.exists("arachne:readiness")),
            _state(self._storage.check_async()),
            _state(anyio.to_thread.run_sync(self._check_cache, abandon_on_cancel=True)),
            self._vlm(),
        )
        checks = Checks(postgres=states[0], redis=states[1], storage=states[2], cache=states[3], vlm=states[4])
        down = {name for name, state in checks.model_dump().items() if state == "unavailable"}
        status: State = "unavailable" if down & set(_NEEDED) else "degraded" if down else "ok"
        return Readiness(status=status, checks=checks)

    async def _check_database(self) -> None:
        if self._revisions is None:
            self._revisions = await anyio.to_thread.run_sync(_read_revisions, self._database.url)
        await self._database.run(check_database, *self._revisions)
        await self._database.run(prove_writes)

    def _check_cache(self) -> None:
        """Whether what is put into this machine's cache comes out again."""
        self._cache.put(_PROBE, "probe", b"{}")
        if self._cache.get(_PROBE) != ("probe", b"{}"):
            raise Unavailable("The cache of this machine is off.")

    async def _vlm(self) -> State:
        """How the living workers find it; one that reaches it will do."""
        if self._settings.vlm_protocol == "none":
            return "not_configured"
        return await _state(self._database.run(_check_vlm, self._settings.lease_s))


def check_database(transaction: Transaction, known: set[str], newest: set[str]) -> None:
    """Nothing, where the database takes writes and its schema is not older than ours.

    A revision we don't know is a newer one: while replicas are replaced one by one, the old ones still serve.

    Raises:
        Unavailable: it is a standby or read-only.
        SetupError: it has to be migrated.
    """
    if not transaction.session.scalar(_WRITABLE):
        raise Unavailable("The database takes no writes.")
    found = set(transaction.session.scalars(_REVISIONS))
    if not found or (found <= known and found != newest):
        raise SetupError("The database's schema is older than this version. Run `arachne migrate`.")


def prove_writes(transaction: Transaction) -> None:
    """Nothing, once the database has logged something and has found room on its disk for some hundred kilobytes.

    That room is a temporary file's: rows would find place where others were, and leave others to be cleared away.

    Raises:
        OperationalError: it could not; `Unavailable` for whoever ran this.
    """
    for statement in (_LOG, *_SPILL):
        transaction.session.execute(statement)


def _check_vlm(transaction: Transaction, lease_s: float) -> None:
    if not any(seen.ok for seen in vlm_seen(transaction, lease_s)):
        raise Unavailable("No worker reaches the vision-language model.")


def _read_revisions(database_url: str) -> tuple[set[str], set[str]]:
    """All revisions of the schema this version knows, and the newest."""
    scripts = ScriptDirectory.from_config(alembic_config(database_url))
    return {script.revision for script in scripts.walk_revisions()}, set(scripts.get_heads())


async def _state(check: Awaitable[object]) -> State:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await check
    except (ArachneError, SQLAlchemyError, RedisError, OSError):  # a TimeoutError is an OSError
        return "unavailable"
    return "ok"
