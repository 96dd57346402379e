"""The cache looked over: what it holds, whether that is sound, and what no longer answers anybody."""

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, text

from arachne.bodies import decompress
from arachne.cache.exporting import entry_of, read_results
from arachne.cache.local import LocalRow, Pair, VisionCache
from arachne.cache.portable import Advance
from arachne.cache.stores import Stores
from arachne.database import Database, Transaction
from arachne.errors import FileRejected
from arachne.settings import Settings

BATCH = 1000
MAX_FAULTS = 100  # told one by one; beyond that only their number matters

_STATS = text("""
SELECT count(cache_key) AS results, count(DISTINCT reading_key) AS readings,
       coalesce(sum(octet_length(body)), 0) AS bytes, min(created_at) AS oldest_at, max(created_at) AS newest_at
FROM image_result WHERE cache_key IS NOT NULL OR reading_key IS NOT NULL
""")
_ALIVE = text("""
SELECT r.result_id, here.key FROM unnest(CAST(:ids AS text[]), CAST(:keys AS bytea[])) AS here(id, key)
JOIN image_result r ON r.result_id = here.id AND (r.cache_key = here.key OR r.reading_key = here.key)
""")
_BODIES = text("""
SELECT result_id, cache_key, reading_key, body FROM image_result
WHERE result_id = ANY(:ids) AND (cache_key IS NOT NULL OR reading_key IS NOT NULL)
""")
_FORGET = text("""
WITH old AS (
    SELECT result_id FROM image_result
    WHERE (cache_key IS NOT NULL OR reading_key IS NOT NULL) AND created_at <= now() - make_interval(secs => :age_s)
    LIMIT :batch FOR UPDATE SKIP LOCKED)
UPDATE image_result r SET cache_key = NULL, reading_key = NULL FROM old WHERE r.result_id = old.result_id
RETURNING r.result_id
""")
_DROP = text("""
DELETE FROM image_result r WHERE result_id = ANY(:ids)
   AND NOT EXISTS (SELECT 1 FROM image WHERE image.result_id = r.result_id)
""")


@dataclass(frozen=True, slots=True)
class SharedStats:
    """What PostgreSQL holds: results that answer a key, readings others may build on, compressed bytes, their times."""

    results: int
    readings: int
    bytes: int
    oldest_at: datetime | None
    newest_at: datetime | None


@dataclass(slots=True)
class Report:
    """What was looked at and what is wrong with it.

    `stale` results of this machine's file answer nobody: they were erased or replaced in PostgreSQL.
    """

    shared: int = 0
    local: int = 0
    stale: int = 0
    originals: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, fault: str) -> None:
        """Note what is wrong."""
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(fault)


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many results of this machine's file went, how many in PostgreSQL answer no more, and originals that went."""

    local: int = 0
    shared: int = 0
    originals: int = 0


def shared_stats(database: Database) -> SharedStats:
    """What the second level holds."""
    return SharedStats(*database.run(lambda transaction: tuple(transaction.session.execute(_STATS).one())))


def file_stats(cache: VisionCache, settings: Settings) -> dict[str, object] | None:
    """What this machine's file holds, and the bytes it may hold; None while it can't be used."""
    found = cache.stats()
    if found is None:
        return None
    times = {
        name: None if at is None else datetime.fromtimestamp(at, UTC)
        for name, at in (("oldest_at", found.oldest_at), ("newest_at", found.newest_at))
    }
    return {**found._asdict(), "max_bytes": settings.cache_max_bytes, **times}


def verify_stores(stores: Stores, advance: Advance = lambda _: None) -> Report:
    """What is wrong with the cache of this service and this machine."""
    report = Report()
    for row in read_results(stores.database):
        report.shared += 1
        _verify_row(row, report)
        advance(1)
    _verify_local(stores, report)
    fault = stores.originals.check()
    if fault is not None:
        report.add(f"originals: {fault}")
    else:
        report.originals = sum(stores.originals.by_model().values())
    return report


def drop_stale(database: Database, cache: VisionCache) -> int:
    """Number of results dropped from this machine's file because PostgreSQL no longer answers with them.

    So what is erased there is gone here too, and not only out of reach.
    """
    return cache.drop_unless(lambda pairs: database.run(_alive, pairs))


def prune(stores: Stores, older_than_s: float | None = None, *, with_originals: bool = False) -> Pruned:
    """What went so that the cache keeps within its bounds; with `older_than_s` also all results of that age.

    Results of jobs stay with their jobs; they only answer nobody else any more.
    """
    shared = 0
    while older_than_s is not None and (number := stores.database.run(_forget, older_than_s)):
        shared += number
    local = drop_stale(stores.database, stores.cache) + stores.cache.prune()
    return Pruned(local, shared, stores.originals.drop() if with_originals else 0)


def _alive(transaction: Transaction, pairs: Sequence[Pair]) -> set[Pair]:
    ids, keys = zip(*pairs, strict=True)
    rows = transaction.session.execute(_ALIVE, {"ids": list(ids), "keys": list(keys)})
    return {(row.result_id, bytes(row.key)) for row in rows}


def _forget(transaction: Transaction, age_s: float) -> int:
    ids = list(transaction.session.scalars(_FORGET, {"age_s": age_s, "batch": BATCH}))
    if ids:
        transaction.session.execute(_DROP, {"ids": ids})
    return len(ids)


def _verify_row(row: Row[Any], report: Report) -> None:
    try:
        entry_of(row)
    except FileRejected as error:
        report.add(f"{row.result_id}: {error.message}")


def _verify_local(stores: Stores, report: Report) -> None:
    """This machine's file against what PostgreSQL has under the same ids."""
    fault = stores.cache.check()
    if fault is not None:
        report.add(f"vlm_cache.db: {fault}")
        return
    for rows in stores.cache.rows():
        found = stores.database.run(_read, [row.result_id for row in rows])
        for row in rows:
            report.local += 1
            there = found.get(row.result_id)
            if there is None or row.key.digest not in {there.cache_key, there.reading_key}:
                report.stale += 1
            elif not _same(row, there):
                report.add(f"vlm_cache.db: {row.result_id} is not what PostgreSQL has under that id")


def _read(transaction: Transaction, ids: Collection[str]) -> dict[str, Row[Any]]:
    return {row.result_id: row for row in transaction.session.execute(_BODIES, {"ids": list(ids)})}


def _same(row: LocalRow, found: Row[Any]) -> bool:
    try:
        return decompress(found.body).decode() == row.result_json
    except (zlib.error, UnicodeDecodeError):
        return False
