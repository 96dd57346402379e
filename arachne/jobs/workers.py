"""Which workers live: a row each, beaten every few seconds; without a beat for the lease, a worker is lost."""

import os
import socket
from collections.abc import Sequence

from sqlalchemy import text

from arachne.database import Transaction
from arachne.ids import new_id
from arachne.schemas.vlm import VlmSeen

BEAT_S = 2.0
GAP_S = 3 * BEAT_S  # seconds without a beat that are no mere delay

_REGISTER = text("""
INSERT INTO worker (worker_id, kind, host, pid, languages, beat_at, steady_since)
VALUES (:worker_id, :kind, :host, :pid, CAST(:languages AS text[]), now(), now())
""")
_BEAT = text("""
UPDATE worker SET beat_at = now(),
    steady_since = CASE WHEN beat_at < now() - make_interval(secs => :gap_s) THEN now() ELSE steady_since END
WHERE worker_id = :worker_id
""")
# After an outage of the database every worker's beat is old. Once one of them has beaten again for `GAP_S`, the others
# had the time to do so too, and silence is their own.
_EXPIRE = text("""
DELETE FROM worker WHERE beat_at < now() - make_interval(secs => :lease_s) AND EXISTS (
    SELECT 1 FROM worker AS witness
    WHERE witness.beat_at > now() - make_interval(secs => :gap_s)
      AND witness.steady_since < now() - make_interval(secs => :settled_s))
RETURNING worker_id
""")
_TELL = text("""
UPDATE worker SET vlm = CAST(:vlm AS jsonb)
WHERE worker_id = :worker_id AND vlm IS DISTINCT FROM CAST(:vlm AS jsonb)
""")
_TOLD = text("""
SELECT vlm FROM worker WHERE vlm IS NOT NULL AND beat_at > now() - make_interval(secs => :lease_s) ORDER BY worker_id
""")
_FORGET = text("DELETE FROM worker WHERE worker_id = :worker_id")
_REAPED = text("DELETE FROM worker WHERE host = :host AND pid = :pid RETURNING worker_id")


def register(
    transaction: Transaction,
    kind: str,
    *,
    host: str | None = None,
    pid: int | None = None,
    languages: Sequence[str] | None = None,
) -> str:
    """Id of a new worker: this process, unless told otherwise. `languages` are those it can read."""
    worker_id = new_id("wrk")
    row = {"worker_id": worker_id, "kind": kind, "host": host or socket.gethostname(), "pid": pid or os.getpid()}
    transaction.session.execute(_REGISTER, row | {"languages": None if languages is None else list(languages)})
    return worker_id


def beat(transaction: Transaction, worker_id: str) -> bool:
    """Whether the worker still counts as alive. If not, its images are others' by now and it must register anew."""
    values = {"worker_id": worker_id, "gap_s": GAP_S}
    return bool(transaction.session.connection().execute(_BEAT, values).rowcount)


def expire(transaction: Transaction, lease_s: float) -> list[str]:
    """Ids of the workers that are lost, by the database's clock: no beat for `lease_s`, while another one beat."""
    values = {"lease_s": lease_s, "gap_s": GAP_S, "settled_s": min(GAP_S, lease_s)}
    return list(transaction.session.scalars(_EXPIRE, values))


def tell_vlm(transaction: Transaction, worker_id: str, seen: VlmSeen) -> None:
    """How the worker finds the server of models, for the API to show."""
    transaction.session.execute(_TELL, {"worker_id": worker_id, "vlm": seen.model_dump_json()})


def vlm_seen(transaction: Transaction, lease_s: float) -> list[VlmSeen]:
    """How each living worker that asks models finds their server."""
    return [VlmSeen.model_validate(told) for told in transaction.session.scalars(_TOLD, {"lease_s": lease_s})]


def unregister(transaction: Transaction, worker_id: str) -> None:
    """The worker has left in good order."""
    transaction.session.execute(_FORGET, {"worker_id": worker_id})


def expire_process(transaction: Transaction, *, host: str, pid: int) -> list[str]:
    """Ids of the workers that ran in a process now known to be dead."""
    return list(transaction.session.scalars(_REAPED, {"host": host, "pid": pid}))
