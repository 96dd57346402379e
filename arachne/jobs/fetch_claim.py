"""Images to be fetched, handed to fetchers: fair between accounts and hosts, each claim fenced by its `claim_id`.

An image is held while it has a `worker_id`; that worker's beat is the lease.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import Row, text

from arachne.database import Transaction
from arachne.jobs.closing import start_jobs
from arachne.locks import Lock, lock
from arachne.settings import Settings

WINDOW = 128  # pairs of account and host walked in one claim
PER_HOST = 8  # images fetched from one host at a time, over all accounts and workers
PER_ACCOUNT = 32  # and for one account, so that many slow hosts of its are no way round
PER_ACCOUNT_WHEN_FULL = 4  # with few places left: whoever comes now finds one, however many accounts have slow hosts

# Pairs of account and host are walked by a loose index scan from where the last claim ended, each giving at most what
# its host may have in flight: however many images wait for a slow host, they never fill the window.
_CLAIM = text("""
WITH RECURSIVE walked AS (
    (SELECT account_id, source_host FROM image
     WHERE state = 'fetching' AND (account_id, source_host) > (:account_id, :host)
     ORDER BY account_id, source_host LIMIT 1)
    UNION ALL
    SELECT following.account_id, following.source_host FROM walked CROSS JOIN LATERAL (
        SELECT i.account_id, i.source_host FROM image i
        WHERE i.state = 'fetching' AND (i.account_id, i.source_host) > (walked.account_id, walked.source_host)
        ORDER BY i.account_id, i.source_host LIMIT 1) AS following),
seen AS MATERIALIZED (SELECT account_id, source_host FROM walked LIMIT :window),
held AS MATERIALIZED (
    SELECT account_id, source_host FROM image WHERE state = 'fetching' AND worker_id IS NOT NULL),
by_host AS (SELECT source_host, count(*) AS n FROM held GROUP BY source_host),
by_account AS (SELECT account_id, count(*) AS n FROM held GROUP BY account_id),
head AS (
    SELECT h.image_id, seen.account_id, seen.source_host, h.fetch_at, coalesce(by_host.n, 0) AS at_host,
           coalesce(by_host.n, 0) + row_number() OVER (
               PARTITION BY seen.source_host ORDER BY h.place, h.fetch_at, h.image_id) AS host_rank
    FROM seen LEFT JOIN by_host USING (source_host) CROSS JOIN LATERAL (
        SELECT image_id, fetch_at, row_number() OVER (ORDER BY fetch_at, image_id) AS place
        FROM (SELECT image_id, fetch_at FROM image i
              WHERE i.state = 'fetching' AND i.account_id = seen.account_id AND i.source_host = seen.source_host
                AND i.fetch_at <= now() AND i.worker_id IS NULL
              ORDER BY fetch_at, image_id LIMIT greatest(:per_host - coalesce(by_host.n, 0), 0)) AS first_ones) AS h),
ranked AS (
    SELECT head.image_id, head.fetch_at, coalesce(by_account.n, 0) + row_number() OVER (
               PARTITION BY head.account_id ORDER BY head.host_rank, head.fetch_at, head.image_id) AS rank
    FROM head LEFT JOIN by_account USING (account_id) WHERE head.host_rank <= :per_host),
picked AS MATERIALIZED (
    SELECT image_id, rank, fetch_at FROM ranked WHERE rank <= :per_account
    ORDER BY rank, fetch_at, image_id LIMIT 4 * :limit),
locked AS MATERIALIZED (
    SELECT i.image_id FROM picked JOIN image i USING (image_id) WHERE i.state = 'fetching' AND i.worker_id IS NULL
    ORDER BY picked.rank, picked.fetch_at, i.image_id LIMIT :limit FOR UPDATE OF i SKIP LOCKED),
claimed AS (
    UPDATE image i SET claim_id = :claim_id, worker_id = :worker_id FROM locked WHERE i.image_id = locked.image_id
    RETURNING i.image_id, i.job_id, i.account_id, i.source_url, i.name, i.fetch_attempts)
