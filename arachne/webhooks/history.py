"""Events that have happened: the account's feed, the streams of its jobs, and what is erased of them.

The feed's order is that of commits. An id says when an event was made, and a transaction that makes one may commit
after another that began later; a reader who goes by ids misses it. So events carry their transaction's id, the feed is
read below the oldest transaction still open, and nothing ever appears before a cursor that was given out.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import text
from sqlmodel import Session

STREAM_BATCH = 8  # events of one job read at once, each up to the size of a body
_FEED = text("""
SELECT message_id, CAST(txid AS text) AS place, body FROM webhook_message
WHERE account_id = :account_id AND (txid, message_id) > (CAST(CAST(:txid AS text) AS xid8), :message_id)
  AND txid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY txid, message_id LIMIT :limit
""")
_OF_JOBS = text("""
SELECT wanted.job_id, wanted.after, m.sequence, m.type, m.body
FROM unnest(CAST(:job_ids AS text[]), CAST(:afters AS int[])) AS wanted(job_id, after) CROSS JOIN LATERAL (
    SELECT sequence, type, body FROM webhook_message
    WHERE job_id = wanted.job_id AND sequence > wanted.after ORDER BY sequence LIMIT :batch) AS m
""")
_CANCEL = text("""
UPDATE webhook_delivery d SET state = 'cancelled', reason = 'the job was deleted', finished_at = now(),
    next_attempt_at = NULL, claim_id = NULL, lease_until = NULL
FROM webhook_message m WHERE m.job_id = :job_id AND d.message_id = m.message_id AND d.state = 'pending'
""")
# The type is one of our own words, and the times have one form, so nothing in this text needs escaping.
_REDACT = text(r"""
UPDATE webhook_message SET redacted = true, body = convert_to(format(
    '{"type":"%s","timestamp":"%s","data":{"job_id":"%s","sequence":%s,"redacted"\:true}}', type,
    to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), job_id, sequence), 'UTF8')
WHERE job_id = :job_id AND NOT redacted
""")
# Receivers may answer with what they were sent.
_FORGET_ANSWERS = text("""
UPDATE webhook_attempt SET response = NULL
WHERE response IS NOT NULL AND message_id = ANY(ARRAY(SELECT message_id FROM webhook_message WHERE job_id = :job_id))
""")


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the feed: after this event."""

    txid: int = 0
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """An event of an account: its id, its frozen body, and its place in the feed."""

    message_id: str
    body: bytes
    position: Position


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event of a job."""

    sequence: int
    type: str
    body: bytes


def read_feed(session: Session, account_id: str, after: Position, limit: int) -> list[FeedEvent]:
    """The account's next events, at most `limit`, in the order of commits."""
    values = {"account_id": account_id, "txid": str(after.txid), "message_id": after.message_id, "limit": limit}
    rows = session.connection().execute(_FEED, values)
    return [FeedEvent(row.message_id, row.body, Position(int(row.place), row.message_id)) for row in rows]


def read_job_events(session: Session, wanted: Collection[tuple[str, int]]) -> dict[tuple[str, int], list[JobEvent]]:
    """The next events of jobs, a batch for each pair of job and sequence number after which they are wanted."""
    pairs = sorted(wanted)
    values = {"job_ids": [job_id for job_id, _ in pairs], "afters": [after for _, after in pairs]}
    found: dict[tuple[str, int], list[JobEvent]] = {pair: [] for pair in pairs}
    for row in session.connection().execute(_OF_JOBS, values | {"batch": STREAM_BATCH}):
        found[row.job_id, row.after].append(JobEvent(row.sequence, row.type, row.body))
    return {pair: sorted(events, key=lambda event: event.sequence) for pair, events in found.items()}


def erase_events(session: Session, job_id: str) -> int:
    """Number of the job's events whose bodies now say no more than that they happened; none of them is sent any more.

    For a job being deleted. Locks deliveries and then events, after whatever the caller has locked of the job. What
    receivers answered is forgotten last, when attempts that were being recorded are on record.
    """
    session.connection().execute(_CANCEL, {"job_id": job_id})
    redacted = session.connection().execute(_REDACT, {"job_id": job_id}).rowcount
    session.connection().execute(_FORGET_ANSWERS, {"job_id": job_id})
    return redacted
