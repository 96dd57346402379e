"""The part of Ollama that is scarce: models loaded one or few at a time, each answering a few requests at once.

Source: Ollama's FAQ on concurrency (OLLAMA_MAX_LOADED_MODELS, OLLAMA_NUM_PARALLEL, OLLAMA_MAX_QUEUE): requests wait in
order; a model is unloaded only once it is idle; another context length loads the model anew.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.standins.behaviour import Behaviour

BUSY = "server busy, please try again.  maximum pending requests exceeded"


class QueueFullError(Exception):
    """More requests wait than may."""


@dataclass
class Loaded:
    """A model in memory; `users` are requests that wait for it or run on it."""

    model: str
    context_tokens: int
    slots: asyncio.Semaphore
    expires_at: float = 0.0
    users: int = 0


@dataclass
class Turn:
    """One request's place on the GPU."""

    load_s: float


@dataclass
class Work:
    """What the GPU has done."""

    loads: int = 0
    swaps: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    waiting: int = 0
    max_waiting: int = 0
    busy_s: float = 0.0
    order: list[str] = field(default_factory=list)


class Gpu:
    """Serves requests as the behaviour in force says."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.work = Work()
        self.loaded: list[Loaded] = []
        self._scheduler = asyncio.Lock()
        self._idle = asyncio.Event()

    @asynccontextmanager
    async def turn(self, model: str, context_tokens: int, keep_alive_s: float) -> AsyncIterator[Turn]:
        """A place on the GPU with `model` loaded, once it is this request's turn.

        Raises:
            QueueFullError: too many wait already.
        """
        if self.work.waiting >= self.behaviour.max_queue:
            raise QueueFullError(BUSY)
        started = time.monotonic()
        with self._waiting():
            runner = await self._runner(model, context_tokens)
        turn = Turn(load_s=time.monotonic() - started)
        try:
            with self._waiting():
                await runner.slots.acquire()
            try:
                with self._running(model):
                    yield turn
            finally:
                runner.slots.release()
        finally:
            runner.users -= 1
            runner.expires_at = time.time() + keep_alive_s
            if keep_alive_s == 0 and not runner.users:
                self.loaded.remove(runner)
            self._idle.set()

    def forget_idle(self) -> None:
        """Unload what nobody has used for as long as it was asked to stay."""
        self.loaded = [one for one in self.loaded if one.users or one.expires_at > time.time()]

    async def _runner(self, model: str, context_tokens: int) -> Loaded:
        async with self._scheduler:
            self.forget_idle()
            for runner in self.loaded:
                if (runner.model, runner.context_tokens) == (model, context_tokens):
                    runner.users += 1
                    return runner
            await self._make_room(model)
            runner = Loaded(model, context_tokens, asyncio.Semaphore(self.behaviour.parallel), users=1)
            try:
                await asyncio.sleep(self.behaviour.swap_s)
            except asyncio.CancelledError:
                self._idle.set()
                raise
            self.work.loads += 1
            self.loaded.append(runner)
            return runner

    async def _make_room(self, model: str) -> None:
        """Unload idle models until one more fits, the same with another context first."""
        while True:
            self._idle.clear()
            same = [one for one in self.loaded if one.model == model]
            if not same and len(self.loaded) < self.behaviour.max_loaded:
                return
            idle = [one for one in same or self.loaded if not one.users]
            if idle:
                self.loaded.remove(min(idle, key=lambda one: one.expires_at))
                self.work.swaps += 1
            else:
                await self._idle.wait()

    def _waiting(self) -> "_Counted":
        return _Counted(self.work, "waiting")

    def _running(self, model: str) -> "_Counted":
        self.work.order.append(model)
        return _Counted(self.work, "in_flight")


class _Counted:
    """Counts those inside, the most there were, and how long they ran."""

    def __init__(self, work: Work, name: str) -> None:
        self._work, self._name = work, name
        self._started = 0.0

    def __enter__(self) -> None:
        now = getattr(self._work, self._name) + 1
        setattr(self._work, self._name, now)
        setattr(self._work, f"max_{self._name}", max(now, getattr(self._work, f"max_{self._name}")))
        self._started = time.monotonic()

    def __exit__(self, *_: object) -> None:
        setattr(self._work, self._name, getattr(self._work, self._name) - 1)
        if self._name == "in_flight":
            self._work.busy_s += time.monotonic() - self._started
