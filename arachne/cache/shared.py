"""The cache's second level: results in PostgreSQL, shared by all machines, found by their key."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import text

from arachne.bodies import decompress
from arachne.database import Transaction
from arachne.ids import new_id
from arachne.versions import CacheKey

_LOOKUP = text("""
SELECT cache_key, result_id, model_version, units FROM image_result WHERE cache_key = ANY(CAST(:keys AS bytea[]))
""")
# A refreshed result comes after the one it replaces; of several descriptions of one reading any will do.
_READINGS = text("""
SELECT DISTINCT ON (reading_key) reading_key, result_id, units FROM image_result
WHERE reading_key = ANY(CAST(:keys AS bytea[])) ORDER BY reading_key, created_at DESC, result_id DESC
""")
_FREE_READING = text("""
UPDATE image_result SET reading_key = NULL WHERE reading_key = :reading_key AND result_id <> :result_id
""")
_FREE_KEY = text("UPDATE image_result SET cache_key = NULL WHERE cache_key = :key")
_INSERT = text("""
INSERT INTO image_result
    (result_id, account_id, cache_key, reading_key, scope, sha256, model_version, pipeline_version, options_hash,
     reading_hash, units, body)
VALUES (:result_id, :account_id, :key, :reading_key, :scope, :sha256, :model_version, :pipeline_version, :options_hash,
        :reading_hash, :units, :body)
ON CONFLICT (cache_key) DO NOTHING RETURNING result_id
""")
_BODY = text("SELECT body FROM image_result WHERE result_id = :result_id")
_HOLD = text("SELECT 1 FROM image_result WHERE result_id = :result_id FOR KEY SHARE")


@dataclass(frozen=True, slots=True)
class CachedResult:
    """A complete result that answers a key; an image it answers counts as `units`."""

    result_id: str
    model_version: str
    degraded: bool = False
    units: int = 1


@dataclass(frozen=True, slots=True)
class CachedReading:
    """A result that has an image's reading in it: stages 1 to 7, complete. It counts as `units` images."""

    result_id: str
    units: int = 1


def lookup(transaction: Transaction, keys: Collection[bytes]) -> dict[bytes, CachedResult]:
    """The result for each of these key digests that has one."""
    if not keys:
        return {}
    rows = transaction.session.execute(_LOOKUP, {"keys": sorted(keys)})
    return {bytes(row.cache_key): CachedResult(row.result_id, row.model_version, units=row.units) for row in rows}


def lookup_readings(transaction: Transaction, keys: Collection[bytes]) -> dict[bytes, CachedReading]:
    """For each of these digests of reading keys (`CacheKey.reading`) the newest result that has the reading."""
    if not keys:
        return {}
    rows = transaction.session.execute(_READINGS, {"keys": sorted(keys)})
    return {bytes(row.reading_key): CachedReading(row.result_id, row.units) for row in rows}


def insert_result(
    transaction: Transaction,
    *,
    account_id: str,
    key: CacheKey,
    body: bytes,
    model_version: str,
    reusable: bool,
    has_reading: bool = False,
    replaces: bool = False,
    units: int = 1,
) -> str:
    """Id of the new result with the compressed `body`; where `reusable`, it takes its key over from an older one.

    With `has_reading` it answers for the reading too; where it `replaces` older ones, they don't any more.
    """
    reading = key.reading.digest if has_reading and key.reading else None
    row = _row(key) | {
        "result_id": new_id("res"),
        "account_id": account_id,
        "key": key.digest if reusable else None,
        "reading_key": reading,
        "model_version": model_version,
        "units": units,
        "body": body,
    }
    session = transaction.session
    while session.scalar(_INSERT, row) is None:  # another result has the key; after this update it hasn't
        session.execute(_FREE_KEY, {"key": row["key"]})
    if reading and replaces:
        session.execute(_FREE_READING, {"reading_key": reading, "result_id": row["result_id"]})
    return str(row["result_id"])


def _row(key: CacheKey) -> dict[str, object]:
    names = ("scope", "sha256", "pipeline_version", "options_hash", "reading_hash")
    return {name: getattr(key, name) for name in names}


def hold_result(transaction: Transaction, result_id: str) -> bool:
    """Whether the result is still there; if so it stays until the transaction ends."""
    return transaction.session.scalar(_HOLD, {"result_id": result_id}) is not None


def load_body(transaction: Transaction, result_id: str) -> bytes | None:
    """The result's JSON, or None if it is no longer kept."""
    body = transaction.session.scalar(_BODY, {"result_id": result_id})
    return None if body is None else decompress(body)
