"""Transactions on the schema of record, for threads (`Database`) and for event loops (`AsyncDatabase`).

Core functions take a `Transaction`: they work in its session and leave what must wait for the commit (wake-ups) in
`after_commit`. They are plain functions; `AsyncDatabase` runs the same ones on its async engine.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, TypeVar

from psycopg.errors import DeadlockDetected, SerializationFailure
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry
from sqlmodel import Session

from arachne.errors import SetupError, Unavailable

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5
# One long snapshot keeps dead rows alive and slows claims 15-fold, so no transaction may linger.
SESSION_SETTINGS = "SET idle_in_transaction_session_timeout = '30s'; SET timezone = 'UTC'"
TRANSACTION_TIMEOUT = "SET transaction_timeout = '60s'"  # PostgreSQL 17 and later
_ATTEMPTS = 4


@dataclass(frozen=True)
class Transaction:
    """An open transaction and what runs once it has committed."""

    session: Session
    after_commit: list[Callable[[], object]] = field(default_factory=list)

    def run_after_commit(self) -> None:
        """Run what waited for the commit; a failing callback is logged, since the commit stands."""
        for callback in self.after_commit:
            try:
                callback()
            except Exception:
                log.exception("after-commit callback failed; the reconciler will catch up")


class Database:
    """A pooled engine for threads."""

    def __init__(self, url: str, *, pool_size: int = 8) -> None:
        self.url = driver_url(url)
        self.engine: Engine = create_engine(self.url, pool_size=pool_size, max_overflow=0, **_POOL)
        event.listen(self.engine, "connect", _prepare_connection)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """One transaction, committed at the end and rolled back on any exception.

        Raises:
            Unavailable: the database can't be reached.
        """
        with unavailable_when_down(), Session(self.engine, expire_on_commit=False) as session, session.begin():
            transaction = Transaction(session)
            yield transaction
        transaction.run_after_commit()

    def run(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`work` in a transaction of its own, again from the start after a deadlock or serialization failure."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self.transaction() as transaction:
                    return work(transaction, *args, **kwargs)
            except DBAPIError as error:
                if attempt == _ATTEMPTS or not is_transient_conflict(error):
                    raise
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Close every pooled connection."""
        self.engine.dispose()


class AsyncDatabase:
    """A pooled engine for one event loop."""

    def __init__(self, url: str, *, pool_size: int = 16) -> None:
        self.url = driver_url(url)
        self.engine: AsyncEngine = create_async_engine(
            self.url, pool_size=pool_size, max_overflow=0, pool_timeout=10, **_POOL
        )
        event.listen(self.engine.sync_engine, "connect", _prepare_connection)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        """A session in a transaction, committed at the end and rolled back on any exception.

        Raises:
            Unavailable: the database can't be reached.
        """
        with unavailable_when_down():
            async with self._new_session() as session, session.begin():
                yield session

    def _new_session(self) -> AsyncSession:
        return AsyncSession(self.engine, expire_on_commit=False, sync_session_class=Session)

    async def run(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`work` in a transaction of its own, again from the start after a deadlock or serialization failure."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                async with self.session() as session:
                    callbacks: list[Callable[[], object]] = []
                    result = await session.run_sync(
                        lambda sync, after=callbacks: work(Transaction(sync, after), *args, **kwargs)  # type: ignore[misc]
                    )
            except DBAPIError as error:
                if attempt == _ATTEMPTS or not is_transient_conflict(error):
                    raise
            else:
                Transaction(Session(), callbacks).run_after_commit()
                return result
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Close every pooled connection."""
        await self.engine.dispose()


_POOL = {"pool_pre_ping": True, "pool_recycle": 1800, "connect_args": {"connect_timeout": CONNECT_TIMEOUT_S}}


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


def is_transient_conflict(error: DBAPIError) -> bool:
    """Whether the transaction lost against another one and will pass when run again."""
    return isinstance(error.orig, DeadlockDetected | SerializationFailure)


@contextmanager
def unavailable_when_down() -> Iterator[None]:
    """Connection losses and pool exhaustion become `Unavailable`; conflicts and our own faults pass through."""
    try:
        yield
    except PoolTimeout as error:
        raise Unavailable("The database is busy; try again in a moment.", retry_after_s=2) from error
    except (OperationalError, InterfaceError) as error:
        if is_transient_conflict(error):
            raise
        raise Unavailable("The database can't be reached; try again in a moment.", retry_after_s=5) from error


def _prepare_connection(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    with_timeout = connection.info.server_version >= 170_000
    cursor = connection.cursor()
    cursor.execute(SESSION_SETTINGS)
    if with_timeout:
        cursor.execute(TRANSACTION_TIMEOUT)
    cursor.close()
    connection.commit()
