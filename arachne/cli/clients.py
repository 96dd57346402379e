"""A running service as commands reach it: at ARACHNE_URL, with ARACHNE_TOKEN or with client credentials."""

from collections.abc import Iterator
from contextlib import contextmanager

from arachne.client import Client, ClientSettings
from arachne.client.connection import Params
from arachne.errors import AccountUnknown, InsufficientScope, InvalidToken, SetupError, UnexpectedAnswer, Unreachable

MAX_WAIT_S = 5.0  # somebody sits there


class Answer(dict[str, object]):
    """An object that was answered. Where it lacks a member, it is no service of ours that answers."""

    def __missing__(self, name: str) -> object:
        raise SetupError(f"What answers has no {name!r}. Check that ARACHNE_URL is the service's.")

    def rows(self, name: str) -> "list[Answer]":
        """The objects in a list.

        Raises:
            SetupError: it is none of objects.
        """
        found = self[name]
        if not isinstance(found, list):
            raise SetupError(f"What answers has no list as {name!r}. Check that ARACHNE_URL is the service's.")
        return [_take(one) for one in found]


class Service(Client):
    """The client of commands, which print what is answered as it comes."""

    def call(self, method: str, path: str, *, json: object = None, params: Params | None = None) -> Answer:
        """As `Client.call`."""
        return Answer(super().call(method, path, json=json, params=params))

    def every(self, path: str, params: Params | None = None) -> Iterator[Answer]:
        """As `Client.every`."""
        return map(_take, super().every(path, params))


def _take(row: object) -> Answer:
    if not isinstance(row, dict):
        raise SetupError("What answers lists no objects. Check that ARACHNE_URL is the service's.")
    return Answer(row)


@contextmanager
def open_client(settings: ClientSettings | None = None) -> Iterator[Service]:
    """The service, by the environment's settings where none are given.

    Raises:
        SetupError: there is nothing to sign in with, or the URL is none; or in the block, as `access`.
    """
    with access(), Service(settings=settings or ClientSettings.load(), max_wait_s=MAX_WAIT_S) as client:
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
