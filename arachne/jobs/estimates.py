"""Where a job stands in the line and how long things take, from what waits now and how fast images were read lately.

By Little's law images are read at the rate (images in hand) / (mean seconds one was in hand): right from the first
image that was read, and whatever came before a pause. Without one in the last minutes nothing is promised.
"""

from dataclasses import dataclass

from sqlalchemy import text

from arachne.database import Transaction
from arachne.jobs.scans import accounts_with
from arachne.schemas.job import QueueView

RECENT_S = 600
RECENT_IMAGES = 64
MIN_RETRY_S, MAX_RETRY_S, UNKNOWN_RETRY_S = 1.0, 3600.0, 10.0

_PACE = text("""
SELECT (SELECT count(*) FROM image WHERE state = 'running') AS in_hand, avg(held_s) AS held_s FROM (
    SELECT extract(epoch FROM finished_at - started_at) AS held_s FROM image
    WHERE state IN ('completed', 'failed') AND NOT cached AND started_at IS NOT NULL
      AND finished_at > now() - make_interval(secs => :recent_s)
    ORDER BY finished_at DESC LIMIT :recent_images) AS recent
""")
# What part of all that is read is the account's, while those wait that wait now.
_PART = text(f"""
WITH RECURSIVE {accounts_with("queued")}
SELECT mine.weight / (mine.weight + (
    SELECT coalesce(sum(weight), 0) FROM queued JOIN account_share USING (account_id)
    WHERE account_id <> :account_id)) FROM account_share AS mine WHERE account_id = :account_id
""")  # noqa: S608  # the states are ours
# `first` and `last` are the turns of the account at which the job's next and last waiting image come, counted from 1.
# Of other accounts those images go before whose tags are lower, by which claims take turns.
_TURNS = text(f"""
WITH RECURSIVE mine AS (
    SELECT account_id, due_at, image_id FROM image
    WHERE job_id = :job_id AND state IN ('queued', 'fetching', 'parked')),
head AS (SELECT * FROM mine ORDER BY due_at, image_id LIMIT 1),
tail AS (SELECT * FROM mine ORDER BY due_at DESC, image_id DESC LIMIT 1),
line AS (
    SELECT i.due_at, i.image_id FROM image i, tail WHERE i.state = 'queued' AND i.account_id = tail.account_id
       AND (i.due_at, i.image_id) <= (tail.due_at, tail.image_id)
    UNION ALL
    SELECT i.due_at, i.image_id FROM image i, tail WHERE i.state = 'fetching' AND i.account_id = tail.account_id
       AND (i.due_at, i.image_id) <= (tail.due_at, tail.image_id)
    UNION ALL
    SELECT i.due_at, i.image_id FROM image i, tail WHERE i.state = 'parked' AND i.account_id = tail.account_id
       AND (i.due_at, i.image_id) <= (tail.due_at, tail.image_id)),
{accounts_with("queued")},
begins AS NOT MATERIALIZED (
    SELECT account_id, weight, greatest(served.tag + 1 / weight, (SELECT coalesce(max(tag), 0) FROM served)) AS tag
    FROM account_share LEFT JOIN served USING (account_id)),
turn AS MATERIALIZED (
    SELECT ours.account_id, count(*) AS last, ours.tag + (count(*) - 1) / ours.weight AS last_tag,
           count(*) FILTER (WHERE (line.due_at, line.image_id) <= (head.due_at, head.image_id)) AS first,
           ours.tag + (count(*) FILTER (WHERE (line.due_at, line.image_id) <= (head.due_at, head.image_id)) - 1)
               / ours.weight AS first_tag
    FROM line CROSS JOIN head JOIN begins AS ours ON ours.account_id = head.account_id
    GROUP BY ours.account_id, ours.tag, ours.weight),
other AS (
    SELECT least(depth.n, greatest(ceil((turn.first_tag - theirs.tag) * theirs.weight), 0)) AS before_first,
           depth.n AS before_last
    FROM turn CROSS JOIN queued JOIN begins AS theirs ON theirs.account_id = queued.account_id
         CROSS JOIN LATERAL (SELECT count(*) AS n FROM (
             SELECT 1 FROM image WHERE state = 'queued' AND account_id = theirs.account_id
             LIMIT CAST(greatest(ceil((turn.last_tag - theirs.tag) * theirs.weight), 0) AS bigint)) AS few) AS depth
    WHERE theirs.account_id <> turn.account_id)
SELECT first, last, (SELECT coalesce(sum(before_first), 0) FROM other) AS before_first,
       (SELECT coalesce(sum(before_last), 0) FROM other) AS before_last
FROM turn
""")  # noqa: S608  # the states are ours


@dataclass(frozen=True)
class Pace:
    """How fast images were read lately: so many seconds each, so many at a time."""

    held_s: float
    in_hand: int

    @property
    def per_s(self) -> float:
        """Images a second."""
        return max(self.in_hand, 1) / max(self.held_s, 1e-3)


def measure_pace(transaction: Transaction) -> Pace | None:
    """The pace of the last images; None where none was read lately."""
    found = transaction.session.execute(_PACE, {"recent_s": RECENT_S, "recent_images": RECENT_IMAGES}).one()
    return None if found.held_s is None else Pace(float(found.held_s), found.in_hand)


def find_place(transaction: Transaction, job_id: str) -> QueueView | None:
    """Where the job's next image stands, and when its last one will have been read; None where none waits."""
    found = transaction.session.execute(_TURNS, {"job_id": job_id}).first()
    if found is None:
        return None
    position = int(found.first) - 1 + int(found.before_first)
    pace = measure_pace(transaction)
    if pace is None:
        return QueueView(position=position, eta_seconds=None)
    turns = int(found.last) + int(found.before_last)
    return QueueView(position=position, eta_seconds=round((turns - 0.5) / pace.per_s + pace.held_s, 1))


def drain_s(transaction: Transaction, images: int, *, account_id: str | None = None) -> float:
    """Seconds until so many images have been read, of the account where one is given; what clients are told to wait."""
    pace = measure_pace(transaction)
    if pace is None:
        return UNKNOWN_RETRY_S
    part = 1.0 if account_id is None else float(transaction.session.scalar(_PART, {"account_id": account_id}) or 1)
    return min(max(images / (pace.per_s * part), MIN_RETRY_S), MAX_RETRY_S)
