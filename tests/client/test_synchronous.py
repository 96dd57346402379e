"""The client without asyncio has all that the other has, and leaves nothing behind."""

import asyncio
import inspect
import signal
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import FunctionType

import httpx2
import pytest

from arachne.client import AsyncClient, Client, ClientError
from arachne.client.portal import Portal
from arachne.client.synchronous_webhooks import Webhooks
from arachne.client.webhook_endpoints import AsyncWebhooks
from tests.client.test_connection import Played


def methods(kind: type) -> dict[str, list[inspect.Parameter]]:
    """The parameters of each public method."""
    found = {name: value for name, value in vars(kind).items() if isinstance(value, FunctionType) and name[0] != "_"}
    return {name: list(inspect.signature(value).parameters.values()) for name, value in found.items()}


@pytest.mark.parametrize(("one", "other"), [(Client, AsyncClient), (Webhooks, AsyncWebhooks)])
def test_both_clients_have_the_same_methods(one: type, other: type) -> None:
    """By name, parameters and defaults."""
    assert methods(one) == methods(other)
    if one is Client:
        assert inspect.signature(Client) == inspect.signature(AsyncClient)


def test_no_thread_is_left_and_none_is_started_in_vain() -> None:
    before = set(threading.enumerate())
    transport = httpx2.MockTransport(Played())
    with Client("http://x", token="t", transport=transport) as arachne:
        assert set(threading.enumerate()) == before
        assert arachne.call("GET", "/x")["ok"]
        assert len(set(threading.enumerate()) - before) == 1
    assert set(threading.enumerate()) == before
    with pytest.raises(ClientError, match="closed"):
        arachne.call("GET", "/x")


def test_an_iterator_that_is_left_early_is_closed() -> None:
    """And the client can be used on."""
    page = {"data": [{"n": 1}, {"n": 2}], "next_cursor": None}
    played = Played(httpx2.Response(200, json=page))
    with Client("http://x", token="t", transport=httpx2.MockTransport(played)) as arachne:
        for row in arachne.every("/x"):
            assert row == {"n": 1}
            break
        assert arachne.call("GET", "/x")["ok"]


def test_an_iterator_that_is_interrupted_is_closed_and_says_that_it_was() -> None:
    """By Ctrl-C while it waits: what it waited for has ended before it is closed, however long that takes."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGUSR1, interrupt)
    main, portal, ended = threading.main_thread().ident, Portal(), []
    assert main is not None

    async def wait() -> AsyncIterator[int]:
        asyncio.get_running_loop().call_later(0.1, signal.pthread_kill, main, signal.SIGUSR1)
        try:
            await asyncio.Event().wait()
            yield 1
        finally:
            for _ in range(50):
                await asyncio.sleep(0)
            ended.append(True)

    try:
        with pytest.raises(KeyboardInterrupt):
            next(portal.iterate(wait()))
        assert ended == [True]
    finally:
        signal.signal(signal.SIGUSR1, former)
        portal.close(nothing)


async def nothing() -> None:
    """Do nothing."""


def test_threads_that_call_first_at_once_share_a_loop() -> None:
    """However many there are."""
    portal, start = Portal(), Barrier(8)

    async def loop() -> int:
        return id(asyncio.get_running_loop())

    def call(_: int) -> int:
        start.wait()
        return portal.run(loop)

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(call, range(8)))) == 1
    portal.close(nothing)
