"""Calls that are cancelled, left or overtaken by the end of their client: no task, file or connection stays open."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from arachne.client import AsyncClient, ClientError, Extracted
from tests.client.conftest import NewClient
from tests.client.test_waiting_ways import seen
from tests.client.wire import Wire
from tests.http.pictures import png

AHEAD = 100  # results that are kept for whoever takes them
LARGE_BYTES = 64 * 1024 * 1024  # more than the buffers on the way hold


class Stalled:
    """A server that reads the beginning of a request and nothing more."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.left = asyncio.Event()
        self._release = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until `release`."""
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(4096)
        self.asked.set()
        await self._release.wait()
        try:
            while await reader.read(1024 * 1024):
                pass
        except ConnectionError:
            pass
        writer.transport.abort()
        self.left.set()

    def release(self) -> None:
        """Read on."""
        self._release.set()


@pytest.fixture
async def stalled() -> AsyncIterator[tuple[Stalled, AsyncClient]]:
    """The server, and a client of it."""
    service = Stalled()
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0, limit=4096)
    client = AsyncClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", token="t")
    yield service, client
    await client.close()
    service.release()
    await service.left.wait()
    server.close()


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file that is long on its way."""
    path = tmp_path / "large.png"
    with path.open("wb") as file:
        file.truncate(LARGE_BYTES)
    return path


def tasks() -> set[str]:
    """The client's own tasks."""
    return {repr(task) for task in asyncio.all_tasks() if "arachne/client/" in repr(task)}


def is_open(path: Path) -> bool:
    """Whether this process has the file open."""
    found = Path("/proc/self/fd")
    return any(os.path.realpath(one) == str(path) for one in found.iterdir())


async def test_an_upload_that_is_cancelled_closes_its_file(stalled: tuple[Stalled, AsyncClient], large: Path) -> None:
    """At once, whenever garbage is collected."""
    service, client = stalled
    call = asyncio.create_task(client.extract([large]))
    await service.asked.wait()
    assert is_open(large)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert (call.cancelled(), is_open(large), tasks()) == (True, False, set())


async def test_an_iterator_that_is_left_ends_with_its_client(stalled: tuple[Stalled, AsyncClient], large: Path) -> None:
    """Also where nobody has closed it before."""
    service, client = stalled
    results = client.iter_results(["no/such/file.png", large])
    assert (await anext(results)).error is not None
    await service.asked.wait()
    await client.close()
    assert (is_open(large), tasks()) == (False, set())
    with pytest.raises(ClientError, match="closed"):
        await anext(results)


async def test_whoever_takes_results_is_told_that_the_client_was_closed(
    stalled: tuple[Stalled, AsyncClient], large: Path
) -> None:
    """Rather than waiting for ever; and so is whoever calls later."""
    service, client = stalled
    call = asyncio.create_task(client.extract([large]))
    await service.asked.wait()
    await client.close()
    for told in (call, client.call("GET", "/x")):
        with pytest.raises(ClientError, match="closed"):
            await told


@pytest.mark.parametrize("number", [AHEAD + 1, 3 * AHEAD])
async def test_a_closed_client_leaves_nobody_waiting_for_results_that_were_ready(number: int) -> None:
    """Where all of them were and the end was not, and where there were more to come."""
    client = AsyncClient("http://127.0.0.1:9", token="t")
    results = client.iter_results(["no/such/file.png"] * number)
    await anext(results)
    for _ in range(10):
        await asyncio.sleep(0)
    await client.close()
    with pytest.raises(ClientError, match="closed"):
        async with asyncio.timeout(60):
            await anext(results)


@pytest.mark.usefixtures("live")
async def test_a_wait_that_is_left_closes_its_stream(new_client: NewClient, wire: Wire) -> None:
    """Of a job that nobody reads: by cancelling, and by closing the iterator."""
    client = new_client()
    call = asyncio.create_task(client.extract([png()]))
    await seen(wire, r"/events$")
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert tasks() == set()
    [job] = [one async for one in client.jobs()]

    async def take(images: list[Extracted]) -> None:
        async with aclosing(client.follow(job.job_id)) as following:
            images += [one async for one in following]

    images: list[Extracted] = []
    call = asyncio.create_task(take(images))
    await seen(wire, r"/events$", 2)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert (images, tasks()) == ([], set())
