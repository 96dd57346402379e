"""Phase one of a delivery: due ones are claimed for this process, so that nobody else sends them meanwhile.

Endpoints are walked by a loose index scan from where the last claim ended, each giving at most what it may have in
flight: however many deliveries wait for a hanging endpoint, they never fill the window. One that fails, or was disabled
and has taken nothing since, is probed with one request at a time. The account with the fewest in flight comes first,
and of its endpoints the one with the fewest. Engines claim one after the other, so that each counts what the others
have in flight. The walk orders by the whole key of the partial index of pending deliveries, so that the planner can't
walk through the finished ones instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Row, text
from sqlmodel import Session

from arachne.locks import Lock
from arachne.secretbox import SecretBox
from arachne.webhooks.endpoint_secrets import ensure_default_secret
from arachne.webhooks.sealing import SealedSecret, account_purpose, endpoint_purpose

WINDOW = 256  # endpoints walked in one claim
LEASE_MARGIN_S = 10.0

_ALONE = text("SELECT pg_advisory_xact_lock(:key)")
_CLAIM = text("""
WITH RECURSIVE walked AS (
    (SELECT endpoint_id FROM webhook_delivery WHERE state = 'pending' AND endpoint_id > :cursor
     ORDER BY endpoint_id, next_attempt_at, message_id LIMIT 1)
    UNION ALL
    SELECT (SELECT d.endpoint_id FROM webhook_delivery d
            WHERE d.state = 'pending' AND d.endpoint_id > walked.endpoint_id
            ORDER BY d.endpoint_id, d.next_attempt_at, d.message_id LIMIT 1)
    FROM walked WHERE walked.endpoint_id IS NOT NULL),
seen AS MATERIALIZED (SELECT endpoint_id FROM walked WHERE endpoint_id IS NOT NULL LIMIT :window),
open AS (
    SELECT e.endpoint_id, e.account_id, sending.n,
           CASE WHEN e.first_failure_at IS NULL AND NOT e.half_open AND NOT :nearly_full THEN e.max_in_flight
                ELSE 1 END - n AS room
    FROM seen JOIN webhook_endpoint e USING (endpoint_id) CROSS JOIN LATERAL (
        SELECT count(*) AS n FROM webhook_delivery s
        WHERE s.endpoint_id = e.endpoint_id AND s.claim_id IS NOT NULL AND s.lease_until > now()) AS sending
    WHERE e.enabled AND (e.first_failure_at IS NULL OR NOT :nearly_full)),
head AS (
    SELECT h.message_id, open.endpoint_id, open.account_id, h.next_attempt_at, open.n + h.place AS rank
    FROM open CROSS JOIN LATERAL (
        SELECT message_id, next_attempt_at, row_number() OVER (ORDER BY next_attempt_at, message_id) AS place
        FROM (SELECT message_id, next_attempt_at FROM webhook_delivery d
              WHERE d.state = 'pending' AND d.endpoint_id = open.endpoint_id AND d.next_attempt_at <= now()
              ORDER BY next_attempt_at, message_id LIMIT greatest(open.room, 0)) AS first_ones) AS h),
busy AS MATERIALIZED (
    SELECT account_id, count(*) AS n FROM webhook_delivery
    WHERE claim_id IS NOT NULL AND lease_until > now() GROUP BY account_id),
picked AS MATERIALIZED (
    SELECT message_id, endpoint_id, row_number() OVER (ORDER BY share, rank, next_attempt_at) AS turn FROM (
        SELECT head.*, coalesce(busy.n, 0) + row_number() OVER (PARTITION BY account_id ORDER BY rank, next_attempt_at)
               AS share FROM head LEFT JOIN busy USING (account_id)) AS shared
    ORDER BY turn LIMIT 4 * :limit),
locked AS MATERIALIZED (
    SELECT d.message_id, d.endpoint_id FROM picked JOIN webhook_delivery d USING (message_id, endpoint_id)
    WHERE d.state = 'pending' AND d.next_attempt_at <= now()
    ORDER BY picked.turn LIMIT :limit FOR UPDATE OF d SKIP LOCKED),
claimed AS (
    UPDATE webhook_delivery d SET claim_id = :claim_id, worker_id = :worker_id,
                                  lease_until = now() + make_interval(secs => :lease_s),
                                  next_attempt_at = now() + make_interval(secs => :lease_s)
    FROM locked WHERE d.message_id = locked.message_id AND d.endpoint_id = locked.endpoint_id
    RETURNING d.message_id, d.endpoint_id)
SELECT c.message_id, c.endpoint_id,
       (SELECT max(endpoint_id) FROM seen) AS last_seen, (SELECT count(*) FROM seen) AS seen_count
