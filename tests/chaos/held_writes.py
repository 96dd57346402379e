"""Holds writers in the midst of their transactions, in PostgreSQL itself, so that harm can be done to them there."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg import sql

from arachne.database import plain_url

LOCKS = {"usage_entry": 471147, "image": 471148}
_HOLD = """
CREATE OR REPLACE FUNCTION hold_writer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_advisory_xact_lock_shared(TG_ARGV[0]::bigint); RETURN NEW; END $$;
CREATE TRIGGER hold_writer BEFORE {event} ON {table} FOR EACH ROW {when} EXECUTE FUNCTION hold_writer({lock})
"""
_HELD = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted ORDER BY pid"


@dataclass
class Gate:
    """Writers wait at it until it is opened."""

    connection: psycopg.Connection[tuple[int]]
    lock: int

    def held(self) -> list[int]:
        """Process ids, in PostgreSQL, of those that wait."""
        return [pid for (pid,) in self.connection.execute(_HELD, (self.lock,))]

    def open(self) -> None:
        """Let everybody through from now on."""
        self.connection.execute("SELECT pg_advisory_unlock_all()")

    def drop_connections(self) -> int:
        """Number of connections broken: those of all that wait."""
        return sum(bool(self.connection.execute("SELECT pg_terminate_backend(%s)", (pid,))) for pid in self.held())


@contextmanager
def hold_writes(database_url: str, table: str, event: LiteralString, when: LiteralString = "") -> Iterator[Gate]:
    """Whoever writes to the table so waits at the gate; at the end it is open, and gone."""
    lock = LOCKS[table]
    named = {"lock": sql.Literal(lock), "table": sql.Identifier(table), "event": sql.SQL(event), "when": sql.SQL(when)}
    with psycopg.connect(plain_url(database_url), autocommit=True) as connection:
        connection.execute("SET lock_timeout = '60s'")
        connection.execute("SELECT pg_advisory_lock(%s)", (lock,))
        connection.execute(sql.SQL(_HOLD).format(**named))
        gate = Gate(connection, lock)
        try:
            yield gate
        finally:
            gate.open()
            connection.execute(sql.SQL("DROP TRIGGER hold_writer ON {table}").format(**named))
