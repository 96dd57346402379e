"""The client without asyncio has all that the other has, and leaves nothing behind."""

import asyncio
import gc
import inspect
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from types import FunctionType
from typing import Any

import httpx2
import pytest

from arachne.client import AsyncClient, Client, ClientError
from arachne.client.portal import Portal
from arachne.client.synchronous_webhooks import Webhooks
from arachne.client.webhook_endpoints import AsyncWebhooks
from tests.client.played import Played


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


PROGRAM = """
import os, httpx2
from arachne.client import Client, ClientError
from arachne.client.portal import Portal

async def count():
    try:
        for number in range(9):
            yield number
    finally:
        print("closed", flush=True)

def answer(request):
    return httpx2.Response(200, json={"ok": True})

client = Client("http://x", token="t", transport=httpx2.MockTransport(answer))
client.call("GET", "/x")
"""
LEFT_OPEN = PROGRAM + "numbers = client._portal.iterate(count()); next(numbers)"
FORKED = (
    PROGRAM
    + """
if (child := os.fork()) == 0:
    try:
        client.call("GET", "/x")
    except ClientError as error:
        print(error.message)
    with Client("http://x", token="t", transport=httpx2.MockTransport(answer)) as another:
        print(another.call("GET", "/x")["ok"])
    client.close()
else:
    os.waitpid(child, 0)
    print(client.call("GET", "/x")["ok"])
"""
)


def run(program: str) -> str:
    """What a program prints that comes to its end, by itself and without complaints."""
    line = [sys.executable, "-W", "ignore:.*fork.*:DeprecationWarning", "-c", program]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.processes
def test_a_client_that_is_never_closed_keeps_no_program_from_ending() -> None:
    """Nor does an iterator that somebody left, which is closed at the end."""
    assert run(PROGRAM) == ""
    assert run(LEFT_OPEN) == "closed\n"


@pytest.mark.processes
def test_a_client_is_of_one_process() -> None:
    """In a forked one, where there is no loop, it says so rather than waiting for ever; its parent goes on."""
    told, fresh, parent = run(FORKED).splitlines()
    assert ("forked" in told, fresh, parent) == (True, "True", "True")


def test_a_client_that_nobody_has_any_more_ends_its_thread() -> None:
    before = set(threading.enumerate())
    client = Client("http://x", token="t", transport=httpx2.MockTransport(Played()))
    client.call("GET", "/x")
    assert set(threading.enumerate()) != before
    del client
    gc.collect()
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), SystemExit(3), ValueError("no")])
def test_what_a_listener_raises_comes_to_the_caller(ending: BaseException) -> None:
    """However strong it is, the client can be used on."""

    async def raise_within() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    async def fail() -> None:
        raise ending

    with Client("http://x", token="t", transport=httpx2.MockTransport(Played())) as arachne:
        with pytest.raises((type(ending), ExceptionGroup)):
            arachne._portal.run(raise_within)
        assert arachne.call("GET", "/x")["ok"]


def test_a_listener_can_not_wait_for_its_own_client() -> None:
    """Which would be for ever."""
    with Client("http://x", token="t", transport=httpx2.MockTransport(Played())) as arachne:

        async def listen() -> None:
            arachne.call("GET", "/x")

        with pytest.raises(ClientError, match="on_progress"):
            arachne._portal.run(listen)


@pytest.mark.parametrize("by_program", [False, True])
def test_threads_that_wait_are_told_when_another_closes_the_client(by_program: bool) -> None:
    """Those who take an iterator's members as well; also where it is the program that ends."""
    portal, begun = Portal(), [Event(), Event()]

    async def wait() -> None:
        begun[0].set()
        await asyncio.Event().wait()

    async def stream() -> AsyncIterator[int]:
        begun[1].set()
        await asyncio.Event().wait()
        yield 1

    with ThreadPoolExecutor(2) as threads:
        told = [threads.submit(portal.run, wait), threads.submit(lambda: next(portal.iterate(stream())))]
        for one in begun:
            assert one.wait(60)
        if by_program:
            assert portal._finalizer is not None
            portal._finalizer()
        else:
            portal.close(nothing)
        for waiting in told:
            with pytest.raises(ClientError, match="closed"):
                waiting.result(60)
        with pytest.raises(ClientError, match="closed"):
            portal.run(nothing)


@pytest.mark.parametrize("options", [{"uploads": 0}, {"uploads": -1}, {"max_wait_s": -1}, {"max_wait_s": float("nan")}])
def test_numbers_with_which_nothing_would_ever_be_sent(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="uploads"):
        Client("http://x", token="t", **options)
