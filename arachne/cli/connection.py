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
    url = attach(settings, needs=["database_url"]).database_url
    assert url
    database = Database(url, pool_size=1)
    try:
        with database.transaction() as transaction:
            yield transaction.session
    finally:
        database.close()
