"""Alembic's environment: online only, one migrator at a time by an advisory lock."""

from alembic import context
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from arachne.database import QUIET
from arachne.locks import Lock
from arachne.schemas.tables import metadata

LOCK_TIMEOUT = "5s"  # a migration that can't get its lock gives way instead of blocking everybody behind it


def run() -> None:
    """Run the migrations in one transaction."""
    engine = create_engine(context.config.attributes["url"], poolclass=NullPool, **QUIET)
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": int(Lock.MIGRATION)})
        connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT}'"))
        connection.commit()
        context.configure(connection=connection, target_metadata=metadata, compare_server_default=True)
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()


run()