SELECT c.*, last.account_id AS last_account, last.source_host AS last_host, (SELECT count(*) FROM seen) AS seen_count
FROM (SELECT 1) AS always LEFT JOIN claimed c ON true
     LEFT JOIN (SELECT account_id, source_host FROM seen ORDER BY account_id DESC, source_host DESC LIMIT 1) AS last
     ON true
""")
_JOBS = text("SELECT job_id, options, request_id, traceparent FROM job WHERE job_id = ANY(:job_ids)")
_STILL = text("SELECT image_id, claim_id FROM image WHERE image_id = ANY(:image_ids) AND state = 'fetching'")


@dataclass(frozen=True, slots=True)
class Fetch:
    """An image this worker alone may fetch. `attempts` counts earlier tries; `options` are as stored on its job."""

    image_id: str
    job_id: str
    account_id: str
    claim_id: UUID
    url: str
    name: str | None
    attempts: int
    options: dict[str, object]
    request_id: str | None = None
    traceparent: str | None = None

    @property
    def ids(self) -> dict[str, str | None]:
        """What log records about it name."""
        return {"request_id": self.request_id, "job_id": self.job_id, "image_id": self.image_id}


class Cursor(NamedTuple):
    """The pair of account and host to go on after; empty at the beginning."""

    account_id: str = ""
    host: str = ""


class Fetches(NamedTuple):
    """What one claim gave, and where to go on; the cursor is empty when the walk has come to its end."""

    images: list[Fetch]
    cursor: Cursor


def claim_fetches(
    transaction: Transaction,
    worker_id: str,
    limit: int,
    settings: Settings,
    *,
    cursor: Cursor | None = None,
    nearly_full: bool = False,
) -> Fetches:
    """Up to `limit` due images, now held by `worker_id`, their jobs `processing`.

    A worker that is `nearly_full` gets images of accounts alone that have hardly any under way.
    """
    lock(transaction, Lock.FETCHES)  # before the claim's own snapshot is taken: each counts what the others hold
    claim_id = uuid4()
    per_account = PER_ACCOUNT_WHEN_FULL if nearly_full else PER_ACCOUNT
    bounds = {"window": WINDOW, "per_host": PER_HOST, "per_account": per_account, "limit": limit}
    at = cursor or Cursor()
    holder = {"claim_id": claim_id, "worker_id": worker_id}
    values = {"account_id": at.account_id, "host": at.host, **bounds, **holder}
    rows = transaction.session.execute(_CLAIM, values).all()
    walked_all = rows[0].seen_count < WINDOW
    images = _load(transaction, rows, claim_id) if rows[0].image_id is not None else []
    start_jobs(transaction, {image.job_id for image in images}, settings)
    return Fetches(images, Cursor() if walked_all else Cursor(rows[0].last_account, rows[0].last_host))


def find_lost_fetches(transaction: Transaction, claims: Collection[tuple[str, UUID]]) -> list[tuple[str, UUID]]:
    """Of these claims, as image ids with claim ids, those that hold no more: cancelled, or others' by now."""
    rows = transaction.session.execute(_STILL, {"image_ids": [image_id for image_id, _ in claims]})
    held = {(row.image_id, row.claim_id) for row in rows}
    return [one for one in claims if one not in held]


def _load(transaction: Transaction, rows: Sequence[Row[Any]], claim_id: UUID) -> list[Fetch]:
    job_ids = sorted({row.job_id for row in rows})
    jobs = {row.job_id: row for row in transaction.session.execute(_JOBS, {"job_ids": job_ids})}
    return [
        Fetch(
            image_id=row.image_id,
            job_id=row.job_id,
            account_id=row.account_id,
            claim_id=claim_id,
            url=row.source_url,
            name=row.name,
            attempts=row.fetch_attempts,
            options=jobs[row.job_id].options,
            request_id=jobs[row.job_id].request_id,
            traceparent=jobs[row.job_id].traceparent,
        )
        for row in rows
    ]
