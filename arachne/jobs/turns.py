"""Whose turn it is at the GPU: which model the next requests go to, and how many each worker may send. Pure.

Models on one GPU swap each other out, which takes tens of seconds, so images wait for each other by model. A turn goes
on as long as images for its model are there, and ends early once another model's have waited for its bounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

LINGER_S = 0.5  # a turn outlives a moment without images: the next ones may just be being claimed


@dataclass(frozen=True)
class Line:
    """One worker's images for one model: `waiting` to be sent, the first since `oldest_s`, and `coming` from stages."""

    worker: str
    model: str
    waiting: int
    coming: int
    oldest_s: float


@dataclass(frozen=True)
class Bounds:
    """What ends a turn while another model's images wait: seconds since its first answer, or requests sent."""

    after_s: float
    after_requests: int


@dataclass(frozen=True)
class Turn:
    """The model being asked. `passed` counts requests sent while another model's images waited.

    Its seconds count from the first answer, since until then the model may still be loading. `drained` tells that
    none of the former model's requests is in flight any more.
    """

    model: str | None = None
    since_s: float = 0.0
    wanted_s: float = 0.0
    passed: int = 0
    answered: bool = False
    drained: bool = True


def known_turn(members: Mapping[str, Any]) -> Turn:
    """The turn as workers record it; what a newer version has besides is left out, so that both can run at once."""
    known = {one.name for one in fields(Turn)}
    return Turn(**{name: value for name, value in members.items() if name in known})


def next_turn(turn: Turn, lines: Sequence[Line], now_s: float, bounds: Bounds) -> Turn:
    """Whose turn it is now, given every worker's lines; changed only where images of another model wait."""
    if any(line.model == turn.model and (line.waiting or line.coming) for line in lines):
        turn = replace(turn, wanted_s=now_s)
    others = [line for line in lines if line.model != turn.model and line.waiting]
    if not others:
        return replace(turn, passed=0)
    oldest = min(others, key=lambda line: (line.oldest_s, line.model))
    waited_s = now_s - max(turn.since_s, oldest.oldest_s)
    is_late = turn.passed >= bounds.after_requests or (turn.answered and waited_s >= bounds.after_s)
    if turn.model is None or is_late or now_s - turn.wanted_s >= LINGER_S:
        return Turn(oldest.model, since_s=now_s, wanted_s=now_s, drained=turn.model is None)
    return turn


def note_sent(turn: Turn, lines: Sequence[Line], sent: int) -> Turn:
    """The turn after `sent` more requests of its model."""
    another_waits = any(line.model != turn.model and line.waiting for line in lines)
    return replace(turn, passed=turn.passed + sent if another_waits else 0)


def note_answered(turn: Turn, now_s: float) -> Turn:
    """The turn after an answer, or a failure, of its model: from the first one on its seconds count."""
    return turn if turn.answered else replace(turn, answered=True, since_s=now_s)


def allowance(worker: str, turn: Turn, lines: Sequence[Line], free: int) -> int:
    """How many requests the worker may send now that `free` more may be in flight: first come, first served."""
    lined_up = [line for line in lines if line.model == turn.model and line.waiting]
    mine = next((line for line in lined_up if line.worker == worker), None)
    if mine is None or not turn.drained:
        return 0
    ahead = sum((line.oldest_s, line.worker) < (mine.oldest_s, worker) for line in lined_up)
    return max(0, min(mine.waiting, free - ahead))
