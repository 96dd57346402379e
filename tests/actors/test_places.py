"""How many images are let in before the GPU: enough to keep it busy, few enough not to wait long."""

from arachne.actors.places import Claimable, Places

MODELS = ("small", "large")


def places(parallel: int = 2, models: tuple[str, ...] = MODELS) -> Places:
    """Places with nobody in them."""
    return Places(parallel, models, most=8)


def fill(made: Places, model: str, start: int = 0) -> int:
    """How many images of a model come in until its places are full."""
    for number in range(start, 99):
        if model in made.claimable(50).but_for:
            return number - start
        made.enter((model, number), model)
    raise AssertionError("there is no end to it")


def test_twice_what_may_be_in_flight_comes_in() -> None:
    """One half of the places is for the model whose turn it is, so that another's images can't fill them all."""
    made = places()
    made.learn("small", 1, 0)
    assert fill(made, "large") == 2
    assert made.claimable(50) == Claimable(2, ("large",))
    assert fill(made, "small") == 2
    assert made.claimable(50).but_for == MODELS


def test_one_model_has_all_places() -> None:
    """There is nobody to keep any for."""
    assert fill(places(models=("only",)), "only") == 4


def test_asking_makes_room_and_waiting_does_not() -> None:
    """What a model has in hand is bounded by the gate, not here."""
    made = places(models=("only",))
    assert fill(made, "only") == 4
    made.ask(("only", 0))
    assert made.claimable(50) == Claimable(1, ())
    made.leave(("only", 1))
    assert made.claimable(50) == Claimable(2, ())
    made.put_off(("only", 0))
    assert made.claimable(50) == Claimable(1, ())


def test_workers_share_the_places() -> None:
    """Three workers let in as many together as one alone, as far as that can be divided."""
    made = places(parallel=6)
    made.learn("small", 3, 0)
    assert fill(made, "small") == fill(made, "large") == 2


def test_images_without_a_model_are_let_in_always() -> None:
    """The limit is for those that a model is to describe: `fast` is read while the GPU is busy."""
    made = places(models=("only",))
    fill(made, "only")
    assert made.claimable(3) == Claimable(3, ("only",))
    assert Places(2, (), most=8).claimable(3) == Claimable(3, ())


def test_idle_gpu_lets_more_in_until_it_is_busy() -> None:
    """Where images come slower than the model answers, more are read at a time; and no more once some wait."""
    made = places(models=("only",))
    for number in range(3):  # each finds the GPU idle, and is answered before the next one comes
        made.enter(("only", number), "only")
        made.wait(("only", number))
        made.ask(("only", number))
        made.leave(("only", number))
        made.learn("only", 1, 2)
    assert fill(made, "only") == 4 + 3
    made.learn("only", 1, 0)
    for number in range(6):
        made.wait(("only", number))
    assert made.claimable(50).but_for == ("only",)
    for number in range(7):
        made.leave(("only", number))
    assert fill(made, "only") < 4 + 3


def test_images_on_their_way_are_told_apart_from_waiting_ones() -> None:
    """Only those being read, or put off, are still to come."""
    made = places()
    for number in range(3):
        made.enter(number, "small")
    made.wait(0)
    made.ask(1)
    assert made.coming() == {"small": 1}
    made.put_off(1)
    assert made.coming() == {"small": 2}
