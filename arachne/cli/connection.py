"""A transaction on the schema of record of the running service, for commands that work on it directly."""

import os
import pwd
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer.main
from sqlmodel import Session

from arachne.audit import Actor, act_as
from arachne.database import Database
from arachne.embedded.instance import attach
from arachne.settings import Settings


@contextmanager
def session_on(settings: Settings) -> Iterator[Session]:
    """A session in a transaction, committed at the end; what is done in it is on record as this operator's.

    Raises:
        SetupError: nothing runs on these settings.
        Unavailable: the database can't be reached.
    """
    with database_on(settings) as database, database.transaction() as transaction:
        act_as(transaction.session, operator())
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


def operator() -> Actor:
    """Whoever runs this command: the user the system knows, and the command without what it was given."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return Actor("operator", os_user=user, command=_command())


def _command() -> str:
    """The words that name the command; what follows them may be a secret."""
    from arachne.cli import app

    named, command = ["arachne"], typer.main.get_command(app)
    for word in sys.argv[1:]:
        found = getattr(command, "commands", {}).get(word)
        if found is None:
            break
        named.append(word)
        command = found
    return " ".join(named)
