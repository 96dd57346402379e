"""A running service as commands reach it: at ARACHNE_URL, with ARACHNE_TOKEN or with client credentials."""

from collections.abc import Iterator
from contextlib import contextmanager

from arachne.client import Client, ClientSettings

MAX_WAIT_S = 5.0  # somebody sits there


@contextmanager
def open_client(settings: ClientSettings | None = None) -> Iterator[Client]:
    """The service, by the environment's settings where none are given.

    Raises:
        SetupError: there is nothing to sign in with, or the URL is none.
    """
    with Client(settings=settings or ClientSettings(), max_wait_s=MAX_WAIT_S) as client:
        yield client
