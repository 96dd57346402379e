"""Images handed to workers: fair between accounts, small jobs first, each claim fenced by its `claim_id`."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from pydantic import ValidationError
from sqlalchemy import Row, text

from arachne import tracing
from arachne.cache.shared import CachedReading, CachedResult, lookup, lookup_readings
from arachne.database import Transaction
from arachne.errors import ArachneError
from arachne.jobs.bounds import keep_within_bounds
from arachne.jobs.closing import start_jobs
from arachne.jobs.flights import take_flights
from arachne.jobs.shares import Serving, note_served
from arachne.news import news_of
from arachne.schemas.options import Options
from arachne.settings import Settings
from arachne.versions import NO_MODEL, CacheKey

# Accounts looked at in one claim; with more of them waiting, the window moves on by `start`.
_WINDOW = 128
_SPARE_ACCOUNTS = 4  # looked into beyond those needed: others may just be taking their images

# The accounts with images to claim come from a loose index scan, beginning after `start` and wrapping round: for each
# a probe a model, so that the images of a full model are never walked. Whose images are next, `served` tells: see
# docs/architecture.md. Rows are locked in the last step only, where there are few of them, and rows others hold are
# passed over.
_CLAIM = text("""
WITH RECURSIVE
models AS (
    (SELECT coalesce(model, '') AS model FROM image WHERE state = 'queued' ORDER BY coalesce(model, '') LIMIT 1)
    UNION ALL
    SELECT (SELECT coalesce(q.model, '') FROM image q
            WHERE q.state = 'queued' AND coalesce(q.model, '') > models.model ORDER BY coalesce(q.model, '') LIMIT 1)
    FROM models WHERE models.model IS NOT NULL),
wanted AS MATERIALIZED (SELECT model FROM models WHERE model <> ALL(CAST(:but_for AS text[]))),
behind AS (
    SELECT min(n.account_id) AS account_id FROM wanted CROSS JOIN LATERAL (
        SELECT account_id FROM image WHERE state = 'queued' AND coalesce(model, '') = wanted.model
           AND account_id > :start ORDER BY account_id LIMIT 1) AS n
    UNION ALL
    SELECT (SELECT min(n.account_id) FROM wanted CROSS JOIN LATERAL (
        SELECT q.account_id FROM image q WHERE q.state = 'queued' AND coalesce(q.model, '') = wanted.model
           AND q.account_id > behind.account_id ORDER BY q.account_id LIMIT 1) AS n)
    FROM behind WHERE behind.account_id IS NOT NULL),
before AS (
    SELECT min(n.account_id) AS account_id FROM wanted CROSS JOIN LATERAL (
        SELECT account_id FROM image WHERE state = 'queued' AND coalesce(model, '') = wanted.model
           AND account_id <= :start ORDER BY account_id LIMIT 1) AS n
    UNION ALL
    SELECT (SELECT min(n.account_id) FROM wanted CROSS JOIN LATERAL (
        SELECT q.account_id FROM image q WHERE q.state = 'queued' AND coalesce(q.model, '') = wanted.model
           AND q.account_id > before.account_id AND q.account_id <= :start ORDER BY q.account_id LIMIT 1) AS n)
    FROM before WHERE before.account_id IS NOT NULL),
waiting AS MATERIALIZED (
    SELECT account_id, part FROM (
        SELECT account_id, 1 AS part FROM behind UNION ALL SELECT account_id, 2 FROM before) AS both_parts
    WHERE account_id IS NOT NULL LIMIT :window),
running AS (SELECT account_id, count(*) AS n FROM image WHERE state = 'running' GROUP BY account_id),
party AS MATERIALIZED (
    SELECT account_id, coalesce(running.n, 0) AS n, waiting.account_id IS NOT NULL AS waits, share.weight,
           share.max_in_flight, served.tag + 1 / share.weight AS follows
    FROM waiting FULL JOIN running USING (account_id) JOIN account_share AS share USING (account_id)
         LEFT JOIN served USING (account_id)),
total AS MATERIALIZED (
    SELECT (sum(n) + :limit) / sum(weight) AS places, coalesce((SELECT max(tag) FROM served), 0) AS now FROM party),
