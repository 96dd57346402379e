"""The loop of engines: whatever ends it, nothing that it started goes on without it."""

import asyncio
import logging

import pytest

from arachne import resident_loop
from arachne.resident_loop import ResidentLoop


@pytest.mark.parametrize("end", ["stopped", "cancelled", "failed"])
async def test_nothing_outlives_the_loop(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """What is quick ends by itself, what hangs is cancelled: the connections of both are closed right after."""
    monkeypatch.setattr(resident_loop, "_STOP_GRACE_S", 0.2)
    loop = ResidentLoop(logging.getLogger(__name__), "waits", at_once=2, tick_s=0.01)
    stop, begun, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()
    started: list[asyncio.Task[object]] = []

    async def look() -> None:
        if not started:
            started.extend((loop.start(may_end.wait()), loop.start(asyncio.Event().wait())))
            begun.set()
        elif end == "failed" and may_end.is_set():
            raise RuntimeError("failed")

    running = asyncio.create_task(loop.run(stop, look))
    await begun.wait()
    may_end.set()
    if end == "stopped":
        stop.set()
    elif end == "cancelled":
        running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [(one.done(), one.cancelled()) for one in started] == [(True, False), (True, True)]
