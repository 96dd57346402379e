"""The gate to a GPU over all workers: slots for requests in flight, and one turn of one model after the other.

A slot is an advisory lock of the visiting worker's session, so that a crash frees it. A session tells in its name whose
it is, so that one of a worker that is lost but not dead, as a frozen one is, can be ended by others. Visits to one gate
come one after the other, since each locks the gate's row; what is decided there is decided by `turns`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from hashlib import sha256
from typing import Any, NamedTuple, TypedDict

from sqlalchemy import Row, text

from arachne.database import Transaction
from arachne.jobs.turns import Bounds, Line, allowance, known_turn, next_turn, note_answered, note_sent

CHANNEL = "arachne_gate"
FRESH_S = 3.0  # lines of a worker that has not come by for so long count no more; it is dead or frozen

_SESSION = "arachne gate "  # and the worker's id: what the session is called in pg_stat_activity

_MAKE = text("INSERT INTO gate (backend, turn, lines) VALUES (:backend, '{}', '{}') ON CONFLICT DO NOTHING")
_ENTER = text("""
SELECT turn, lines, extract(epoch FROM clock_timestamp())::float8 AS now_s,
       set_config('application_name', :session, false)
FROM gate WHERE backend = :backend FOR UPDATE
""")
_LEAVE = text("""
UPDATE gate SET turn = CAST(:turn AS jsonb), lines = CAST(:lines AS jsonb) WHERE backend = :backend
RETURNING CASE WHEN :news THEN pg_notify(:channel, :backend) END
""")
_SLOTS = text("""
SELECT objid::int AS slot, pid = pg_backend_pid() AS ours FROM pg_locks
WHERE locktype = 'advisory' AND classid = :class_id AND objsubid = 2 AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
""")
_TAKE = text("SELECT pg_try_advisory_lock(:class_id, :slot)")
_FREE = text("SELECT pg_advisory_unlock(:class_id, :slot)")
_END_LOST = text("""
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity AS s
WHERE datname = current_database() AND usename = current_user AND starts_with(application_name, :session)
  AND NOT EXISTS (SELECT 1 FROM worker WHERE :session || worker_id = s.application_name)
  AND EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = s.pid AND locktype = 'advisory' AND objsubid = 2)
""")


@dataclass(frozen=True)
class Gate:
    """A gate as its settings have it. `backend` names the server behind it."""

    backend: str
    parallel: int
    bounds: Bounds

    @property
    def class_id(self) -> int:
        """The class its slots' locks have: 31 bits, a key space apart from that of the locks with one number."""
        return int.from_bytes(sha256(f"gate {self.backend}".encode()).digest()[:4]) >> 1


class Images(NamedTuple):
    """A worker's images for one model; the first has been waiting for `oldest_age_s`."""

    waiting: int = 0
    coming: int = 0
    oldest_age_s: float = 0.0


@dataclass(frozen=True)
class Told:
    """What a worker tells at the gate: its images by model, its slots in flight, and the models that just answered."""

    worker: str
    images: Mapping[str, Images] = field(default_factory=dict)
    held: frozenset[int] = frozenset()
    answered: frozenset[str] = frozenset()


class _Lines(TypedDict):
    """A worker's lines as the row keeps them."""

    at_s: float
    lines: list[tuple[str, int, int, float]]


class Granted(NamedTuple):
    """Slots for as many requests to `model`, whose turn it is.

    `free` slots are left to others, and `workers` counts those that have images for the GPU.
    """

    slots: tuple[int, ...]
    model: str | None
    workers: int
    free: int


def visit(transaction: Transaction, gate: Gate, told: Told, worker_id: str) -> Granted:
    """What the worker may send now. Always called on the one session that keeps its slots.

    Slots that are not told as held are free afterwards; those that a lost session gave away are taken again, if they
    can be.
    """
    row = _enter(transaction, gate, worker_id)
    before, stored = known_turn(row.turn), _fresh(row.lines, told.worker, row.now_s)
    mine = [
        Line(told.worker, model, *one[:2], row.now_s - one.oldest_age_s) for model, one in sorted(told.images.items())
    ]
    lines = mine + [Line(worker, *line) for worker, one in stored.items() for line in one["lines"]]
    turn = note_answered(before, row.now_s) if before.model in told.answered else before
    turn = next_turn(turn, lines, row.now_s, gate.bounds)
    used = _settle_slots(transaction, gate, told.held)
    if not used:
        turn = replace(turn, drained=True)
    free = [slot for slot in range(gate.parallel) if slot not in used]
    allowed = free[: allowance(told.worker, turn, lines, len(free))]
    slots = tuple(slot for slot in allowed if _take(transaction, gate, slot))
    turn = note_sent(turn, lines, len(slots))
    if mine:
        left = [(one.model, one.waiting - len(slots) * (one.model == turn.model), *astuple(one)[3:]) for one in mine]
        stored[told.worker] = {"at_s": row.now_s, "lines": left}
    news = {"news": bool(told.answered) or turn.model != before.model, "channel": CHANNEL}
    told_turn, told_lines = json.dumps(asdict(turn)), json.dumps(stored)
    transaction.session.execute(_LEAVE, {"backend": gate.backend, "turn": told_turn, "lines": told_lines} | news)
    return Granted(slots, turn.model, len(stored), len(free) - len(slots))


def end_lost_sessions(transaction: Transaction) -> int:
    """Number of sessions ended that keep slots for a worker that is lost; one that lives after all makes a new one."""
    return int(transaction.session.scalar(_END_LOST, {"session": _SESSION}) or 0)


def _enter(transaction: Transaction, gate: Gate, worker_id: str) -> Row[Any]:
    """The gate's row, nobody else's until the transaction ends."""
    session, key = transaction.session, {"backend": gate.backend, "session": _SESSION + worker_id}
    row = session.execute(_ENTER, key).first()
    if row is None:
        session.execute(_MAKE, key)
        row = session.execute(_ENTER, key).one()
    return row


def _settle_slots(transaction: Transaction, gate: Gate, held: frozenset[int]) -> set[int]:
    """The slots in use by anybody, once ours are those that are held and no others."""
    rows = transaction.session.execute(_SLOTS, {"class_id": gate.class_id}).all()
    ours, others = {row.slot for row in rows if row.ours}, {row.slot for row in rows if not row.ours}
    for slot in ours - held:
        transaction.session.execute(_FREE, {"class_id": gate.class_id, "slot": slot})
    for slot in held - ours - others:
        _take(transaction, gate, slot)
    return others | held


def _take(transaction: Transaction, gate: Gate, slot: int) -> bool:
    return bool(transaction.session.scalar(_TAKE, {"class_id": gate.class_id, "slot": slot}))


def _fresh(stored: Mapping[str, _Lines], worker: str, now_s: float) -> dict[str, _Lines]:
    """What the other workers told, as far as they have come by lately."""
    return {name: one for name, one in stored.items() if name != worker and now_s - one["at_s"] < FRESH_S}