chosen AS (
    SELECT account_id, n, weight, max_in_flight, ceil(weight * places) AS places, greatest(follows, now) AS tag, now
    FROM party CROSS JOIN total WHERE waits AND n < max_in_flight
    ORDER BY n >= ceil(weight * places), greatest(follows, now), n LIMIT :accounts),
ranked AS (
    SELECT head.image_id, head.due_at, c.n + head.place AS rank, c.n + head.place > c.places AS over,
           c.tag + (head.place - 1) / c.weight AS tag, c.weight, c.now, c.n, c.max_in_flight
    FROM chosen c CROSS JOIN LATERAL (
        SELECT image_id, due_at, row_number() OVER (ORDER BY due_at, image_id) AS place
        FROM wanted CROSS JOIN LATERAL (
            SELECT image_id, due_at FROM image
            WHERE state = 'queued' AND coalesce(model, '') = wanted.model AND account_id = c.account_id
            ORDER BY due_at, image_id LIMIT :ahead) AS of_model) AS head
    WHERE c.n + head.place <= c.max_in_flight),
picked AS MATERIALIZED (SELECT * FROM ranked ORDER BY over, tag, rank, due_at, image_id LIMIT :ahead),
locked AS MATERIALIZED (
    SELECT i.image_id, picked.weight, picked.now, picked.n, picked.max_in_flight
    FROM picked JOIN image i USING (image_id) WHERE i.state = 'queued'
    ORDER BY picked.over, picked.tag, picked.rank, picked.due_at, i.image_id LIMIT :limit FOR UPDATE OF i SKIP LOCKED),
claimed AS (
    UPDATE image i SET state = 'running', claim_id = :claim_id, worker_id = :worker_id, started_at = now()
    FROM locked WHERE i.image_id = locked.image_id
    RETURNING i.image_id, i.job_id, i.account_id, i.sha256, i.size_bytes, i.attempts, i.lost_leases,
              locked.weight, locked.now, locked.n, locked.max_in_flight)
SELECT claimed.*, (SELECT count(*) FROM waiting) AS seen,
       (SELECT account_id FROM waiting ORDER BY part DESC, account_id DESC LIMIT 1) AS last_account
FROM (SELECT 1) AS always LEFT JOIN claimed ON true
""")
_JOBS = text("SELECT job_id, options, request_id, traceparent FROM job WHERE job_id = ANY(:job_ids)")


_STILL = text("""
SELECT image_id, claim_id FROM image WHERE image_id = ANY(:image_ids) AND state = 'running'
""")


@dataclass(frozen=True)
class Claimed:
    """An image this worker alone may finish.

    `key` is what its result depends on, `hit` a result that already answers it, `reading` one that has stages 1 to 7
    of it. `attempts` counts earlier hand-overs, `lost_leases` the workers that were lost while they held it.
    `request_id` and `traceparent` are those of the request that made its job.
    With a `fault` it can't be read here at all, and says why.
    """

    image_id: str
    job_id: str
    account_id: str
    claim_id: UUID
    sha256: str
    size_bytes: int
    attempts: int
    options: Options
    key: CacheKey
    hit: CachedResult | None = None
    reading: CachedReading | None = None
    fault: str | None = None
    lost_leases: int = 0
    request_id: str | None = None
    traceparent: str | None = None

    @property
    def ids(self) -> dict[str, str | None]:
        """What log records about it name."""
        return {"request_id": self.request_id, "job_id": self.job_id, "image_id": self.image_id}


class Claims(NamedTuple):
    """What one claim gave: images to read, and how many were parked behind the same image being read already.

    `start` is where the next claim is to begin.
    """

    images: list[Claimed]
    parked: int
    start: str = ""


KeyOf = Callable[[Options, str, str], CacheKey]
"""The cache key for (options, account id, image sha256)."""


def claim(
    transaction: Transaction,
    worker_id: str,
    limit: int,
    key_of: KeyOf,
    settings: Settings,
    *,
    start: str = "",
    but_for: Collection[str] = (),
) -> Claims:
    """Up to `limit` images, now `running` for `worker_id`, their jobs `processing`.

    Images for the models in `but_for` are left for later. `start` is the last claim's, so that with very many
    accounts each comes into view.
    """
    claim_id, began_s = uuid4(), perf_counter()
    bounds = {"window": _WINDOW, "limit": limit, "accounts": limit + _SPARE_ACCOUNTS, "ahead": 4 * limit + 16}
    values = {"start": start, "but_for": list(but_for), "claim_id": claim_id, "worker_id": worker_id, **bounds}
    rows = transaction.session.execute(_CLAIM, values).all()
    start = rows[0].last_account or "" if rows[0].seen == _WINDOW else ""
    if rows[0].image_id is None:
        return Claims([], 0, start)
    rows = keep_within_bounds(transaction, rows, limit)
    if not rows:
        return Claims([], 0, start)
    job_ids = sorted({row.job_id for row in rows})
    jobs = {row.job_id: row for row in transaction.session.execute(_JOBS, {"job_ids": job_ids})}
    claimed = [_claimed(row, claim_id, jobs[row.job_id], key_of) for row in rows]
    images = _look_up(transaction, claimed, worker_id)
    start_jobs(transaction, {image.job_id for image in images}, settings)
    note_served(transaction, _servings(rows, images))
    news_of(transaction.session).afterwards.append(lambda: _trace(images, perf_counter() - began_s))
    return Claims(images, len(claimed) - len(images), start)


def _trace(images: Sequence[Claimed], seconds: float) -> None:
    for image in images:
        tracing.record("claim", image.traceparent, seconds, image.ids)


def _servings(rows: Sequence[Row[Any]], images: Sequence[Claimed]) -> dict[str, Serving]:
    """What each account is to be counted; images that were parked come again."""
    numbers = Counter(image.account_id for image in images)
    facts = {row.account_id: row for row in rows}
    return {one: Serving(number, facts[one].weight, facts[one].now) for one, number in numbers.items()}


def find_lost(transaction: Transaction, claims: Collection[tuple[str, UUID]]) -> list[tuple[str, UUID]]:
    """Of these claims, as image ids with claim ids, those that hold no more: cancelled, or others' by now."""
    rows = transaction.session.execute(_STILL, {"image_ids": [image_id for image_id, _ in claims]})
    held = {(row.image_id, row.claim_id) for row in rows}
    return [one for one in claims if one not in held]


