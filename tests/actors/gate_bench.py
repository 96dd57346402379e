"""A gate and a model in a test's hands, and a batcher between them: nothing waits for real time but the event loop."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field

from arachne.actors.assembly import Answer
from arachne.actors.batcher import Batcher, Policy
from arachne.actors.places import Places
from arachne.errors import Unavailable
from arachne.jobs.slots import Granted, Told
from arachne.jobs.turns import Bounds, Line, Turn, allowance, next_turn, note_answered, note_sent
from arachne.stages.arrays import Size
from arachne.stages.describe import DescribeReply, DescribeRequest
from arachne.vlm import Breaker, Retry

GOOD = json.dumps({"description": "A dialog.", "elements": [], "text": []})
NO_WAIT = Retry(first_s=0.0, longest_s=0.0)


def question(model: str = "m", text: str = "") -> DescribeRequest:
    """A question about a picture nobody looks at."""
    return DescribeRequest(b"", Size(1, 1), Size(1, 1), 1.0, model, 10, text)


class OneGate:
    """The gate without a database: one worker, as many slots as given."""

    def __init__(self, parallel: int) -> None:
        self.parallel, self.turn, self.visits = parallel, Turn(), list[Told]()
        self.fails, self.workers, self.opened = 0, 1, asyncio.Event()
        self.opened.set()

    async def visit(self, told: Told) -> Granted:
        """What a real gate would grant."""
        if self.fails:
            self.fails -= 1
            raise Unavailable("The database is away.")
        await self.opened.wait()
        self.visits.append(told)
        now_s = float(len(self.visits))
        lines = [Line("w", model, *images[:2], now_s - images[2]) for model, images in told.images.items()]
        if self.turn.model in told.answered:
            self.turn = note_answered(self.turn, now_s)
        self.turn = next_turn(self.turn, lines, now_s, Bounds(1e9, 10**9))
        if not told.held:
            self.turn = Turn(**vars(self.turn) | {"drained": True})
        free = [slot for slot in range(self.parallel) if slot not in told.held]
        slots = tuple(free[: allowance("w", self.turn, lines, len(free))])
        self.turn = note_sent(self.turn, lines, len(slots))
        return Granted(slots, self.turn.model, self.workers, len(free) - len(slots))


@dataclass
class Model:
    """A model that answers when told to, with what it is told to."""

    asked: list[DescribeRequest] = field(default_factory=list)
    replies: dict[str, list[DescribeReply | Exception]] = field(default_factory=dict)
    open: int = 0
    most: int = 0
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    proven: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.proven.set()

    async def describe(self, request: DescribeRequest, answered: Callable[[], object] = lambda: None) -> DescribeReply:
        """The next reply to this text."""
        self.asked.append(request)
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            await self.hold.wait()
        finally:
            self.open -= 1
        planned = self.replies.get(request.text) or self.replies.get("*") or []
        reply = planned.pop(0) if len(planned) > 1 else (planned or [DescribeReply(GOOD, "stop", "m@1")])[0]
        if isinstance(reply, Exception):
            raise reply
        answered()
        await self.proven.wait()
        return reply


class Bench:
    """A batcher at work, and what came of the images it was given."""

    def __init__(self, *, parallel: int = 2, breaker: Breaker | None = None, limit_s: float = 1e9) -> None:
        self.gate, self.model = OneGate(parallel), Model()
        self.places = Places(parallel, ("m", "n"), most=8)
        self.answers: dict[str, Answer | None] = {}
        policy = Policy(limit_s, 10.0, NO_WAIT, breaker or Breaker(failures=10**9))
        self.batcher = Batcher("w", self.model, self.gate.visit, self.places, policy)

    def add(self, *names: str, model: str = "m") -> None:
        """Have images described."""
        for name in names:
            self.places.enter(name, model)
            self.batcher.add(name, question(model, name), lambda answer, name=name: self.answers.update({name: answer}))

    async def until(self, holds: Callable[[], object]) -> None:
        """Return once it holds."""
        async with asyncio.timeout(20):
            while not holds():  # noqa: ASYNC110  # the loop has to turn, and nothing else
                await asyncio.sleep(0)

    async def all_answered(self, count: int) -> None:
        """Return once so many images have been answered."""
        await self.until(lambda: len(self.answers) == count)
