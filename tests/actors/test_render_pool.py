"""Documents are made in subprocesses: what goes wrong there hits one document, and never the process beside them."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from arachne.actors.render_pool import RenderPool
from arachne.errors import DecodeFailed, OutOfMemory, ReadFailed, TimedOut, Unavailable, WorkerCrashed
from arachne.formats import RenderRequest
from arachne.settings import Settings
from tests.actors.render_faults import echo, faulty

pytestmark = pytest.mark.processes

PNG = RenderRequest("png", None, "a.png", 1000, 1)
PATIENCE_S = 60


@pytest.fixture
def settings() -> Settings:
    """Short limits."""
    return Settings(_env_file=None, stage_memory_bytes=300 * 1024**2, hard_time_limit_s=2, cpu_workers=1)


@pytest.fixture
def pool(settings: Settings) -> Iterator[RenderPool]:
    """A pool whose renderer misbehaves on request."""
    made = RenderPool(settings, render=faulty, max_pending=3)
    yield made
    made.stop()


def test_documents_are_made_in_bounded_subprocesses_started_late(settings: Settings) -> None:
    """No subprocess before the first document; megabytes go there and back; the bound on memory is in force."""
    children = set(multiprocessing.active_children())
    pool = RenderPool(settings, render=echo)
    assert set(multiprocessing.active_children()) == children
    original = bytes(range(256)) * 40_000
    try:
        told = pool.schedule(b"{}", original, PNG).result(PATIENCE_S)
    finally:
        pool.stop()
    assert told.startswith(b"{}|" + original + b"|png|")
    assert 300 * 1024**2 < int(told.split(b"|")[-1]) < 3 * 1024**3
    assert set(multiprocessing.active_children()) == children


def test_faults_are_told_apart_and_stay_with_their_document(pool: RenderPool) -> None:
    """A crash, memory, a decoder's refusal, an error of ours; and the next document is made all the same."""
    expected = {b"crash": WorkerCrashed, b"hungry": OutOfMemory, b"refused": DecodeFailed, b"wrong": ReadFailed}
    for fault, error in expected.items():
        with pytest.raises(error):
            pool.schedule(fault, b"", PNG).result(PATIENCE_S)
        assert pool.schedule(b"fine", b"", PNG).result(PATIENCE_S) == b"done"


def test_a_hanging_document_is_cut_off_and_the_queue_is_bounded(pool: RenderPool) -> None:
    """While three are in hand a fourth is refused with a time to come back; all slots come free again."""
    hanging = pool.schedule(b"hang", b"", PNG)
    waiting: list[Future[bytes]] = [pool.schedule(b"fine", b"", PNG) for _ in range(2)]
    with pytest.raises(Unavailable) as refused:
        pool.schedule(b"fine", b"", PNG)
    assert refused.value.retry_after_s
    with pytest.raises(TimedOut):
        hanging.result(PATIENCE_S)
    assert [one.result(PATIENCE_S) for one in waiting] == [b"done"] * 2
    assert [pool.schedule(b"fine", b"", PNG).result(PATIENCE_S) for _ in range(4)] == [b"done"] * 4


def test_stopping_ends_what_waits(pool: RenderPool) -> None:
    """Whoever waits is told to come back; a stopped pool starts anew when it is needed."""
    hanging = pool.schedule(b"hang", b"", PNG)
    pool.stop()
    with pytest.raises((Unavailable, WorkerCrashed)):
        hanging.result(PATIENCE_S)
    assert pool.schedule(b"fine", b"", PNG).result(PATIENCE_S) == b"done"
