"""A job's stream over a real socket: what it shows, where it goes on, when it ends, and whom it lets go."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, tzinfo
from typing import Self

import httpx
import pytest

from arachne.accounts import disable_account, disable_client
from arachne.database import AsyncDatabase
from arachne.http import event_stream
from arachne.settings import Settings
from arachne.standing import revoke_token
from arachne.tokens import read_token
from tests.http.conftest import Service
from tests.http.pictures import png
from tests.http.sending import MANY, ONE, send
from tests.http.test_server import Listening, serve
from tests.http.worker import Worker

JOBS = "/api/extract/image-jobs"
LIMIT_S = 20


@asynccontextmanager
async def served(settings: Settings, database: AsyncDatabase) -> AsyncIterator[tuple[Service, Listening]]:
    """A server on a real socket, a client of it, and the account `acme`."""
    async with serve(settings, database) as listening:
        url = f"http://127.0.0.1:{listening.port}"
        async with httpx.AsyncClient(base_url=url, timeout=LIMIT_S, trust_env=False) as client:
            service = Service(listening.service.app, client, settings, database)
            await service.account()
            yield service, listening


@pytest.fixture
async def live(settings: Settings, async_database: AsyncDatabase) -> AsyncIterator[Service]:
    """A service on a real socket."""
    async with served(settings, async_database) as (service, _):
        yield service


async def submit(service: Service, number: int = 1) -> str:
    files = [("files", (f"{n}.png", png((n, n, n)))) for n in range(number)]
    response = await send(service, MANY, files=files, data={"metadata": '{"order": "1"}'})
    assert response.status_code == 202, response.text
    return str(response.json()["job_id"])


@asynccontextmanager
async def opened(
    service: Service, job_id: str, *, token: str | None = None, **headers: str
) -> AsyncIterator[httpx.Response]:
    """The stream of a job, open."""
    token = token or await service.token()
    whole = {"Authorization": f"Bearer {token}"} | headers
    async with (
        asyncio.timeout(LIMIT_S),
        service.client.stream("GET", f"{JOBS}/{job_id}/events", headers=whole) as found,
    ):
        yield found


def parse(text: str) -> list[dict[str, str]]:
    """The events of a stream, as the standard says: blocks end with an empty line, comments are no events."""
    blocks = [block.split("\n") for block in text.split("\n\n")]
    found = [dict(line.split(": ", 1) for line in block if line and line[0] != ":") for block in blocks]
    return [block for block in found if block]


async def stored(service: Service, job_id: str) -> list[tuple[int, str, bytes]]:
    async with service.database.session() as session:
        connection = await session.connection()
        rows = await connection.exec_driver_sql(
            "SELECT sequence, type, body FROM webhook_message WHERE job_id = %s ORDER BY sequence", (job_id,)
        )
        return [tuple(row) for row in rows]


async def test_a_stream_tells_every_event_as_it_happens_and_ends(live: Service) -> None:
    """Type, number and body of each, bytes as they are signed; the first ones come before the last have happened."""
    worker = await Worker(live).start()
    job_id = await submit(live, 3)
    async with opened(live, job_id) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["cache-control"] == "no-store"
        text, parts = "", response.aiter_text()
        claimed = await worker.claim()
        while "job.started" not in text:
            text += await anext(parts)
        for image in claimed:
            await worker.finish(image, fails=image is claimed[1])
        async for part in parts:
            text += part
    events = parse(text)
    assert [event["event"] for event in events] == [
        "job.started", "image.completed", "image.failed", "image.completed", "job.partial",
    ]  # fmt: skip
    told = [(int(event["id"]), event["event"], event["data"].encode()) for event in events]
    assert told == await stored(live, job_id)
    last = json.loads(events[-1]["data"])
    assert last["data"]["sequence"] == 5
    assert last["data"]["metadata"] == {"order": "1"}


async def test_a_stream_goes_on_after_the_last_event_the_client_had(live: Service) -> None:
    """`Last-Event-ID` skips what was had; whoever had all is told by 204 not to come again; nonsense starts anew."""
    worker = await Worker(live).start()
    job_id = await submit(live, 20)
    await worker.read_all()
    numbers = {}
    for last in ("", "0", "20", "21", "nonsense", "-1"):
        async with opened(live, job_id, **{"Last-Event-ID": last}) as response:
            numbers[last] = [int(event["id"]) for event in parse((await response.aread()).decode())]
    assert numbers["20"] == [21, 22]
    assert numbers["21"] == [22]
    assert all(numbers[last] == list(range(1, 23)) for last in ("", "0", "nonsense", "-1"))
    async with opened(live, job_id, **{"Last-Event-ID": "22"}) as response:
        assert (response.status_code, await response.aread()) == (204, b"")


async def test_a_quiet_stream_says_that_it_lives(live: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments come where no event does, however often the job is looked at meanwhile."""
    monkeypatch.setattr(event_stream, "COMMENT_S", 0.2)
    job_id = await submit(live)
    watcher = live.app.starlette.state.parts.watcher
    async with opened(live, job_id) as response:
        parts = response.aiter_text()
        for _ in range(3):
            watcher.tell()
            assert await anext(parts) == ":\n\n"


