"""The fetch engine as a part of a worker."""

import threading
from pathlib import Path

import pytest

from arachne.actors.fetches import FetchThread
from arachne.actors.heartbeat import Heartbeat
from arachne.fetching.engine import FetchEngine
from arachne.settings import Settings
from arachne.storage import open_storage


def test_a_worker_that_no_longer_fetches_does_not_look_alive(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends the engine is told at once, and is what the worker ends with."""

    async def broken(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(FetchEngine, "run", broken)
    settings = Settings(data_dir=tmp_path, database_url=database_url)
    told, stopping = threading.Event(), threading.Event()

    def tell() -> None:
        told.set()
        stopping.wait(1)  # its loop is closed and its thread not at its end when it is told to stop

    storage, heartbeat = open_storage(settings), Heartbeat(database_url, "io")
    fetches = FetchThread(settings, storage, heartbeat, queued=lambda: None, on_commit=lambda _: None, on_failure=tell)
    fetches.check()
    fetches.start()
    try:
        assert told.wait(30)
    finally:
        threading.Timer(0.1, stopping.set).start()
        fetches.stop()
    with pytest.raises(ZeroDivisionError):
        fetches.check()
