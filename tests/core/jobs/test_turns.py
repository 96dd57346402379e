"""Whose turn it is at the GPU: models are grouped, nobody waits for ever, and workers are served in order."""

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from arachne.jobs.turns import LINGER_S, Bounds, Line, Turn, allowance, next_turn, note_answered, note_sent

BOUNDS = Bounds(after_s=60, after_requests=50)


def line(model: str, waiting: int = 1, coming: int = 0, oldest_s: float = 0, worker: str = "w") -> Line:
    """One worker's images for a model."""
    return Line(worker, model, waiting, coming, oldest_s)


def turn_of(model: str, **told: object) -> Turn:
    """A turn that has been going on."""
    return Turn(model, **{"answered": True} | told)


def test_first_turn_is_that_of_the_oldest_image() -> None:
    """Nothing has to be drained before the very first one."""
    turn = next_turn(Turn(), [line("a", oldest_s=5), line("b", oldest_s=4)], 10, BOUNDS)
    assert (turn.model, turn.drained) == ("b", True)


def test_turn_goes_on_while_images_wait_or_come() -> None:
    """Another model's images wait meanwhile, wherever the wanted ones are."""
    others = [line("b", waiting=9, oldest_s=950)]
    for mine in (line("a"), line("a", waiting=0, coming=1), line("a", waiting=0, coming=2, worker="another")):
        assert next_turn(turn_of("a", since_s=0), [mine, *others], 1000, BOUNDS).model == "a"


def test_turn_without_images_ends_after_a_moment() -> None:
    """The next ones may just be being claimed; where none was wanted for long, nobody waits."""
    now = next_turn(turn_of("a"), [line("a"), line("b", oldest_s=100)], 100, BOUNDS)
    early = next_turn(now, [line("b", oldest_s=100)], 100 + LINGER_S / 2, BOUNDS)
    assert early.model == "a"
    assert next_turn(early, [line("b", oldest_s=100)], 100 + LINGER_S, BOUNDS).model == "b"
    assert next_turn(turn_of("a", wanted_s=1), [line("b", oldest_s=100)], 100, BOUNDS).model == "b"


def test_waiting_is_bounded_by_time_and_by_requests() -> None:
    """Whichever comes first; requests count only while somebody waits, and time from the turn's first answer on."""
    lines = [line("a", waiting=99), line("b", oldest_s=40)]
    assert next_turn(turn_of("a", since_s=0), lines, 99.9, BOUNDS).model == "a"
    assert next_turn(turn_of("a", since_s=0), lines, 100, BOUNDS).model == "b"
    assert next_turn(turn_of("a", since_s=70), lines, 100, BOUNDS).model == "a"
    assert next_turn(turn_of("a", answered=False), lines, 100, BOUNDS).model == "a"
    assert note_answered(turn_of("a", answered=False), 77).since_s == 77
    alone = note_sent(turn_of("a"), [line("a")], 50)
    assert next_turn(alone, lines, 50, BOUNDS).model == "a"
    assert next_turn(note_sent(turn_of("a"), lines, 49), lines, 50, BOUNDS).model == "a"
    assert next_turn(note_sent(turn_of("a"), lines, 50), lines, 50, BOUNDS).model == "b"


def test_of_several_models_the_longest_waiting_is_next() -> None:
    """Each has its turn, so that with three the bound holds twice over."""
    lines = [line("a"), line("b", oldest_s=30), line("c", oldest_s=20)]
    assert next_turn(turn_of("a"), lines, 1000, BOUNDS).model == "c"


def test_new_turn_sends_nothing_before_the_old_one_is_drained() -> None:
    """Requests of two models are never in flight together."""
    lines = [line("a"), line("b")]
    new = next_turn(turn_of("a", passed=50), lines, 10, BOUNDS)
    assert new.model == "b"
    assert not new.drained
    assert allowance("w", new, lines, 4) == 0


def test_workers_are_served_in_the_order_their_images_came() -> None:
    """A free slot is left to whoever waits longer, and nobody takes more than it has."""
    lines = [line("a", 3, oldest_s=1, worker="old"), line("a", 3, oldest_s=2, worker="new"), line("b", 9, worker="x")]
    turn = turn_of("a")
    assert [allowance(worker, turn, lines, 1) for worker in ("old", "new", "x")] == [1, 0, 0]
    assert [allowance(worker, turn, lines, 9) for worker in ("old", "new", "x")] == [3, 3, 0]
    assert allowance("old", turn, lines, -1) == 0