class NearlyAnHourLater(datetime):
    """The time it will be shortly before a token that is made now and lives for an hour expires."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        """Then."""
        return super().now(tz) + timedelta(seconds=3599)


async def test_a_stream_ends_with_its_token(live: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the token expires the stream ends in good order, with the job unfinished."""
    job_id = await submit(live)
    token = await live.token(ttl_s=3600)
    monkeypatch.setattr(event_stream, "datetime", NearlyAnHourLater)
    async with opened(live, job_id, token=token) as response:
        assert (response.status_code, await response.aread()) == (200, b"")


async def test_whoever_leaves_frees_the_place(live: Service) -> None:
    """A stream, a poll and a held submission whose clients are gone wait no longer."""
    job_id = await submit(live)
    watcher, headers = live.app.starlette.state.parts.watcher, await live.headers()
    waits = [
        asyncio.create_task(live.client.get(f"{JOBS}/{job_id}/events", headers=headers)),
        asyncio.create_task(live.client.get(f"{JOBS}/{job_id}?wait=60", headers=headers)),
        asyncio.create_task(
            live.client.post(ONE, headers=headers | {"Prefer": "wait=60"}, files={"file": ("a.png", png((9, 9, 9)))})
        ),
    ]
    async with asyncio.timeout(LIMIT_S):
        while watcher.count < 3:  # noqa: ASYNC110  # only the watcher knows who waits
            await asyncio.sleep(0.01)
        for wait in waits:
            wait.cancel()
        while watcher.count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.gather(*waits, return_exceptions=True)


async def test_a_reader_that_takes_nothing_is_let_go(
    settings: Settings,
    async_database: AsyncDatabase,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With all buffers full its connection is dropped, whatever waits to be sent; others are not held up."""
    monkeypatch.setattr(event_stream, "SEND_S", 0.3)
    async with served(settings, async_database) as (live, listening):
        worker = await Worker(live).start()
        job_id = await submit(live)
        await worker.read_all()
        body = b'{"type":"image.completed","data":"%s"}' % (b"x" * 500_000)
        async with live.database.session() as session:
            await (await session.connection()).exec_driver_sql(
                "INSERT INTO webhook_message (message_id, account_id, job_id, type, sequence, body) "
                "SELECT 'msg_' || n, 'acc', %s, 'image.completed', n, %s FROM generate_series(100, 140) n",
                (job_id, body),
            )
            await (await session.connection()).exec_driver_sql(
                "UPDATE job SET sequence = 140 WHERE job_id = %s", (job_id,)
            )
        head = f"GET {JOBS}/{job_id}/events HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 99\r\n"
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(reader, ("127.0.0.1", listening.port))
            auth = f"Authorization: Bearer {await live.token()}\r\n\r\n"
            await loop.sock_sendall(reader, (head + auth).encode())
            watcher = live.app.starlette.state.parts.watcher
            async with asyncio.timeout(LIMIT_S):
                while not watcher.count:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                while watcher.count:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                rest = b""
                while part := await loop.sock_recv(reader, 1_000_000):
                    rest = part
        assert not rest.endswith(b"0\r\n\r\n")
        assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
        assert (await live.client.get("/healthz")).status_code == 200


async def test_stopping_ends_open_streams_in_good_order(settings: Settings, async_database: AsyncDatabase) -> None:
    """A stream that is open when the process is told to stop ends at once, with its end marked."""
    async with served(settings, async_database) as (live, listening):
        job_id = await submit(live)
        async with opened(live, job_id) as response:
            listening.server.handle_exit(15, None)
            listening.server._captured_signals.clear()
            assert await response.aread() == b""


async def test_head_answers_without_streaming(live: Service) -> None:
    """`HEAD` of a stream gives its headers and ends."""
    job_id = await submit(live)
    response = await live.client.head(f"{JOBS}/{job_id}/events", headers=await live.headers())
    assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


@pytest.mark.parametrize("act", ["token", "client", "account"])
async def test_a_stream_ends_soon_after_its_token_was_revoked(
    live: Service, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another process, or the command line, did it; a stream of another token goes on."""
    monkeypatch.setattr(live.app.starlette.state.parts.standing, "_tick_s", 0.05)
    job_id, account = await submit(live), await live.account("other")
    form = {"grant_type": "client_credentials", "client_id": account.client_id, "client_secret": account.client_secret}
    await live.execute(f"UPDATE job SET account_id = '{account.account_id}'")
    tokens = [(await live.client.post("/api/auth/token", data=form)).json()["access_token"] for _ in range(2)]
    jti = str(read_token(tokens[0]).claims["jti"])
    acts = {
        "token": lambda tx: revoke_token(tx.session, live.settings.base_url, jti),
        "client": lambda tx: disable_client(tx.session, account.client_id),
        "account": lambda tx: disable_account(tx.session, "other"),
    }
    async with opened(live, job_id, token=tokens[0]) as first, opened(live, job_id, token=tokens[1]) as second:
        assert (first.status_code, second.status_code) == (200, 200)
        await live.database.run(acts[act])
        assert await first.aread() == b""
        if act == "token":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await second.aread()
        else:
            assert await second.aread() == b""
