"""The gate over workers: each here is a session of its own, as workers have them."""

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import text

from arachne.database import Database
from arachne.jobs import slots
from arachne.jobs.slots import Gate, Granted, Images, Told, end_lost_sessions, visit
from arachne.jobs.turns import Bounds
from arachne.jobs.workers import register, unregister

GATE = Gate("http://127.0.0.1:11434", 2, Bounds(after_s=1000, after_requests=5))


class Visitor:
    """A worker at the gate."""

    def __init__(self, url: str, name: str, gate: Gate) -> None:
        self.database, self.name, self.gate = Database(url, pool_size=1), name, gate
        self.worker_id = self.database.run(register, "gpu")
        self.held: frozenset[int] = frozenset()

    def ask(self, *, answered: str = "", **images: int | Images) -> Granted:
        """Come by with so many images waiting by model; what is granted is held."""
        told = {model: one if isinstance(one, Images) else Images(one) for model, one in images.items()}
        granted = self.database.run(
            visit,
            self.gate,
            Told(self.name, told, self.held, frozenset({answered} if answered else ())),
            self.worker_id,
        )
        self.held |= frozenset(granted.slots)
        return granted

    def finish(self, model: str, **images: int) -> Granted:
        """Come by with one request less in flight."""
        self.held -= {min(self.held)}
        return self.ask(answered=model, **images)

    def die(self) -> None:
        """The session is gone, as after kill -9."""
        self.database.close()


@pytest.fixture
def visitor(database_url: str) -> Iterator[Callable[..., Visitor]]:
    """Makes workers."""
    made: list[Visitor] = []

    def make(name: str, gate: Gate = GATE) -> Visitor:
        made.append(Visitor(database_url, name, gate))
        return made[-1]

    yield make
    for one in made:
        one.die()


def test_three_workers_hold_so_many_in_flight_together(visitor) -> None:
    """Not three times as many; and what one gives back another gets."""
    first, second, third = (visitor(name) for name in ("first", "second", "third"))
    assert len(first.ask(m=1).slots) == 1
    assert len(second.ask(m=1).slots) == 1
    assert third.ask(m=4).slots == ()
    assert first.finish("m").slots == ()
    assert len(third.ask(m=4).slots) == 1
    assert second.ask(m=4).slots == ()


def test_free_slot_goes_to_whoever_waits_longest(visitor) -> None:
    """A worker that just had one does not take it again before the others."""
    busy, patient = visitor("busy"), visitor("patient")
    assert len(busy.ask(m=9).slots) == 2
    assert patient.ask(m=Images(3, 0, oldest_age_s=30)).slots == ()
    assert busy.finish("m", m=9).slots == ()
    assert len(patient.ask(m=Images(3, 0, oldest_age_s=30)).slots) == 1


def test_slots_of_a_dead_worker_are_free_at_once(visitor, database, monkeypatch) -> None:
    """Its images hold nobody up for longer than it takes them to be out of date."""
    dead, living = visitor("dead"), visitor("living")
    assert len(dead.ask(m=9).slots) == 2
    dead.ask(m=Images(9, 0, 50))
    dead.die()
    monkeypatch.setattr(slots, "FRESH_S", 0.0)
    assert len(living.ask(m=2).slots) == 2


def test_one_order_of_models_for_all(visitor) -> None:
    """The second worker's model has to wait for its turn, then for the first one's requests in flight."""
    first, second = visitor("first"), visitor("second")
    assert first.ask(a=1, b=0).model == "a"
    assert second.ask(b=1).slots == ()
    for _ in range(5):
        assert len(first.finish("a", a=1).slots) == 1
    assert second.ask(b=1) == Granted((), "b", 2, 1)
    assert first.ask(a=1).slots == ()
    assert first.finish("a", a=1).slots == ()
    assert len(second.ask(b=1).slots) == 1
    assert first.ask(a=1).model == "b"


def test_images_on_their_way_keep_the_turn(visitor) -> None:
    """A worker whose images are still being read need not fear that another's model is loaded meanwhile."""
    first, second = visitor("first"), visitor("second")
    first.ask(a=1)
    assert first.finish("a", a=Images(0, coming=2)).slots == ()
    assert second.ask(b=3) == Granted((), "a", 2, 2)


def test_lost_session_takes_its_slots_again(visitor) -> None:
    """Its requests are still in flight, so nobody else may have their places."""
    mine, other = visitor("mine"), visitor("other")
    assert len(mine.ask(m=2).slots) == 2
    mine.database.close()
    mine.database = Database(other.database.url, pool_size=1)
    mine.ask()
    assert other.ask(m=1).slots == ()


def test_other_servers_have_other_gates(visitor) -> None:
    """Two servers of models don't wait for each other."""
    assert len(visitor("first").ask(m=2).slots) == 2
    assert len(visitor("second", Gate("http://127.0.0.1:1", 2, GATE.bounds)).ask(m=2).slots) == 2


def test_whoever_waits_is_told_of_answers_and_turns(visitor, database_url) -> None:
    """A notification goes out when something may have come free, and none otherwise."""
    import psycopg

    address = database_url.replace("postgresql+psycopg", "postgresql")
    worker = visitor("worker")
    with psycopg.connect(address, autocommit=True) as listener:
        listener.execute(f"LISTEN {slots.CHANNEL}")
        worker.ask(m=1)
        worker.ask(m=1)
        worker.finish("m")
        told = [one.payload for one in listener.notifies(timeout=5, stop_after=2)]
    assert told == [GATE.backend] * 2


def test_gate_survives_what_an_older_visit_left(visitor, database) -> None:
    """A worker stopped for long finds its lines gone and its slots kept."""
    one = visitor("one")
    one.ask(m=1)
    with database.transaction() as transaction:
        transaction.session.execute(text("UPDATE gate SET lines = '{}'"))
    assert len(one.ask(m=1).slots) == 1
    assert len(one.held) == 2


def test_what_a_newer_version_adds_to_the_turn_is_left_out(visitor) -> None:
    """Workers are replaced one by one: for a while both versions stand at the gate."""
    mine = visitor("mine")
    mine.ask(m=1)
    newer = text("""UPDATE gate SET turn = (turn::jsonb || '{"colour": "green"}'::jsonb)""")
    mine.database.run(lambda transaction: transaction.session.execute(newer))
    assert mine.ask(m=1).model == "m"


def test_slots_of_a_lost_worker_that_lives_are_anothers(visitor) -> None:
    """A frozen worker's session keeps its locks, so it is ended; living workers' sessions go on."""
    frozen, living = visitor("frozen"), visitor("living")
    assert len(frozen.ask(m=2).slots) == 2
    assert living.database.run(end_lost_sessions) == 0
    assert living.ask(m=1).slots == ()
    living.database.run(unregister, frozen.worker_id)
    assert living.database.run(end_lost_sessions) == 1
    assert len(living.ask(m=1).slots) == 1
    frozen.worker_id = frozen.database.run(register, "gpu")
    assert frozen.ask(m=1).slots == ()
    assert living.database.run(end_lost_sessions) == 0
