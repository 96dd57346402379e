"""Stage subprocesses are replaced once they keep much memory, whoever's image it was that left them so."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from arachne.actors.pool import StagePool
from arachne.bodies import decompress
from arachne.pipeline import ReadRequest
from arachne.schemas.options import Options

pytestmark = pytest.mark.processes
REQUEST = ReadRequest(Options(), ("eng",), Path("/nowhere"), 10**6, 1, 10.0)
MIB = 1024 * 1024
Ask = Callable[[int], tuple[int, int]]


@pytest.fixture
def new_pool(settings, stage_faults) -> Iterator[Callable[[int], Ask]]:
    """Makes pools of one subprocess with this bound; each is asked, for bytes to keep, for its process and memory."""
    pools = []

    def new(recycle_bytes: int) -> Ask:
        changes = {"cpu_workers": 1, "stage_recycle_bytes": recycle_bytes}
        pool = StagePool(stage_faults.process_and_memory, settings.model_copy(update=changes))
        pools.append(pool)

        def ask(kept_bytes: int) -> tuple[int, int]:
            ended = Event()
            future = pool.schedule(str(kept_bytes).encode(), REQUEST, lambda *_: ended.set())
            process, memory = json.loads(decompress(future.result(60).reading.body))["text"].split()
            assert ended.wait(60)
            return int(process), int(memory)

        return ask

    yield new
    for pool in pools:
        pool.stop()


def test_subprocess_that_keeps_much_is_replaced_after_its_image(new_pool) -> None:
    """Those that keep little stay; the heavy one is gone before the next image, which finds a light one."""
    ask = new_pool(10**12)
    first, light_bytes = ask(0)
    heavy, heavy_bytes = ask(150 * MIB)
    assert (heavy, ask(0)[0]) == (first, first)
    assert heavy_bytes > light_bytes + 140 * MIB
    bounded = new_pool(light_bytes + 70 * MIB)
    process, _ = bounded(0)
    assert bounded(150 * MIB)[0] == process
    replaced, replaced_bytes = bounded(0)
    assert replaced != process
    assert replaced_bytes < light_bytes + 70 * MIB


def test_each_subprocess_takes_an_image_however_low_the_bound(new_pool) -> None:
    """A bound below what an empty subprocess needs makes things slow, not impossible."""
    ask = new_pool(MIB)
    assert ask(0)[0] != ask(0)[0]
