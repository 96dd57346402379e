"""What comes before a request is one: broken framing and heads that never end."""

import asyncio
import json
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from starlette.requests import Request
from starlette.responses import Response

from arachne.database import AsyncDatabase
from arachne.http import bodies
from arachne.http.parts import Parts
from arachne.http.protocol import HttpProtocol
from arachne.http.routes import health
from arachne.settings import Settings
from tests.http.test_server import serve, status


@pytest.mark.parametrize(
    "head",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"POST /api/extract/image HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/extract/image HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /api/extract/image HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    ],
)
async def test_broken_framing_is_a_problem_with_a_request_id(
    head: bytes, settings: Settings, async_database: AsyncDatabase
) -> None:
    """Also where no request could be made of the bytes, the answer has the form of every other error."""
    async with serve(settings, async_database) as listening:
        answer = await listening.exchange(head)
    assert status(answer) == 400
    headers, body = answer.split(b"\r\n\r\n", 1)
    problem = json.loads(body)
    assert problem["code"] == "malformed_request"
    assert f"x-request-id: {problem['request_id']}".lower().encode() in headers.lower()
    assert b"application/problem+json" in headers
    assert b"x-frame-options: deny" in headers.lower()


@pytest.mark.parametrize(
    "head",
    [
        b"POST /api/auth/token HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /api/auth/token HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\nContent-Length: 0\r\n\r\n",
        b"POST /api/auth/token HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
async def test_a_request_with_two_ends_is_refused_and_nothing_after_it_is_served(
    head: bytes, settings: Settings, async_database: AsyncDatabase
) -> None:
    """A proxy that goes by the other length would take what follows for part of it (RFC 9112, section 6.1)."""
    smuggled = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    async with serve(settings, async_database) as listening:
        answer = await listening.exchange(head + b"0\r\n\r\n" + smuggled)
    assert status(answer) == 400
    headers, body = answer.split(b"\r\n\r\n", 1)
    assert json.loads(body)["code"] == "malformed_request"
    assert b"connection: close" in headers.lower()
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("start", [b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: "])
async def test_a_head_that_never_ends_is_cut(
    start: bytes, settings: Settings, async_database: AsyncDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that sends no whole head in time is closed without a word."""
    monkeypatch.setattr(HttpProtocol, "head_timeout_s", 0.05)
    async with serve(settings, async_database) as listening:
        assert await listening.exchange(start) == b""


async def test_the_clock_runs_anew_for_each_head(
    settings: Settings, async_database: AsyncDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an answered request, a second head that never ends is cut too, and an idle connection is not."""
    async with serve(settings, async_database) as listening:
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        monkeypatch.setattr(HttpProtocol, "head_timeout_s", 0.05)
        writer.write(b"GET /he")
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()


async def test_a_small_body_that_trickles_is_not_waited_for(
    settings: Settings, async_database: AsyncDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token endpoint is open to all: each byte in time doesn't make the whole in time."""
    monkeypatch.setattr(bodies, "SMALL_TOTAL_S", 0.2)
    head = b"POST /api/auth/token HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    async with serve(settings, async_database) as listening:
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        writer.write(head + b"Content-Length: 9999\r\n\r\n")
        answer = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
        async with asyncio.timeout(20):
            while not answer.done():
                writer.write(b"a")
                await asyncio.sleep(0.01)
        assert status(await answer) == 400
        writer.close()


async def test_connections_beyond_the_limit_are_told_so_and_the_others_go_on(
    settings: Settings, async_database: AsyncDatabase
) -> None:
    """Idle ones count, too; what closes makes room."""
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    async with serve(settings.model_copy(update={"max_connections": 3}), async_database) as listening:
        held = [await asyncio.open_connection("127.0.0.1", listening.port) for _ in range(3)]
        await until(lambda: len(listening.server.server_state.connections) == 3)
        answer = await listening.exchange(request)
        headers, body = answer.split(b"\r\n\r\n", 1)
        assert (status(answer), json.loads(body)["code"]) == (503, "unavailable")
        assert b"retry-after: 5" in headers.lower()
        reader, writer = held[0]
        writer.write(request)
        assert status(await reader.read()) == 200
        writer.close()
        await until(lambda: len(listening.server.server_state.connections) == 2)
        assert status(await listening.exchange(request)) == 200
        for _, left in held[1:]:
            left.close()


async def test_far_too_many_connections_are_dropped(
    settings: Settings, async_database: AsyncDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arachne.http.protocol.SPARE_CONNECTIONS", 0)
    async with serve(settings.model_copy(update={"max_connections": 1}), async_database) as listening:
        _, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        await until(lambda: len(listening.server.server_state.connections) == 1)
        assert await listening.exchange() == b""
        writer.close()


@pytest.mark.parametrize("rest", [b"", b"Connection: close\r\n"])
async def test_a_reader_that_takes_nothing_is_let_go(
    rest: bytes, settings: Settings, async_database: AsyncDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer larger than all buffers is had whole by whoever reads on, and cut for whoever does not."""
    size = 20_000_000

    async def show_much(request: Request, parts: Parts) -> Response:
        return Response(b"x" * size)

    operations = health.RESOURCES[0].operations
    monkeypatch.setitem(operations, "GET", replace(operations["GET"], endpoint=show_much))
    async with serve(settings, async_database) as listening:
        head = b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + rest + b"\r\n"
        stuck, patient = [await open_slowly(listening.port, head) for _ in range(2)]
        connections = listening.server.server_state.connections
        await until(lambda: len(connections) == 2 and all(one.transport.get_write_buffer_size() for one in connections))
        assert all(one._reader_timer is not None for one in connections)
        for one in connections:  # as if time had passed, and a little had been taken
            one._check_reader(one.transport.get_write_buffer_size() + 1)
        assert await asyncio.to_thread(read_all, patient, size) >= size
        [left] = [one for one in connections if one.transport.get_write_buffer_size()]
        left._check_reader(left.transport.get_write_buffer_size())
        assert await asyncio.to_thread(read_all, stuck) < size
        patient.close()
        stuck.close()


async def open_slowly(port: int, head: bytes) -> socket.socket:
    """A connection that has asked and reads nothing by itself."""
    connection = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port), 20)
    connection.sendall(head)
    return connection


def read_all(connection: socket.socket, least: int | None = None) -> int:
    """How many bytes come to the end, or to `least`."""
    got = 0
    with suppress(ConnectionResetError):
        while (least is None or got < least) and (piece := connection.recv(1_000_000)):
            got += len(piece)
    return got


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110  # sockets have no event for this
            await asyncio.sleep(0.01)