FROM (SELECT 1) AS always LEFT JOIN claimed c ON true
""")

_LOAD = text("""
SELECT d.message_id, d.endpoint_id, d.account_id, d.charged, d.redelivery, d.cause,
       m.type, m.body, m.job_id, job.request_id, job.traceparent, e.url, e.hidden,
       CASE WHEN e.hidden THEN a.webhook_secret ELSE e.secret END AS secret,
       ARRAY(SELECT sealed FROM unnest(CASE WHEN e.hidden THEN a.webhook_secrets_old ELSE e.secrets_old END,
                 CASE WHEN e.hidden THEN a.webhook_secrets_old_until ELSE e.secrets_old_until END)
                 AS old(sealed, until) WHERE until > now()) AS live_old,
       extract(epoch FROM now() - d.created_at)::float8 AS age_s
FROM webhook_delivery d JOIN webhook_message m USING (message_id) JOIN webhook_endpoint e USING (endpoint_id)
     JOIN account a ON a.account_id = d.account_id
     LEFT JOIN job ON job.job_id = m.job_id
WHERE d.claim_id = :claim_id AND d.state = 'pending'
""")


@dataclass(frozen=True, slots=True)
class Claim:
    """A delivery this process may send until its lease ends. `charged` attempts of its schedule came before."""

    claim_id: UUID
    message_id: str
    endpoint_id: str
    account_id: str
    event: str
    url: str
    hidden: bool
    body: bytes
    secrets: tuple[SealedSecret, ...]
    charged: int
    age_s: float
    cause: str = "event"
    is_test: bool = False
    job_id: str | None = None
    request_id: str | None = None
    traceparent: str | None = None

    @property
    def is_redelivery(self) -> bool:
        """Whether it is sent beside its retry schedule."""
        return self.cause == "redelivery"

    @property
    def ids(self) -> dict[str, str | None]:
        """What log records about it name."""
        job = {"request_id": self.request_id, "job_id": self.job_id}
        return job | {"message_id": self.message_id, "endpoint_id": self.endpoint_id}


@dataclass(frozen=True, slots=True)
class Batch:
    """Claimed deliveries, and the endpoint to go on after; `cursor` is empty when the walk has come to its end."""

    claims: list[Claim]
    cursor: str


def claim_due(
    session: Session,
    box: SecretBox,
    *,
    cursor: str,
    limit: int,
    lease_s: float,
    nearly_full: bool = False,
    worker_id: str | None = None,
) -> Batch:
    """At most `limit` due deliveries, fairly over the accounts and endpoints that come after `cursor`.

    Where the caller is `nearly_full`, endpoints that fail get none, and the others one at a time.
    With a `worker_id` they are free as soon as that worker is lost, and not only after the lease.
    """
    session.connection().execute(_ALONE, {"key": int(Lock.DELIVERIES)})  # before the claim's own snapshot is taken
    claim_id = uuid4()
    values = {"cursor": cursor, "window": WINDOW, "nearly_full": nearly_full, "limit": limit}
    holder = {"claim_id": claim_id, "worker_id": worker_id, "lease_s": lease_s}
    rows = session.connection().execute(_CLAIM, values | holder).all()
    walked_all = rows[0].seen_count < WINDOW
    claims = load_claims(session, box, claim_id) if rows[0].message_id is not None else []
    return Batch(claims, "" if walked_all else rows[0].last_seen)


def load_claims(session: Session, box: SecretBox, claim_id: UUID) -> list[Claim]:
    """What this claim holds, with all that is needed to send it."""
    rows = _load(session, claim_id)
    unset = {row.account_id for row in rows if row.hidden and row.secret is None}
    if unset:
        for account_id in sorted(unset):
            ensure_default_secret(session, box, account_id)
        rows = _load(session, claim_id)
    return [_claim(row, claim_id) for row in rows]


def _load(session: Session, claim_id: UUID) -> Sequence[Row[Any]]:
    return session.connection().execute(_LOAD, {"claim_id": claim_id}).all()


def _claim(row: Row[Any], claim_id: UUID) -> Claim:
    purpose = account_purpose(row.account_id) if row.hidden else endpoint_purpose(row.endpoint_id)
    sealed = [row.secret, *reversed(row.live_old)]  # the newest first
    return Claim(
        claim_id=claim_id,
        message_id=row.message_id,
        endpoint_id=row.endpoint_id,
        account_id=row.account_id,
        event=row.type,
        url=row.url,
        hidden=row.hidden,
        body=row.body,
        secrets=tuple(SealedSecret(secret, purpose) for secret in sealed if secret is not None),
        charged=row.charged,
        age_s=row.age_s,
        cause="redelivery" if row.redelivery else row.cause,
        is_test=row.type == "webhook.test",
        job_id=row.job_id,
        request_id=row.request_id,
        traceparent=row.traceparent,
    )
