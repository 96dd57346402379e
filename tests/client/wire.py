"""A wire between a client and a server that can be cut, and that can hold back what a buffering proxy would."""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_REQUEST = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) (\S+) HTTP/1\.1\r\n")
_BLOCK_BYTES = 16 * 1024


class Passing:
    """One connection through the wire: the request line it is at, and how many bytes went each way since that."""

    def __init__(self, close: Callable[[], None]) -> None:
        self.request = ""
        self.sent_bytes = 0
        self.answered_bytes = 0
        self.close = close


class Wire:
    """Listens at `url` and passes everything on to another port, for as long as nothing cuts it.

    `watch` sees each connection after each of its blocks and may call `cut`. Where `holds` says so of a request line,
    its answer comes only when it is whole.
    """

    def __init__(self, target_url: str) -> None:
        self._port = urlsplit(target_url).port
        self._open: set[Passing] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.watch: Callable[[Passing], None] = lambda _: None
        self.holds: Callable[[str], bool] = lambda _: False
        self.requests: list[str] = []
        self.cuts = 0
        self.down_for = 0

    @property
    def url(self) -> str:
        """Where to connect to."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self, *, down_for: int = 0) -> None:
        """Reset all connections, and so many of those that come next."""
        self.cuts += 1
        self.down_for = down_for
        for one in list(self._open):
            one.close()

    def count(self, pattern: str) -> int:
        """How many requests had a line like this."""
        return sum(1 for one in self.requests if re.search(pattern, one))

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for one in list(self._open):
            one.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.down_for:
            self.down_for -= 1
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)

        def close() -> None:
            writer.transport.abort()
            far_writer.transport.abort()

        passing = Passing(close)
        self._open.add(passing)
        try:
            with suppress(OSError):
                await asyncio.gather(self._up(passing, reader, far_writer), self._down(passing, far_reader, writer))
        finally:
            self._open.discard(passing)
            self._tasks.discard(task)
            close()

    async def _up(self, passing: Passing, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while block := await reader.read(_BLOCK_BYTES):
            if found := _REQUEST.match(block):
                passing.request = f"{found[1].decode()} {found[2].decode()}"
                self.requests.append(passing.request)
                passing.sent_bytes = passing.answered_bytes = 0
            passing.sent_bytes += len(block)
            writer.write(block)
            await writer.drain()
            self.watch(passing)
        writer.write_eof()

    async def _down(self, passing: Passing, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held = bytearray()
        while block := await reader.read(_BLOCK_BYTES):
            if self.holds(passing.request):
                held += block
                continue
            passing.answered_bytes += len(block)
            writer.write(block)
            await writer.drain()
            self.watch(passing)
        writer.write(bytes(held))
        await writer.drain()
        writer.close()
