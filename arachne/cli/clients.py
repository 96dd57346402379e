"""A running service as commands reach it: at ARACHNE_URL, with ARACHNE_TOKEN or with client credentials."""

from collections.abc import Iterator
from contextlib import contextmanager

from arachne.client import Client, ClientSettings
from arachne.errors import AccountUnknown, InsufficientScope, InvalidToken, SetupError, UnexpectedAnswer, Unreachable

MAX_WAIT_S = 5.0  # somebody sits there


@contextmanager
def open_client(settings: ClientSettings | None = None) -> Iterator[Client]:
    """The service, by the environment's settings where none are given.

    Raises:
        SetupError: there is nothing to sign in with, or the URL is none; or in the block, as `access`.
    """
    with access(), Client(settings=settings or ClientSettings.load(), max_wait_s=MAX_WAIT_S) as client:
        yield client


@contextmanager
def access() -> Iterator[None]:
    """A block in which a service that isn't there, or doesn't let this client in, is a fault of the set-up.

    Raises:
        SetupError: it was so: another try changes nothing before that is mended.
    """
    try:
        yield
    except (InvalidToken, InsufficientScope, AccountUnknown) as error:
        raise SetupError(f"{error.message} ({error.code})") from error
    except (Unreachable, UnexpectedAnswer) as error:
        raise SetupError(error.message) from error
