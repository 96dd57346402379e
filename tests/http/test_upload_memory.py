"""What uploads cost the API process in memory, as the kernel counts it."""

import asyncio
import json
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from arachne.settings import Settings
from tests.http.conftest import SECRET_KEY, Service
from tests.http.pictures import png

pytestmark = pytest.mark.processes
MIB = 1024 * 1024
PATIENCE_S = 120
UPLOADS, SIZE_BYTES = 20, 20 * MIB
HEAD = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
END = b"\r\n--x--\r\n"
KIND = {"Content-Type": "multipart/form-data; boundary=x"}
SERVE = """
import json, socket, sys
from arachne.http.app import create_app
from arachne.http.server import DrainingServer, configure, limit_arenas
from arachne.settings import Settings
settings = Settings.load(**json.loads(sys.stdin.read()))
limit_arenas()
app = create_app(settings)
DrainingServer(configure(app, settings), app).run(sockets=[socket.socket(fileno=int(sys.argv[1]))])
"""


@contextmanager
def api_process(settings: Settings) -> Iterator[tuple[str, int]]:
    """URL and pid of the API in a process of its own."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        command = [sys.executable, "-c", SERVE, str(listener.fileno())]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listener.fileno()])
        assert process.stdin is not None
        with process.stdin as told:
            chosen = settings.model_dump(mode="json", exclude_defaults=True) | {"secret_key": SECRET_KEY}
            told.write(json.dumps(chosen).encode())
        port = listener.getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.kill()
        process.wait()


async def body(number: int, size_bytes: int, crowd: asyncio.Barrier) -> AsyncIterator[bytes]:
    """A form with an image of so many bytes; its last piece goes out when all others have come so far."""
    image, tail = png((number, 1, 1)), bytes(64 * 1024)
    yield HEAD + image
    left = size_bytes - len(image)
    while left > len(tail):
        left -= len(tail)
        yield tail
    await crowd.wait()
    yield tail[:left] + END


async def upload(client: httpx.AsyncClient, number: int, size_bytes: int, crowd: asyncio.Barrier) -> int:
    length = str(len(HEAD) + size_bytes + len(END))
    answer = await client.post(
        "/api/extract/image", content=body(number, size_bytes, crowd), headers=KIND | {"Content-Length": length}
    )
    return answer.status_code


def peak_bytes(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


async def test_memory_grows_far_less_than_what_is_uploaded_at_once(service: Service) -> None:
    """With twenty images of 20 MiB under way together the process grows by no more than eight of them."""
    rate = "1000000/minute"
    settings = service.settings.model_copy(update={"vision_rate_limit": rate, "image_rate_limit": rate})
    with api_process(settings) as (url, pid):
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S, trust_env=False) as client:
            client.headers.update(await service.headers())
            assert await upload(client, 99, 100_000, asyncio.Barrier(1)) == 202  # what is loaded once is loaded now
            before, crowd = peak_bytes(pid), asyncio.Barrier(UPLOADS)
            answers = await asyncio.gather(*(upload(client, n, SIZE_BYTES, crowd) for n in range(UPLOADS)))
            assert answers == [202] * UPLOADS
            assert peak_bytes(pid) - before < 8 * SIZE_BYTES
