"""Single flight: of all images with one cache key, one is read and the others wait parked for its result."""

from collections.abc import Collection, Mapping

from sqlalchemy import text

from arachne.database import Transaction

_TAKE = text("""
INSERT INTO flight (cache_key, image_id, worker_id)
SELECT cache_key, image_id, :worker_id
FROM unnest(CAST(:keys AS bytea[]), CAST(:image_ids AS text[])) AS wanted(cache_key, image_id) ORDER BY cache_key
ON CONFLICT DO NOTHING RETURNING image_id
""")
# Shared with other claims, against the finish that ends the flight: it waits, and then sees who parked.
_HOLD = text("SELECT cache_key FROM flight WHERE cache_key = ANY(:keys) ORDER BY cache_key FOR KEY SHARE")
_MARK = text("""
UPDATE image SET cache_key = wanted.cache_key
FROM unnest(CAST(:keys AS bytea[]), CAST(:image_ids AS text[])) AS wanted(cache_key, image_id)
WHERE image.image_id = wanted.image_id
""")
_SET_ASIDE = text("""
UPDATE image SET state = :state, claim_id = NULL, worker_id = NULL, started_at = NULL WHERE image_id = ANY(:image_ids)
""")
_END = text("""
DELETE FROM flight USING image
WHERE image.image_id = ANY(:image_ids) AND flight.cache_key = image.cache_key AND flight.image_id = image.image_id
RETURNING flight.cache_key
""")
_UNPARK = text("""
WITH parked AS (
    SELECT image_id FROM image WHERE state = 'parked' AND cache_key = ANY(:keys)
    ORDER BY image_id FOR UPDATE SKIP LOCKED)
UPDATE image SET state = 'queued' FROM parked WHERE image.image_id = parked.image_id
""")


def take_flights(transaction: Transaction, worker_id: str, wanted: Mapping[str, bytes]) -> set[str]:
    """Of the claimed images in `wanted` (image id -> cache key) those that don't fly: parked or back in the queue.

    The caller holds the images' locks. Keys are taken in order, so that two claims can't wait for each other.
    """
    if not wanted:
        return set()
    session = transaction.session
    columns = {"keys": list(wanted.values()), "image_ids": list(wanted)}
    session.execute(_MARK, columns)
    flying = set(session.scalars(_TAKE, columns | {"worker_id": worker_id}))
    losers = {image_id: key for image_id, key in wanted.items() if image_id not in flying}
    if losers:
        held = set(session.scalars(_HOLD, {"keys": sorted(set(losers.values()))}))
        parked = [image_id for image_id, key in losers.items() if key in held]
        landed = [image_id for image_id, key in losers.items() if key not in held]
        session.execute(_SET_ASIDE, {"state": "parked", "image_ids": parked})
        session.execute(_SET_ASIDE, {"state": "queued", "image_ids": landed})
    return set(losers)


def end_flights(transaction: Transaction, image_ids: Collection[str]) -> None:
    """The flights of these images are over; whoever was parked behind one is queued again.

    The caller holds the images' locks. Parked rows that others hold are left to `reconcile`.
    """
    keys = list(transaction.session.scalars(_END, {"image_ids": list(image_ids)}))
    if keys:
        transaction.session.execute(_UNPARK, {"keys": keys})
