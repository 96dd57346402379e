"""The batcher, with a gate and a model in the test's hands: nothing waits for real time but the event loop."""

import asyncio
from collections.abc import Callable, Coroutine

from arachne.actors.assembly import Answer
from arachne.errors import VlmFailed, VlmRefused, VlmUnreachable
from arachne.stages.describe import DescribeReply, DescribeRequest
from arachne.vlm import Breaker
from tests.actors.gate_bench import GOOD, Bench, Model


def in_loop(test: Callable[[Bench], Coroutine[object, object, None]]) -> Callable[[], Coroutine[object, object, None]]:
    """The test with a batcher that runs meanwhile, and ends with nothing in it."""

    async def run() -> None:
        bench = Bench()
        running = asyncio.create_task(bench.batcher.run())
        await test(bench)
        bench.model.hold.set()
        bench.batcher.stop()
        async with asyncio.timeout(20):
            await running
        assert bench.gate.visits[-1].held == frozenset()

    run.__doc__, run.__name__ = test.__doc__, test.__name__
    return run


@in_loop
async def test_so_many_in_flight_and_the_rest_waits(bench: Bench) -> None:
    """Two of five are asked about at a time; each is answered once."""
    bench.add(*"abcde")
    await bench.until(lambda: bench.model.open == 2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert bench.model.open == 2
    bench.model.hold.set()
    await bench.all_answered(5)
    assert bench.model.most == 2
    assert {answer.vlm.description for answer in bench.answers.values()} == {"A dialog."}
    assert len(bench.model.asked) == 5


@in_loop
async def test_images_are_grouped_by_model(bench: Bench) -> None:
    """Whatever order they came in, one model's are asked about before the other's, and never both at a time."""
    bench.model.hold.set()
    for number in range(6):
        bench.add(f"{number}", model="mn"[number % 2])
    await bench.all_answered(6)
    assert [asked.model for asked in bench.model.asked] == ["m"] * 3 + ["n"] * 3
    assert [asked.text for asked in bench.model.asked] == ["0", "2", "4", "1", "3", "5"]


@in_loop
async def test_failures_are_tried_again_and_answers_are_not(bench: Bench) -> None:
    """What may pass next time is tried three times; a refusal or an unusable answer is final. All say why."""
    bench.model.hold.set()
    bench.model.replies = {
        "unlucky": [VlmFailed("status 500"), VlmFailed("status 500"), DescribeReply(GOOD, "stop", "m@1")],
        "broken": [VlmFailed("status 500")],
        "refused": [VlmRefused("takes no pictures")],
        "prose": [DescribeReply("Sure!", "stop", "m@1")],
        "cut": [DescribeReply(GOOD, "length", "m@1")],
        "bug": [ZeroDivisionError()],
    }
    bench.add(*bench.model.replies, "fine")
    await bench.all_answered(7)
    tries = {name: sum(asked.text == name for asked in bench.model.asked) for name in bench.answers}
    assert tries == {"unlucky": 3, "broken": 3, "refused": 1, "prose": 1, "cut": 1, "bug": 1, "fine": 1}
    assert {name for name, answer in bench.answers.items() if answer.vlm} == {"unlucky", "fine"}
    reasons = {name: answer.reason for name, answer in bench.answers.items()}
    assert reasons["broken"] == "status 500"
    assert "length" in reasons["cut"]
    assert all(reasons[name] for name in ("refused", "prose", "bug"))


@in_loop
async def test_slot_is_passed_on_at_once_where_nobody_else_waits(bench: Bench) -> None:
    """The GPU does not wait for a visit to the gate, and the gate is told afterwards."""
    bench.add(*"abcd")
    await bench.until(lambda: bench.model.open == 2)
    bench.gate.opened.clear()
    bench.model.hold.set()
    await bench.all_answered(4)
    bench.gate.opened.set()


@in_loop
async def test_slot_goes_through_the_gate_where_others_wait(bench: Bench) -> None:
    """Another worker's images, or another model's here, may have been waiting for longer."""
    bench.add(*"abcd")
    bench.gate.workers = 2
    await bench.until(lambda: bench.model.open == 2)
    bench.gate.opened.clear()
    bench.model.hold.set()
    await bench.until(lambda: not bench.model.open)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(bench.model.asked) == 2
    bench.gate.opened.set()
    await bench.all_answered(4)


@in_loop
async def test_slots_are_free_while_weights_are_compared(bench: Bench) -> None:
    """The model is asked again as soon as it has answered; the answers come once they are proven."""
    bench.model.hold.set()
    bench.model.proven.clear()
    bench.add(*"abcde")
    await bench.until(lambda: len(bench.model.asked) == 5)
    assert bench.answers == {}
    bench.model.proven.set()
    await bench.all_answered(5)
    assert all(answer.vlm for answer in bench.answers.values())


@in_loop
async def test_unproven_answers_are_told_apart(bench: Bench) -> None:
    """Weights that may have changed meanwhile make an answer that must not be cached."""
    bench.model.hold.set()
    bench.model.replies = {"changed": [DescribeReply(GOOD, "stop", "m@1", cacheable=False)]}
    bench.add("changed", "same")
    await bench.all_answered(2)
    assert (bench.answers["changed"].cacheable, bench.answers["same"].cacheable) == (False, True)


@in_loop
async def test_dropped_images_free_their_places(bench: Bench) -> None:
    """Waiting or in flight: nobody is asked about them any more, and the others move up."""
    bench.add(*"abcd")
    await bench.until(lambda: bench.model.open == 2)
    bench.batcher.drop("a")
    bench.batcher.drop("c")
    await bench.until(lambda: len(bench.model.asked) == 3)
    assert bench.answers == {"a": None, "c": None}
    assert [asked.text for asked in bench.model.asked] == ["a", "b", "d"]
    assert bench.places.claimable(50).limit == 2


async def test_image_dropped_before_anything_was_sent_is_tidied_up() -> None:
    """Its request has a slot and has not begun: it goes back all the same, and the slot is free."""
    bench = Bench()
    bench.batcher._changed = lambda: bench.batcher.drop("a")
    running = asyncio.create_task(bench.batcher.run())
    bench.add("a")
    await bench.all_answered(1)
    bench.batcher.stop()
    await asyncio.wait_for(running, 20)
    assert (bench.answers, bench.model.asked) == ({"a": None}, [])
    assert bench.gate.visits[-1].held == frozenset()


async def test_stopping_answers_what_is_in_flight_and_returns_the_rest() -> None:
    """Nothing is lost: each image is answered or handed back, also one that comes too late."""
    bench = Bench()
    running = asyncio.create_task(bench.batcher.run())
    bench.add(*"abcd")
    await bench.until(lambda: bench.model.open == 2)
    bench.batcher.stop()
    bench.add("late")
    assert bench.answers == {"c": None, "d": None, "late": None}
    bench.model.hold.set()
    await asyncio.wait_for(running, 20)
    assert {name for name, answer in bench.answers.items() if answer} == {"a", "b"}
    assert bench.gate.visits[-1].images == {}


async def test_cutting_off_returns_what_is_in_flight_too() -> None:
    """A model that never answers keeps nobody from leaving."""
    bench = Bench()
    running = asyncio.create_task(bench.batcher.run())
    bench.add(*"abc")
    await bench.until(lambda: bench.model.open == 2)
    bench.batcher.cut_off()
    await asyncio.wait_for(running, 20)
    assert bench.answers == dict.fromkeys("abc")


@in_loop
async def test_database_that_is_away_loses_nothing(bench: Bench) -> None:
    """The gate is asked again later, and told what it missed."""
    bench.model.hold.set()
    bench.gate.fails = 2
    bench.add("a")
    await bench.all_answered(1)
    assert bench.answers["a"].vlm is not None


async def test_server_that_is_down_holds_nobody_up() -> None:
    """After a few failures images go without a description at once; later one tries, and all is well again."""
    now = [0.0]
    breaker = Breaker(failures=3, open_s=5.0, clock=lambda: now[0])
    bench = Bench(breaker=breaker, parallel=1)
    bench.model.hold.set()
    bench.model.replies = {"*": [VlmUnreachable("nobody there")]}
    running = asyncio.create_task(bench.batcher.run())
    bench.add(*(f"{number}" for number in range(20)))
    await bench.all_answered(20)
    assert len(bench.model.asked) == 3
    assert all(answer.vlm is None and answer.reason for answer in bench.answers.values())
    bench.model.replies = {}
    now[0] = 5.0
    bench.add("trial", "after")
    await bench.all_answered(22)
    assert breaker.state == "closed"
    assert bench.answers["trial"].vlm is not None
    bench.batcher.stop()
    await asyncio.wait_for(running, 20)


async def test_server_that_was_well_a_moment_ago_is_waited_for() -> None:
    """A restart of some seconds degrades nobody: images wait for the first trial."""
    now = [0.0]
    bench = Bench(breaker=Breaker(failures=2, open_s=4.0, clock=lambda: now[0]), parallel=1)
    bench.batcher._clock = lambda: now[0]
    bench.model.hold.set()
    bench.model.replies = {name: [VlmFailed("500"), DescribeReply(GOOD, "stop", "m@1")] for name in "ab"}
    running = asyncio.create_task(bench.batcher.run())
    bench.add("well")
    await bench.all_answered(1)
    bench.add("a", "b")
    await bench.until(lambda: len(bench.model.asked) == 3 and not bench.model.open)
    for _ in range(20):
        await asyncio.sleep(0)
    assert set(bench.answers) == {"well"}
    now[0] = 4.0
    bench.batcher.wake()
    await bench.all_answered(3)
    assert all(answer.vlm for answer in bench.answers.values())
    bench.batcher.stop()
    await asyncio.wait_for(running, 20)


async def test_an_image_is_not_tried_for_ever() -> None:
    """Past its time limit no further attempt begins, however few there were."""
    now = [0.0]
    bench = Bench(limit_s=10.0)
    bench.batcher._clock = lambda: now[0]

    class SlowFailure(Model):
        async def describe(
            self, request: DescribeRequest, answered: Callable[[], object] = lambda: None
        ) -> DescribeReply:
            now[0] += 11.0
            self.asked.append(request)
            raise VlmFailed("slow")

    bench.batcher._describer = model = SlowFailure()
    running = asyncio.create_task(bench.batcher.run())
    bench.add("a")
    await bench.all_answered(1)
    assert len(model.asked) == 1
    assert bench.answers["a"] == Answer(None, "slow", 11_000.0)
    bench.batcher.stop()
    await asyncio.wait_for(running, 20)
