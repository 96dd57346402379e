"""`arachne migrate`: the schema of record brought up to date."""

import logging
from typing import Annotated

import typer

from arachne.cli.options import DataDir, load
from arachne.cli.output import say
from arachne.errors import ArachneError

log = logging.getLogger(__name__)


def register(app: typer.Typer) -> None:
    """Add this command to `app`."""
    app.command("migrate")(migrate)


def migrate(
    to: Annotated[str, typer.Option(help="Revision to reach; an older one with --down.")] = "head",
    down: Annotated[bool, typer.Option("--down", help="Go back to --to (`base` removes all tables and data).")] = False,
    data_dir: DataDir = None,
) -> None:
    """Bring the database's schema to the newest revision, or to another one."""
    from arachne import logs, migrations
    from arachne.database import unavailable_when_down
    from arachne.embedded.instance import attach

    settings = load(data_dir)
    logs.configure(settings.log_level, settings.log_format)
    url = attach(settings, needs=["database_url"]).database_url
    assert url
    if down:
        if to == "head":
            raise typer.BadParameter("--down needs the revision to go back to.", param_hint="--to")
        with unavailable_when_down():
            migrations.downgrade(url, to)
    else:
        prepare_schema(url, to)
    say(f"The schema is at {to}.")


def prepare_schema(database_url: str, revision: str = "head") -> None:
    """The schema is at `revision`, and at the newest one its logs have partitions for the next days.

    Partitions that can't be made are logged: rows find the default one, and maintenance makes them later.

    Raises:
        Unavailable: the database can't be reached.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from arachne import migrations
    from arachne.database import Database, unavailable_when_down
    from arachne.partitions import ensure_partitions

    with unavailable_when_down():
        migrations.upgrade(database_url, revision)
    if revision != "head":
        return
    database = Database(database_url, pool_size=1)
    try:
        database.run(ensure_partitions)
    except (ArachneError, SQLAlchemyError):
        log.warning("the logs' partitions are made later", exc_info=True)
    finally:
        database.close()
