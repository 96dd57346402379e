"""A transaction on the schema of record of the running service, for commands that work on it directly."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlmodel import Session

from arachne.database import Database
from arachne.embedded.instance import attach
from arachne.settings import Settings


@contextmanager
def session_on(settings: Settings) -> Iterator[Session]:
    """A session in a transaction, committed at the end.

    Raises:
        SetupError: nothing runs on these settings.
        Unavailable: the database can't be reached.
    """
    with database_on(settings) as database, database.transaction() as transaction:
        yield transaction.session


@contextmanager
def database_on(settings: Settings) -> Iterator[Database]:
    """The database, for commands of several transactions.

    Raises:
        SetupError: nothing runs on these settings.
        Unavailable: the database can't be reached.
    """
    url = attach(settings, needs=["database_url"]).database_url
    assert url
    database = Database(url, pool_size=1)
    try:
        yield database
    finally:
        database.close()
