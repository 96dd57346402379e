"""Transactions on the schema of record, for threads (`Database`) and for event loops (`AsyncDatabase`).

Core functions take a `Transaction` and work in its session. They are plain functions; `AsyncDatabase` runs the same
ones on its async engine.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, TypeVar

from psycopg import AsyncConnection
from psycopg import Error as PsycopgError
from psycopg.errors import (
    DeadlockDetected,
    DiskFull,
    IdleInTransactionSessionTimeout,
    OutOfMemory,
    ReadOnlySqlTransaction,
    SerializationFailure,
    TooManyConnections,
    TransactionTimeout,
)
from psycopg.sql import SQL, Identifier
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry
from sqlmodel import Session

from arachne.errors import SetupError, Unavailable
from arachne.metrics import watch_pool
from arachne.news import News, news_of

P = ParamSpec("P")
T = TypeVar("T")

CONNECT_TIMEOUT_S = 5
STALL_S = 15.0  # of a transaction on an event loop: a server that is cut off or frozen says nothing for ever
# One long snapshot keeps dead rows alive and slows claims 15-fold, so no transaction may linger. A process that was
# stopped within one holds its locks no longer than its lease, whose end others wait for anyway. By their estimates
# claims are worth compiling, which would take a hundred times what running them does.
SESSION_SETTINGS = "SET idle_in_transaction_session_timeout = '10s'; SET timezone = 'UTC'; SET jit = off"
TRANSACTION_TIMEOUT = "SET transaction_timeout = '60s'"  # PostgreSQL 17 and later
_ATTEMPTS = 4
_PROBE_S, _AGAIN_S = 10.0, 2.0
_PASSING = (ReadOnlySqlTransaction, IdleInTransactionSessionTimeout, TransactionTimeout)
_TOLD: dict[type, str] = {
    DiskFull: "The database's disk is full; try again later, when its operator has made room.",
    OutOfMemory: "The database is out of memory; try again in a moment.",
    TooManyConnections: "The database has too many connections; try again in a moment.",
    ReadOnlySqlTransaction: "The database takes no writes now; try again in a moment.",
    IdleInTransactionSessionTimeout: "The database took too long; try again in a moment.",
    TransactionTimeout: "The database took too long; try again in a moment.",
}


@dataclass(frozen=True)
class Transaction:
    """An open transaction."""

    session: Session


class Database:
    """A pooled engine for threads."""

    def __init__(self, url: str, *, pool_size: int = 8, on_commit: Callable[[News], None] | None = None) -> None:
        """`on_commit` is told what each transaction wrote that others wait for; it must neither wait nor raise."""
        self.url = driver_url(url)
        self._on_commit = on_commit
        self.engine: Engine = create_engine(self.url, pool_size=pool_size, max_overflow=0, **_POOL)
        event.listen(self.engine, "connect", _prepare_connection)
        watch_pool(self.engine)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """One transaction, committed at the end and rolled back on any exception.

        Raises:
            Unavailable: the database can't be reached.
        """
        with unavailable_when_down(), Session(self.engine, expire_on_commit=False) as session:
            with session.begin():
                yield Transaction(session)
            _tell(session, self._on_commit)

    def run(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`work` in a transaction of its own, again from the start after a deadlock or serialization failure.

        Raises:
            Unavailable: the database can't be reached or takes no writes, or others were faster time and again.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self.transaction() as transaction:
                    return work(transaction, *args, **kwargs)
            except DBAPIError as error:
                _raise_unless_worth_another(error, attempt)
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Close every pooled connection."""
        self.engine.dispose()


