"""Jobs are waited for in whatever way the line lets through; images are read only once the client waits that way."""

import asyncio

import pytest

from arachne.client.watching import Watcher, Way
from tests.client.conftest import NewClient
from tests.client.wire import Passing, Wire
from tests.http.conftest import Service
from tests.http.pictures import png
from tests.http.worker import Worker

NEVER_S = 3600.0  # until a client that hears nothing looks for itself
POLL = r"^GET /api/extract/image-jobs/job_\w+$"


async def seen(wire: Wire, pattern: str, times: int = 1) -> None:
    """Return once the wire saw such requests."""
    while wire.count(pattern) < times:  # noqa: ASYNC110  # the wire has no event for this
        await asyncio.sleep(0.02)


async def test_the_stream_is_resumed_where_it_was_cut(
    new_client: NewClient, wire: Wire, live: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first events; what happens meanwhile isn't lost, and no other way is needed."""
    worker = await Worker(live).start()
    client = new_client()
    monkeypatch.setattr(client, "_watcher", Watcher(client._connection, quiet_s=NEVER_S))
    call = asyncio.create_task(client.extract([png((1, 1, n)) for n in range(6)]))

    def watch(passing: Passing) -> None:
        if not wire.cuts and passing.request.endswith("/events") and passing.answered_bytes > 1500:
            wire.cut(down_for=1)

    wire.watch = watch
    await seen(wire, r"/events$")
    for image in await worker.claim():
        await worker.finish(image)
    found = await call
    assert all(image.result for image in found)
    assert wire.cuts == 1
    assert wire.count(r"/events$") >= 2
    assert wire.count(POLL) == 0
    assert client._watcher.way is Way.STREAM


async def test_events_that_are_held_back_give_way_to_long_polls(
    new_client: NewClient, wire: Wire, live: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a proxy that passes an answer on when it is whole; the client remembers."""
    worker = await Worker(live).start()
    client = new_client()
    monkeypatch.setattr(client, "_watcher", Watcher(client._connection, quiet_s=0.2))
    wire.holds = lambda request: request.endswith("/events")
    call = asyncio.create_task(client.extract([png((2, 2, n)) for n in range(3)]))
    await seen(wire, POLL)
    first, *others = await worker.claim()
    await worker.finish(first)
    await seen(wire, r"\?wait=")
    for image in others:
        await worker.finish(image)
    assert all(image.result for image in await call)
    assert client._watcher.way is Way.LONG_POLL


async def test_long_polls_that_fail_give_way_to_polls(
    new_client: NewClient, wire: Wire, live: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind something that cuts whatever takes long."""
    worker = await Worker(live).start()
    client = new_client()
    monkeypatch.setattr(client, "_watcher", Watcher(client._connection, quiet_s=NEVER_S))

    def watch(passing: Passing) -> None:
        if passing.request.endswith("/events") or "wait=" in passing.request:
            passing.close()

    wire.watch = watch
    call = asyncio.create_task(client.extract([png()]))
    await seen(wire, POLL, 2)
    await worker.read_all()
    [image] = await call
    assert image.result is not None
    assert client._watcher.way is Way.POLL