@dataclass
class Simulation:
    """Workers with images of several models at one gate, where every request takes `answer_s`, and a swap `swap_s`."""

    bounds: Bounds
    parallel: int = 2
    answer_s: float = 1.0
    swap_s: float = 5.0
    now_s: float = 1000.0
    turn: Turn = field(default_factory=Turn)
    waiting: list[tuple[str, str, float]] = field(default_factory=list)  # worker, model, since
    in_flight: list[tuple[float, str]] = field(default_factory=list)  # until, model
    sent: list[str] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)
    loaded: str | None = None

    def step(self) -> None:
        """A tenth of a second in which every worker comes by once."""
        self.now_s += 0.1
        for until_s, model in [one for one in self.in_flight if one[0] <= self.now_s]:
            self.in_flight.remove((until_s, model))
            if model == self.turn.model:
                self.turn = note_answered(self.turn, self.now_s)
        for worker in sorted({worker for worker, _, _ in self.waiting}):
            self._visit(worker)

    def _visit(self, worker: str) -> None:
        keys = sorted({(one, model) for one, model, _ in self.waiting})
        lines = [
            Line(one, model, len(since), 0, min(since))
            for one, model in keys
            if (since := [at for w, m, at in self.waiting if (w, m) == (one, model)])
        ]
        self.turn = next_turn(self.turn, lines, self.now_s, self.bounds)
        if not self.in_flight:
            self.turn = Turn(**vars(self.turn) | {"drained": True})
        number = allowance(worker, self.turn, lines, self.parallel - len(self.in_flight))
        self.turn = note_sent(self.turn, lines, number)
        for _ in range(number):
            self._send(next(one for one in self.waiting if one[:2] == (worker, self.turn.model)))

    def _send(self, image: tuple[str, str, float]) -> None:
        self.waiting.remove(image)
        swap_s = 0.0 if self.loaded == image[1] else self.swap_s
        assert {model for _, model in self.in_flight} <= {image[1]}
        self.loaded = image[1]
        self.in_flight.append((self.now_s + swap_s + self.answer_s, image[1]))
        self.sent.append(image[1])
        self.waits_s.append(self.now_s - image[2])

    @property
    def swaps(self) -> int:
        """How often the model changed."""
        return sum(one != other for one, other in pairwise(self.sent))


@given(st.randoms(use_true_random=False), st.integers(1, 4), st.integers(1, 3), st.integers(2, 3))
def test_every_image_is_sent_within_its_bound(random: Random, parallel: int, workers: int, models: int) -> None:
    """Whatever arrives when: all are sent, never more than allowed in flight, never two models at a time."""
    bounds = Bounds(after_s=20, after_requests=10)
    at_gate = 2 * parallel * workers
    run = Simulation(bounds, parallel)
    left = 60
    for _ in range(20_000):
        while left and len(run.waiting) < at_gate and random.random() < 0.5:
            run.waiting.append((f"w{random.randrange(workers)}", f"m{random.randrange(models)}", run.now_s))
            left -= 1
        run.step()
        assert len(run.in_flight) <= parallel
        if not left and not run.waiting:
            break
    assert len(run.sent) == 60
    # A turn of each other model: loading, its bound, what is still in flight; then one's own, behind all at the gate.
    turn_s = run.swap_s + run.answer_s + bounds.after_s + run.answer_s + LINGER_S
    assert max(run.waits_s) <= (models - 1) * 2 * turn_s + (at_gate / parallel + 1) * run.answer_s + run.swap_s


def test_models_are_grouped() -> None:
    """Of 200 images of two models in random order, with few at the gate, a handful of swaps is left."""
    run, random = Simulation(Bounds(after_s=1000, after_requests=50), parallel=2), Random(1)
    queued = [random.choice("ab") for _ in range(200)]
    assert sum(one != other for one, other in pairwise(queued)) > 80
    for _ in range(20_000):
        for model in "ab":  # each model's images have their own places at the gate
            while model in queued and sum(one[1] == model for one in run.waiting) < 2:
                queued.remove(model)
                run.waiting.append(("w", model, run.now_s))
        run.step()
    assert len(run.sent) == 200
    assert run.swaps <= 6