def _claimed(row: Row[Any], claim_id: UUID, job: Row[Any], key_of: KeyOf) -> Claimed:
    """The claimed image. One whose options or language this worker doesn't know keeps no other from being read."""
    fault = None
    options, key = Options(cache="bypass"), CacheKey(row.account_id, row.sha256, NO_MODEL, "", "")
    try:
        options = Options.model_validate(job.options)
        key = key_of(options, row.account_id, row.sha256)
    except ValidationError as error:
        fault = f"This version can't read the job's options ({error.error_count()} faults). Submit the image again."
    except ArachneError as error:
        fault, options = error.message, Options(cache="bypass")
    return Claimed(
        image_id=row.image_id,
        job_id=row.job_id,
        account_id=row.account_id,
        claim_id=claim_id,
        sha256=row.sha256,
        size_bytes=row.size_bytes or 0,
        attempts=row.attempts,
        options=options,
        key=key,
        fault=fault,
        lost_leases=row.lost_leases,
        request_id=job.request_id,
        traceparent=job.traceparent,
    )


def _look_up(transaction: Transaction, claimed: list[Claimed], worker_id: str) -> list[Claimed]:
    """The images, with the cached results that answer them; those whose key is being read already are parked."""
    wanted = {image.image_id: image.key.digest for image in claimed if image.options.cache == "use"}
    hits = lookup(transaction, set(wanted.values()))
    missing = {image_id: digest for image_id, digest in wanted.items() if digest not in hits}
    parked = take_flights(transaction, worker_id, missing)
    # A result that was committed between the look-up and the flight is there by now.
    hits |= lookup(transaction, set(missing.values()))
    found = [
        replace(image, hit=hits.get(wanted[image.image_id])) if image.image_id in wanted else image
        for image in claimed
        if image.image_id not in parked
    ]
    return _look_up_readings(transaction, found)


def _look_up_readings(transaction: Transaction, images: list[Claimed]) -> list[Claimed]:
    """The images; those that are not answered yet with the results that have their reading."""
    wanted = {
        image.image_id: image.key.reading.digest
        for image in images
        if image.hit is None and image.options.cache == "use" and image.key.reading is not None
    }
    found = lookup_readings(transaction, set(wanted.values()))
    return [replace(image, reading=found.get(wanted.get(image.image_id, b""))) for image in images]
