"""Readiness is looked at once in a while however many ask, and knows what a database is good for."""

import asyncio

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import text

from arachne.database import Database, Transaction
from arachne.errors import SetupError, Unavailable
from arachne.http import readiness
from arachne.http.readiness import check_database, prove_writes
from arachne.migrations import alembic_config
from arachne.storage import Storage
from tests.http.conftest import Service


async def test_many_who_ask_cost_one_look(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, check = 0, Storage.check_async

    async def counted(self: Storage) -> None:
        nonlocal looks
        looks += 1
        await check(self)

    monkeypatch.setattr(Storage, "check_async", counted)
    monkeypatch.setattr(readiness, "KEPT_S", 60)
    answers = await asyncio.gather(*(service.client.get("/readyz") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert looks == 1
    monkeypatch.setattr(readiness, "KEPT_S", 0)
    await service.client.get("/readyz")
    assert looks == 2


async def test_a_part_that_never_answers_is_unavailable(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(_: Storage) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Storage, "check_async", hang)
    monkeypatch.setattr(readiness, "CHECK_TIMEOUT_S", 0.5)
    async with asyncio.timeout(20):
        ready = await service.client.get("/readyz")
    assert (ready.status_code, ready.json()["checks"]["storage"]) == (503, "unavailable")


async def test_a_schema_that_is_older_than_the_code_is_not_ready(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {
        script.revision for script in ScriptDirectory.from_config(alembic_config("postgresql://x/y")).walk_revisions()
    }
    monkeypatch.setattr(readiness, "_read_revisions", lambda _: (known | {"next"}, {"next"}))
    stale = await service.client.get("/readyz")
    assert (stale.status_code, stale.json()["checks"]["postgres"]) == (503, "unavailable")


def test_what_the_database_tells_is_judged(database: Database) -> None:
    def look(transaction: Transaction, *, read_only: bool = False, revision: str | None = None) -> None:
        if revision is not None:
            transaction.session.execute(text("UPDATE alembic_version SET version_num = :it"), {"it": revision})
        if read_only:
            transaction.session.execute(text("SET TRANSACTION READ ONLY"))
        try:
            check_database(transaction, {"a", "b"}, {"b"})
        finally:
            transaction.session.rollback()

    with pytest.raises(Unavailable, match="no writes"):
        database.run(look, read_only=True)
    with pytest.raises(SetupError, match="arachne migrate"):
        database.run(look, revision="a")
    database.run(look, revision="b")
    database.run(look, revision="newer")


def test_a_database_that_commits_but_has_no_room_is_unavailable(database: Database) -> None:
    """A row finds place where another was, also on a full disk; here the server may make no temporary file instead."""

    def without_room(transaction: Transaction) -> None:
        transaction.session.execute(text("SET LOCAL temp_file_limit = 0"))
        prove_writes(transaction)

    before = database.run(_logged)
    database.run(prove_writes)
    assert database.run(_logged) > before
    with pytest.raises(Unavailable):
        database.run(without_room)


def _logged(transaction: Transaction) -> int:
    """How far the log is on disk; other databases of the server add to it too."""
    return int(transaction.session.scalar(text("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn")))


async def test_a_database_that_can_not_be_written_makes_the_service_unready(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "_LOG", text("DO $$ BEGIN RAISE 'full' USING ERRCODE = 'disk_full'; END $$"))
    unready = await service.client.get("/readyz")
    assert (unready.status_code, unready.json()["checks"]["postgres"]) == (503, "unavailable")
