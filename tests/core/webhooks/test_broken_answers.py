"""Receivers whose answers break after their head: the status decides, whatever comes behind it."""

import asyncio
import socket
import struct
from typing import TYPE_CHECKING

import pytest

from arachne.webhooks.delivery import DeliveryEngine

if TYPE_CHECKING:
    from .conftest import World

BROKEN = {
    "204 with a body": b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello",
    "204 with a body, told to close": b"HTTP/1.1 204 No Content\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
    "more than promised": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhello and more",
    "less than promised": b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello",
    "wrong chunking": b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\nnot a size\r\nhello\r\n",
    "a chunk that ends early": b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhello",
    "behind an interim answer": b"HTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 204 Empty\r\nConnection: close\r\n\r\nhello",
    "nothing but a head": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
}


async def serve(answer: bytes, *, step: int, reset: bool) -> asyncio.Server:
    """A receiver that reads a request, answers in steps of so many bytes, and closes or resets the connection."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        for start in range(0, len(answer), step):
            writer.write(answer[start : start + step])
            await writer.drain()
            await asyncio.sleep(0)
        if reset:
            own: socket.socket = writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    return await asyncio.start_server(handle, "127.0.0.1", 0)


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize(("step", "reset"), [(10_000, False), (7, False), (10_000, True)])
async def test_a_head_that_says_2xx_is_a_success(
    world: "World", engine: DeliveryEngine, monkeypatch: pytest.MonkeyPatch, *, step: int, reset: bool, public: bool
) -> None:
    """Bodies where none may be, too long, too short, wrongly chunked or cut off take nothing from a 2xx."""
    monkeypatch.setattr("arachne.net.client.is_public", lambda _address: public)  # those whose answer is read
    servers = [await serve(answer, step=step, reset=reset and b"103" not in answer) for answer in BROKEN.values()]
    names = {}
    for name, server in zip(BROKEN, servers, strict=True):
        port = server.sockets[0].getsockname()[1]
        names[world.endpoint(f"http://127.0.0.1:{port}/").endpoint_id] = name
    world.finish_job()
    await engine.deliver_due()
    found = world.sql("SELECT endpoint_id, status_code, failure FROM webhook_attempt")
    failed = {names[str(endpoint)]: (status, failure) for endpoint, status, failure in found if failure is not None}
    # A reset may overtake what was written before it: only where the head was read does it decide.
    assert {name: told for name, told in failed.items() if not reset or told[0] is not None} == {}
    assert len(found) == len(BROKEN)
    for server in servers:
        server.close()
        await server.wait_closed()


async def test_a_head_that_says_5xx_is_a_failure_of_http(world: "World", engine: DeliveryEngine) -> None:
    """What follows a status that is no success changes nothing either."""
    server = await serve(BROKEN["less than promised"].replace(b"200", b"500"), step=10_000, reset=False)
    world.endpoint(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    world.finish_job()
    await engine.deliver_due()
    assert world.sql("SELECT status_code, failure FROM webhook_attempt") == [(500, "http")]
    server.close()
    await server.wait_closed()
