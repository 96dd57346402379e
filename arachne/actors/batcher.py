"""The one way to the GPU: images of many jobs wait here by model, and as many as may be are asked about at a time."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from time import monotonic

from arachne import metrics
from arachne.actors.assembly import Answer
from arachne.actors.places import Places
from arachne.complaints import Complaints
from arachne.errors import Unavailable, VlmError
from arachne.jobs.slots import Granted, Images, Told
from arachne.stages.describe import Describer, DescribeReply, DescribeRequest, accept
from arachne.vlm import Breaker, Retry

log = logging.getLogger(__name__)
_complaints = Complaints(log)
Visit = Callable[[Told], Awaitable[Granted]]
Answered = Callable[[DescribeReply | None], object]
Clock = Callable[[], float]

POLL_S = 0.5  # between visits while anything is open, in case nobody tells that a slot came free
PAUSE_S = 1.0  # after a visit that failed


Done = Callable[[Answer | None], object]
"""Called once, on the loop's thread: with the answer, or with None where the image was not asked about and may be."""


@dataclass(eq=False)
class Ticket:
    """One image waiting since `since_s`, asked about `tries` times, for `ms` in all."""

    image: Hashable
    request: DescribeRequest
    done: Done
    since_s: float
    tries: int = 0
    ms: float = 0.0
    first_asked_s: float = 0.0
    not_before_s: float = 0.0


@dataclass(frozen=True)
class Policy:
    """How hard one image is tried: so many attempts after such waits, within `limit_s` of the first.

    While the breaker keeps a server alone, images wait for it only if it was well less than `patience_s` ago, or is
    being tried since less than that.
    """

    limit_s: float
    patience_s: float = 10.0
    retry: Retry = field(default_factory=Retry)
    breaker: Breaker = field(default_factory=Breaker)


