"""Alembic migrations of the schema of record, and the partitions of its logs."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine

from arachne.database import QUIET, driver_url
from arachne.migrations.fingerprint import (
    compute_fingerprint,
    find_differences,
    keep_fingerprint,
    read_fingerprint,
    refusal,
)

HEAD = "head"


def upgrade(database_url: str, revision: str = HEAD) -> None:
    """Bring the schema to `revision`. Several processes may call it at once: one migrates, the others wait.

    Raises:
        SetupError: the database is at the newest revision, but with other tables than this version's.
    """
    config = alembic_config(database_url)
    engine = create_engine(driver_url(database_url), **QUIET)
    try:
        with engine.connect() as connection:
            is_new = not MigrationContext.configure(connection).get_current_heads()
            if _is_newest(connection, config) and read_fingerprint(connection) not in {None, compute_fingerprint()}:
                raise refusal(next(iter(find_differences(connection)), "in a constraint"))
        command.upgrade(config, revision)
        with engine.begin() as connection:
            if _is_newest(connection, config) and read_fingerprint(connection) != compute_fingerprint():
                keep_fingerprint(connection, compare=not is_new)
    finally:
        engine.dispose()


def downgrade(database_url: str, revision: str) -> None:
    """Take the schema back to `revision` (`base` removes it)."""
    command.downgrade(alembic_config(database_url), revision)


def is_current(database_url: str) -> bool:
    """Whether the schema is at the newest revision."""
    engine = create_engine(driver_url(database_url), **QUIET)
    try:
        with engine.connect() as connection:
            return _is_newest(connection, alembic_config(database_url))
    finally:
        engine.dispose()


def _is_newest(connection: Connection, config: Config) -> bool:
    found = MigrationContext.configure(connection).get_current_heads()
    return set(found) == set(ScriptDirectory.from_config(config).get_heads())


def alembic_config(database_url: str) -> Config:
    """Alembic's configuration, with no ini file: the scripts travel inside the package."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["url"] = driver_url(database_url)
    return config
