"""The second reader's own process: it answers, dies and hangs without harm to whoever asks."""

import os
import signal
from collections.abc import Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client

import numpy as np
import pytest

from arachne.actors import second_reader as module
from arachne.actors.second_reader import RemoteReader, second_reader
from arachne.stages.arrays import Box, Gray
from arachne.stages.rapid import SecondReaderLost, SeenCharacter, SeenLine

pytestmark = pytest.mark.processes


def obedient_reader(gray: Gray, known: Sequence[Box]) -> tuple[SeenLine, ...]:
    """A line that tells what it was given; the first pixel says what to do first."""
    if gray[0, 0] == 1:
        os._exit(7)
    if gray[0, 0] == 2:
        signal.pause()
    if gray[0, 0] == 3:
        bytearray(4 << 30)
    return (SeenLine(known[0], (SeenCharacter(f"{gray.shape}{gray.sum()}", 0, 1, spaced=False),)),)


def test_it_answers_and_outlives_its_deaths(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash, a hang and a hunger for memory are told as such; the next picture is looked at again."""
    monkeypatch.setattr(module, "LOOK_LIMIT_S", 5.0)
    gray = np.zeros((20, 30), np.uint8)
    known = [Box(1, 2, 3, 4)]
    with second_reader(obedient_reader) as ask:
        for first, said in ((1, "died"), (2, "over 5 s"), (3, "memory")):
            told = gray.copy()
            told[0, 0] = first
            with pytest.raises(SecondReaderLost, match=said):
                ask(told, known)
            (line,) = ask(gray, known)
            assert line.box == known[0]
            assert line.characters[0].text == "(20, 30)0"


def test_only_who_has_the_key_is_answered() -> None:
    with second_reader(obedient_reader) as ask:
        with pytest.raises(AuthenticationError):
            Client(ask.address, "AF_UNIX", authkey=b"guessed")
        with pytest.raises(SecondReaderLost, match="can't be asked"):
            RemoteReader(ask.address, b"guessed")(np.zeros((2, 2), np.uint8), ())
        assert ask(np.zeros((2, 2), np.uint8), [Box(0, 0, 1, 1)])
    with pytest.raises(SecondReaderLost, match="can't be asked"):
        ask(np.zeros((2, 2), np.uint8), ())
