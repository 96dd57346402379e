"""Whoever ends a command otherwise than by Ctrl-C has the same said and cleaned up."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from arachne.cli.signals import ENDING, ended_as_by_ctrl_c, heeded


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["foreground", "background"], autouse=True)
def interactive(request: pytest.FixtureRequest) -> Iterator[None]:
    """SIGINT as shells have it, also for what they start with `&`."""
    former = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.mark.parametrize("number", ENDING)
def test_a_block_is_interrupted_and_nothing_stays_changed(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), ended_as_by_ctrl_c():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", ENDING)
def test_tasks_of_a_loop_end_first(number: signal.Signals) -> None:
    ended = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    with pytest.raises(KeyboardInterrupt), ended_as_by_ctrl_c():
        asyncio.run(work())
    assert ended == [True]


def test_under_nohup_a_closed_terminal_ends_nothing() -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert heeded() == [signal.SIGTERM]
        with ended_as_by_ctrl_c():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, former)
