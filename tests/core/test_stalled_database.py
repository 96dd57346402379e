"""A server that says nothing keeps nobody on an event loop waiting for ever."""

import pytest
from sqlalchemy import text

from arachne import database
from arachne.database import AsyncDatabase, Database, Transaction
from arachne.errors import Unavailable


def sleep(transaction: Transaction) -> None:
    transaction.session.execute(text("SELECT pg_sleep(600)"))


async def test_a_transaction_that_hears_nothing_is_given_up(
    async_database: AsyncDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one goes on at once, on as many connections as before."""
    monkeypatch.setattr(database, "STALL_S", 0.3)
    for _ in range(3):
        with pytest.raises(Unavailable, match="doesn't answer"):
            await async_database.run(sleep)
    monkeypatch.setattr(database, "STALL_S", 60.0)
    assert await async_database.run(lambda tx: tx.session.scalar(text("SELECT 7"))) == 7
    assert async_database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]


async def test_a_timeout_of_the_works_own_stays_what_it_is(async_database: AsyncDatabase) -> None:
    def fail(_: Transaction) -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await async_database.run(fail)


@pytest.mark.parametrize(
    ("condition", "told"),
    [("disk_full", "disk is full"), ("out_of_memory", "out of memory"), ("too_many_connections", "connections")],
)
def test_what_the_server_lacks_is_told_by_its_name(database: Database, condition: str, told: str) -> None:
    """Whoever reads of a full disk doesn't look for a broken network."""
    failing = text(f"DO $$ BEGIN RAISE 'x' USING ERRCODE = '{condition}'; END $$")
    with pytest.raises(Unavailable, match=told):
        database.run(lambda transaction: transaction.session.execute(failing))
