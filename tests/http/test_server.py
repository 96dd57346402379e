"""The server itself, over a real socket: requests cut off, oversized, odd; and an orderly stop."""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from arachne import tracing
from arachne.database import AsyncDatabase
from arachne.http.app import create_app
from arachne.http.server import DrainingServer, configure
from arachne.settings import Settings
from tests.http.conftest import Service
from tests.http.pictures import png

Send = Callable[[bytes], "asyncio.Future[bytes]"]


class Listening:
    """A server on a free port."""

    def __init__(self, service: Service, server: DrainingServer, port: int) -> None:
        self.service, self.server, self.port = service, server, port

    async def exchange(self, *chunks: bytes, half_close: bool = False, pause_s: float = 0.0) -> bytes:
        """All that comes back for these bytes on one connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for chunk in chunks:
            writer.write(chunk)
            await asyncio.sleep(pause_s)
        if half_close:
            writer.write_eof()
        answer = bytearray()
        with suppress(ConnectionResetError):
            async with asyncio.timeout(20):
                while piece := await reader.read(65_536):
                    answer += piece
        writer.close()
        return bytes(answer)


@pytest.fixture
async def listening(settings: Settings, async_database: AsyncDatabase) -> AsyncIterator[Listening]:
    """The server with small limits and the account `acme`."""
    async with serve(settings.model_copy(update={"max_request_bytes": 50_000}), async_database) as running:
        await running.service.account()
        yield running


@asynccontextmanager
async def serve(settings: Settings, database: AsyncDatabase) -> AsyncIterator[Listening]:
    app = create_app(settings)
    config = configure(app, settings.model_copy(update={"port": 0}))
    server = DrainingServer(config, app)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:  # noqa: ASYNC110  # it has no event for this
            await asyncio.sleep(0.01)
        service = Service(app, None, settings, database)  # type: ignore[arg-type]  # sockets are spoken to, no client
        try:
            yield Listening(service, server, listener.getsockname()[1])
        finally:
            server.handle_exit(signal.SIGTERM, None)
            server._captured_signals.clear()  # it would send them to this process again
            await task


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def head(listening: Listening, method: str = "POST", path: str = "/api/extract/image", **headers: str) -> bytes:
    lines = {"Host": "x", "Connection": "close", **(await listening.service.headers()), **headers}
    return f"{method} {path} HTTP/1.1\r\n".encode() + b"".join(
        f"{name}: {value}\r\n".encode() for name, value in lines.items()
    ) + b"\r\n"  # fmt: skip


async def test_a_chunked_upload_in_pieces_is_accepted(listening: Listening) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n' + png() + b"\r\n--x--\r\n"
    start = await head(listening, **{"Content-Type": "multipart/form-data; boundary=x", "Transfer-Encoding": "chunked"})
    pieces = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (body[:5], body[5:90], body[90:])]
    answer = await listening.exchange(start, *pieces, b"0\r\n\r\n", pause_s=0.02)
    assert status(answer) == 202, answer


async def test_too_large_by_length_is_told_before_the_body_comes(listening: Listening) -> None:
    kind = {"Content-Type": "multipart/form-data; boundary=x", "Content-Length": "60000"}
    answer = await listening.exchange(await head(listening, **kind))
    assert status(answer) == 413
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["code"] == "request_too_large"


async def test_expect_100_continue_is_not_told_to_go_on_where_it_would_be_refused(listening: Listening) -> None:
    kind = {"Content-Type": "multipart/form-data; boundary=x", "Content-Length": "60000", "Expect": "100-continue"}
    answer = await listening.exchange(await head(listening, **kind))
    assert status(answer) == 413


async def test_too_large_while_streaming_is_413(listening: Listening) -> None:
    kind = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    start = await head(listening, path="/api/webhooks", **kind)
    piece = b"ffff\r\n" + b" " * 0xFFFF + b"\r\n"
    answer = await listening.exchange(start, *[piece] * 20)
    assert status(answer) == 413


async def test_a_refusal_reaches_a_client_that_is_still_sending(listening: Listening) -> None:
    body = b"x" * 3_000_000
    kind = {"Content-Type": "multipart/form-data; boundary=x", "Content-Length": str(len(body))}
    start = await head(listening, **(kind | {"Authorization": "Bearer nonsense"}))
    answer = await listening.exchange(start, *(body[at : at + 100_000] for at in range(0, len(body), 100_000)))
    assert status(answer) == 401
    assert answer.endswith(b"}")


async def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind(listening: Listening) -> None:
    kind = {"Content-Type": "multipart/form-data; boundary=x", "Content-Length": "5000", "Idempotency-Key": "k"}
    answer = await listening.exchange(await head(listening, **kind), b"--x\r\n", half_close=True)
    assert answer == b""
    for _ in range(200):
        rows = await listening.service.count("idempotency_key")
        if rows == 0:
            break
        await asyncio.sleep(0.02)
    assert rows == 0
    assert await listening.service.count("job") == 0


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 300_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_4xx_or_cut_off(listening: Listening, raw: bytes) -> None:
    answer = await listening.exchange(raw, half_close=True)
    assert answer == b"" or 400 <= status(answer) < 500


async def test_stopping_does_not_wait_for_long_polls(settings: Settings, async_database: AsyncDatabase) -> None:
    loop = asyncio.get_running_loop()
    async with serve(settings, async_database) as running:
        await running.service.account()
        form = (
            b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n' + png() + b"\r\n--x--\r\n"
        )
        kind = {
            "Content-Type": "multipart/form-data; boundary=x",
            "Content-Length": str(len(form)),
            "Prefer": "wait=60",
        }
        waiting = asyncio.create_task(running.exchange(await head(running, **kind), form))
        while not await running.service.count("job"):  # noqa: ASYNC110  # the database has none either
            await asyncio.sleep(0.02)
        began = loop.time()
    assert loop.time() - began < 10
    assert status(await waiting) == 202


async def test_the_last_spans_are_sent_before_the_process_ends(
    settings: Settings, async_database: AsyncDatabase
) -> None:
    """Uvicorn ends it by the signal it got, after which nothing of ours runs."""
    exporter = InMemorySpanExporter()
    with tracing.exporting(exporter, "api"):
        async with serve(settings, async_database) as running:
            answer = await running.exchange(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert status(answer) == 200
        sent = exporter.get_finished_spans()
    assert [span.name for span in sent] == ["request"]