class Batcher:
    """Asks a describer about images in the order and number that visits to the gate allow. For one event loop.

    `changed` is called when places have come free, `answered` after every attempt with its reply, if it got one.
    """

    def __init__(
        self, name: str, describer: Describer, visit: Visit, places: Places, policy: Policy,
        *, changed: Callable[[], object] = lambda: None, answered: Answered = lambda _: None, clock: Clock = monotonic,
    ) -> None:  # fmt: skip
        self._name, self._describer, self._visit_gate, self._places = name, describer, visit, places
        self._policy, self._changed, self._on_answer, self._clock = policy, changed, answered, clock
        self._waiting: list[Ticket] = []
        self._asked: dict[int, Ticket] = {}  # by slot
        self._tasks: dict[Ticket, asyncio.Task[None]] = {}
        self._answered: set[str] = set()
        self._event = asyncio.Event()
        self._stopping = False
        self._told = False
        self._turn: str | None = None
        self._is_alone = False
        self._well_s = self._sent_s = float("-inf")

    def add(self, image: Hashable, request: DescribeRequest, done: Done) -> None:
        """Have the image described; `done` is called with what came of it."""
        ticket = Ticket(image, request, done, self._clock())
        if self._stopping:
            done(None)
            return
        self._waiting.append(ticket)
        self._places.wait(image)
        self._event.set()

    def drop(self, image: Hashable) -> None:
        """Nobody wants the image described any more."""
        for ticket in [one for one in self._waiting if one.image == image]:
            self._waiting.remove(ticket)
            self._end(ticket, None)
        for ticket, task in self._tasks.items():
            if ticket.image == image:
                task.cancel()

    def wake(self) -> None:
        """Look at the gate again: something may have come free."""
        self._event.set()

    def stop(self) -> None:
        """Ask about nothing more; what waits goes back, and `run` returns once all that is in flight is answered."""
        self._stopping = True
        for ticket in list(self._waiting):
            self.drop(ticket.image)
        self._event.set()

    def cut_off(self) -> None:
        """End what is in flight too; it goes back."""
        self.stop()
        for task in self._tasks.values():
            task.cancel()

    async def run(self) -> None:
        """Work until `stop`."""
        try:
            while not self._stopping or self._tasks:
                await self._pause()
                await self._look_patiently()
            await self._look_patiently()
        finally:
            self.cut_off()

    async def _pause(self) -> None:
        is_open = self._waiting or self._tasks or self._told
        try:
            async with asyncio.timeout(POLL_S if is_open else None):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()

    async def _look_patiently(self) -> None:
        try:
            await self._look()
        except Unavailable as error:
            _complaints.tell("the gate to the models waits", error)
            await asyncio.sleep(PAUSE_S)
        except Exception:
            log.exception("a visit to the gate failed; it is tried again")
            await asyncio.sleep(PAUSE_S)

    async def _look(self) -> None:
        """One visit to the gate, and requests sent on the slots it gave."""
        now_s = self._clock()
        self._give_up(now_s)
        told, self._answered = self._tell(now_s), set()
        if not (told.images or told.answered or told.held or self._told):
            return
        try:
            granted = await self._visit_gate(told)
        except BaseException:
            self._answered |= told.answered
            self._is_alone = False
            raise
        self._is_alone = granted.workers <= 1
        self._told = bool(told.images or told.held)
        self._places.learn(granted.model, granted.workers, granted.free + len(granted.slots))
        former, self._turn = self._turn, granted.model
        for slot in granted.slots:
            self._send(slot, granted.model)
        if former != self._turn:
            self._changed()

    def _tell(self, now_s: float) -> Told:
        ready = self._ready(now_s)
        models = {ticket.request.model for ticket in ready}
        coming = Counter[str]() if self._stopping else self._places.coming()
        images = {}
        for model in models | set(coming):
            mine = [ticket.since_s for ticket in ready if ticket.request.model == model]
            images[model] = Images(len(mine), coming[model], now_s - min(mine, default=now_s))
        return Told(self._name, images, frozenset(self._asked), frozenset(self._answered))

    def _ready(self, now_s: float) -> list[Ticket]:
        if self._stopping or not self._policy.breaker.admits:
            return []
        return [ticket for ticket in self._waiting if ticket.not_before_s <= now_s]

    def _give_up(self, now_s: float) -> None:
        """End what waits, where the server is left alone for longer than is worth waiting."""
        breaker, patience_s = self._policy.breaker, self._policy.patience_s
        hopeful_s = self._sent_s if breaker.state == "half_open" else self._well_s - breaker.retry_in_s
        if breaker.admits or now_s < hopeful_s + patience_s:
            return
        for ticket in list(self._waiting):
            self._waiting.remove(ticket)
            self._end(ticket, Answer(reason="the model server is down", ms=ticket.ms))

    def _send(self, slot: int, model: str | None) -> None:
        """Ask about the next image on this slot; without one, the next visit gives it back."""
        ready = [ticket for ticket in self._ready(self._clock()) if ticket.request.model == model]
        if not ready:
            self._event.set()
            return
        ticket = min(ready, key=lambda one: one.since_s)
        self._waiting.remove(ticket)
        self._places.ask(ticket.image)
        ticket.tries += 1
        self._sent_s = self._clock()
        if ticket.tries == 1:
            ticket.first_asked_s = self._clock()
        self._asked[slot] = ticket
        task = self._tasks[ticket] = asyncio.create_task(self._handle(ticket, lambda: self._release(slot, ticket)))
        task.add_done_callback(lambda ended: self._finish(slot, ticket, ended))
        self._changed()

    def _finish(self, slot: int, ticket: Ticket, task: asyncio.Task[None]) -> None:
        """Tidy up; as a callback, since a task that is cancelled before it has begun runs none of its own lines."""
        del self._tasks[ticket]
        if task.cancelled():
            log.info("image %s is no longer asked about", ticket.image)
            self._end(ticket, None)
        self._release(slot, ticket)
        self._event.set()

    async def _handle(self, ticket: Ticket, free_slot: Callable[[], object]) -> None:
        """One attempt, and what follows from it."""
        try:
            if self._policy.breaker.admits:
                with metrics.question():
                    answer = await self._ask(ticket, free_slot)
                self._end(ticket, answer)
            else:
                ticket.tries -= 1
                self._put_off(ticket, 0.0)
        except VlmError as error:
            self._fail(ticket, error)
        except Exception as bug:
            log.exception("a model could not be asked")
            self._end(ticket, Answer(reason=f"the model could not be asked ({type(bug).__name__})", ms=ticket.ms))

    async def _ask(self, ticket: Ticket, free_slot: Callable[[], object]) -> Answer:
        """What the model says, checked in a thread while the slot is another's already."""
        reply, started_s = None, self._clock()
        try:
            with self._policy.breaker.passage(), metrics.asking():
                reply = await self._describer.describe(ticket.request, free_slot)
        except VlmError as error:
            if not error.server_at_fault:
                self._well_s = self._clock()
            raise
        else:
            self._well_s = self._clock()
        finally:
            ticket.ms += (self._clock() - started_s) * 1000
            self._on_answer(reply)
        vlm = await asyncio.to_thread(accept, reply, ticket.request)
        return Answer(vlm, ms=ticket.ms, cacheable=reply.cacheable)

    def _release(self, slot: int, ticket: Ticket) -> None:
        """The slot, if it is still this ticket's, is the next one's, or is given back by the next visit.

        As long as nobody else has images for the gate, the GPU need not wait for a visit.
        """
        if self._asked.get(slot) is not ticket:
            return
        del self._asked[slot]
        self._answered.add(ticket.request.model)
        self._event.set()
        if self._is_alone and {one.request.model for one in self._waiting} == {self._turn}:
            self._send(slot, self._turn)

    def _fail(self, ticket: Ticket, error: VlmError) -> None:
        """Try again later, or end the ticket with the reason."""
        now_s, retry = self._clock(), self._policy.retry
        wait_s = retry.wait_s(ticket.tries, error, random.random())  # noqa: S311  # spreads load, keeps no secret
        in_time = now_s + wait_s < ticket.first_asked_s + self._policy.limit_s
        if self._stopping:
            self._end(ticket, None)
        elif error.retryable and ticket.tries < retry.attempts and in_time:
            self._put_off(ticket, wait_s)
        else:
            self._end(ticket, Answer(reason=error.message, ms=ticket.ms))

    def _put_off(self, ticket: Ticket, wait_s: float) -> None:
        ticket.not_before_s = self._clock() + wait_s
        self._waiting.append(ticket)
        self._places.put_off(ticket.image)
        asyncio.get_running_loop().call_later(wait_s, self._event.set)

    def _end(self, ticket: Ticket, answer: Answer | None) -> None:
        self._places.leave(ticket.image)
        ticket.done(answer)
