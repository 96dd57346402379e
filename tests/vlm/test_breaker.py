"""The circuit breaker, by a clock of its own."""

import asyncio

import pytest

from arachne.errors import VlmAnswerRejected, VlmBusy, VlmError, VlmFailed, VlmModelMissing, VlmTimedOut, VlmUnreachable
from arachne.vlm import Breaker


class Clock:
    """Stands still until told otherwise."""

    now_s = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    """A clock."""
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    """Opens for ten seconds after three failures."""
    return Breaker(failures=3, open_s=10, clock=clock)


def fail(breaker: Breaker, error: BaseException, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(type(error)), breaker.passage():
            raise error


def succeed(breaker: Breaker) -> None:
    with breaker.passage():
        pass


@pytest.mark.parametrize("error", [VlmUnreachable("x"), VlmTimedOut("x"), VlmFailed("x")])
def test_it_opens_after_failures_in_a_row(breaker: Breaker, error: VlmError) -> None:
    """A success in between starts the count again; once open, nobody waits for the server."""
    fail(breaker, error, 2)
    succeed(breaker)
    fail(breaker, error, 2)
    assert (breaker.state, breaker.admits) == ("closed", True)
    fail(breaker, error)
    assert (breaker.state, breaker.admits, breaker.retry_in_s) == ("open", False, 10)
    with pytest.raises(VlmUnreachable, match="3 times in a row") as caught, breaker.passage():
        pytest.fail("let through")
    assert caught.value.retry_after_s == 10


@pytest.mark.parametrize("error", [VlmBusy("x"), VlmModelMissing("x"), VlmAnswerRejected("x")])
def test_a_server_that_answers_is_well(breaker: Breaker, error: VlmError) -> None:
    """A full queue, a missing model and a bad answer are no illness of the server."""
    fail(breaker, VlmFailed("x"), 2)
    fail(breaker, error)
    fail(breaker, VlmFailed("x"), 2)
    assert breaker.state == "closed"


def test_one_request_tries_and_closes_it(breaker: Breaker, clock: Clock) -> None:
    """When the wait is over one goes ahead; the others wait for what becomes of it."""
    fail(breaker, VlmFailed("x"), 3)
    clock.now_s += 9.9
    assert breaker.state == "open"
    clock.now_s += 0.1
    assert (breaker.state, breaker.admits) == ("half_open", True)
    with breaker.passage():
        assert (breaker.state, breaker.admits) == ("half_open", False)
        with pytest.raises(VlmUnreachable), breaker.passage():
            pytest.fail("let a second one through")
    assert breaker.state == "closed"


def test_each_trial_that_fails_doubles_the_wait(breaker: Breaker, clock: Clock) -> None:
    """Up to six times the first; after a success it is the first again."""
    fail(breaker, VlmFailed("x"), 3)
    waits = []
    for _ in range(5):
        waits.append(breaker.retry_in_s)
        clock.now_s += breaker.retry_in_s
        fail(breaker, VlmFailed("x"))
    assert waits == [10, 20, 40, 60, 60]
    clock.now_s += 60
    succeed(breaker)
    fail(breaker, VlmFailed("x"), 3)
    assert breaker.retry_in_s == 10


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyError("ours")])
def test_a_trial_that_is_given_up_lets_another_try(breaker: Breaker, clock: Clock, error: BaseException) -> None:
    """It shows nothing about the server, and blocks nobody."""
    fail(breaker, VlmFailed("x"), 3)
    clock.now_s += 10
    fail(breaker, error)
    assert (breaker.state, breaker.admits) == ("half_open", True)


def test_a_late_success_closes_and_a_late_failure_changes_no_wait(breaker: Breaker, clock: Clock) -> None:
    """Requests sent before it opened end after it."""
    with breaker.passage():
        fail(breaker, VlmFailed("x"), 3)
        clock.now_s += 4
    assert breaker.state == "closed"
    passage = breaker.passage()
    passage.__enter__()
    fail(breaker, VlmFailed("x"), 3)
    clock.now_s += 4
    late = VlmTimedOut("x")
    passage.__exit__(type(late), late, None)
    assert breaker.retry_in_s == 6
