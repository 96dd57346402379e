"""Alembic migrations of the schema of record, and the partitions of its logs."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from arachne.database import QUIET, driver_url

HEAD = "head"


def upgrade(database_url: str, revision: str = HEAD) -> None:
    """Bring the schema to `revision`. Several processes may call it at once: one migrates, the others wait."""
    command.upgrade(alembic_config(database_url), revision)


def downgrade(database_url: str, revision: str) -> None:
    """Take the schema back to `revision` (`base` removes it)."""
    command.downgrade(alembic_config(database_url), revision)


def is_current(database_url: str) -> bool:
    """Whether the schema is at the newest revision."""
    engine = create_engine(driver_url(database_url), **QUIET)
    try:
        with engine.connect() as connection:
            found = MigrationContext.configure(connection).get_current_heads()
    finally:
        engine.dispose()
    return set(found) == set(ScriptDirectory.from_config(alembic_config(database_url)).get_heads())


def alembic_config(database_url: str) -> Config:
    """Alembic's configuration, with no ini file: the scripts travel inside the package."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["url"] = driver_url(database_url)
    return config