class AsyncDatabase:
    """A pooled engine for one event loop."""

    def __init__(
        self, url: str, *, pool_size: int = 16, keep: bool = False, on_commit: Callable[[News], None] | None = None
    ) -> None:
        """`keep`: connections are replaced only when they break, since something hangs on their sessions.

        No commit on kept ones waits for the disk: what they write is worth nothing after a crash. `on_commit` as for
        `Database`.
        """
        self.url = driver_url(url)
        self._on_commit = on_commit
        options = _POOL | _KEPT if keep else _POOL
        self.engine: AsyncEngine = create_async_engine(
            self.url, pool_size=pool_size, max_overflow=0, pool_timeout=10, **options
        )
        event.listen(self.engine.sync_engine, "connect", _prepare_connection)
        watch_pool(self.engine.sync_engine)
        if keep:
            event.listen(self.engine.sync_engine, "connect", _wait_for_no_disk)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        """A session in a transaction, committed at the end and rolled back on any exception.

        Raises:
            Unavailable: the database can't be reached.
        """
        with unavailable_when_down():
            async with self._new_session() as session:
                async with session.begin():
                    yield session
                _tell(session.sync_session, self._on_commit)  # type: ignore[arg-type]  # SQLModel's, as made

    def _new_session(self) -> AsyncSession:
        return AsyncSession(self.engine, expire_on_commit=False, sync_session_class=Session)

    async def run(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`work` in a transaction of its own, again from the start after a deadlock or serialization failure.

        Raises:
            Unavailable: the database can't be reached or takes no writes, or others were faster time and again.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                async with asyncio.timeout(STALL_S) as limit, self.session() as session:
                    return await session.run_sync(lambda sync: work(Transaction(sync), *args, **kwargs))  # type: ignore[arg-type]
            except TimeoutError as error:
                if not limit.expired():
                    raise
                raise Unavailable("The database doesn't answer; try again in a moment.", retry_after_s=5) from error
            except DBAPIError as error:
                _raise_unless_worth_another(error, attempt)
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Close every pooled connection."""
        await self.engine.dispose()


async def notifications(url: str, channel: str) -> AsyncIterator[str]:
    """Payloads notified on the channel, and an empty one whenever some may have been missed.

    The connection is tried every few seconds, and made anew where it broke.
    """
    while True:
        try:
            connection = await AsyncConnection.connect(
                plain_url(url), autocommit=True, connect_timeout=CONNECT_TIMEOUT_S
            )
            async with connection:
                await connection.execute(SQL("LISTEN {}").format(Identifier(channel)))
                yield ""
                while True:
                    async for told in connection.notifies(timeout=_PROBE_S):
                        yield told.payload
                    async with asyncio.timeout(_PROBE_S):
                        await connection.execute("SELECT 1")
        except (PsycopgError, OSError):  # a probe that timed out is an OSError too
            await asyncio.sleep(_AGAIN_S)


# A thread that waits for a machine that is no longer there is told so within half a minute, and not after hours.
_CONNECTING = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
# What a statement's parameters hold, file names and secrets among it, stays out of errors and so out of logs.
QUIET = {"hide_parameters": True}
_POOL = QUIET | {
    "pool_pre_ping": True,
    "pool_recycle": 1800,
    "connect_args": _CONNECTING,
}
_KEPT = {"pool_recycle": -1, "pool_pre_ping": False}


def driver_url(url: str) -> str:
    """The URL with our driver named: `postgres://`, `postgresql://` become `postgresql+psycopg://`.

    Raises:
        SetupError: not a PostgreSQL URL.
    """
    try:
        parsed = make_url(url)
    except SQLAlchemyError:
        parsed = None
    if parsed is None or parsed.drivername.split("+")[0] not in {"postgresql", "postgres"}:
        raise SetupError("ARACHNE_DATABASE_URL must be a PostgreSQL URL: postgresql://USER:PASSWORD@HOST/DATABASE")
    return parsed.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)


def plain_url(url: str) -> str:
    """The URL as psycopg itself takes it."""
    return make_url(driver_url(url)).set(drivername="postgresql").render_as_string(hide_password=False)


def is_transient_conflict(error: DBAPIError) -> bool:
    """Whether the transaction lost against another one and will pass when run again."""
    return isinstance(error.orig, DeadlockDetected | SerializationFailure)


def _raise_unless_worth_another(error: DBAPIError, attempt: int) -> None:
    if not is_transient_conflict(error):
        raise error
    if attempt == _ATTEMPTS:
        raise Unavailable("The database is busy; try again in a moment.", retry_after_s=2) from error


@contextmanager
def unavailable_when_down() -> Iterator[None]:
    """Connection losses, pool exhaustion, time limits, read-only and full servers become `Unavailable`.

    Conflicts and our own faults pass through.
    """
    try:
        yield
    except PoolTimeout as error:
        raise Unavailable("The database is busy; try again in a moment.", retry_after_s=2) from error
    except (OperationalError, InterfaceError, InternalError) as error:
        if is_transient_conflict(error):
            raise
        if isinstance(error, InternalError) and not isinstance(error.orig, _PASSING):
            raise
        told = _TOLD.get(type(error.orig), "The database can't be reached; try again in a moment.")
        raise Unavailable(told, retry_after_s=5) from error


def _tell(session: Session, on_commit: Callable[[News], None] | None) -> None:
    news = news_of(session)
    for act in news.afterwards:
        act()
    if on_commit is not None:
        on_commit(news)


def _prepare_connection(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    with_timeout = connection.info.server_version >= 170_000
    cursor = connection.cursor()
    cursor.execute(SESSION_SETTINGS)
    if with_timeout:
        cursor.execute(TRANSACTION_TIMEOUT)
    cursor.close()
    connection.commit()


def _wait_for_no_disk(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute("SET synchronous_commit = off")
    cursor.close()
    connection.commit()
