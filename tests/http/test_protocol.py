"""What comes before a request is one: broken framing and heads that never end."""

import asyncio
import json

import pytest

from arachne.database import AsyncDatabase
from arachne.http.protocol import HttpProtocol
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
