"""The cache's first level: `vlm_cache.db`, one SQLite file a machine, read before PostgreSQL is asked for a body.

It only ever saves time. Whatever is wrong with the file, callers see a miss: a damaged file is made anew, a full disk
turns the cache off for a while. A hit counts only while the second level still has this very result under the key,
which the caller checks by the result's id.
"""

import logging
import sqlite3
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple, TypeVar

from arachne.cache.file import connect, identity, is_damage, remove_damaged, used_bytes
from arachne.settings import Settings
from arachne.versions import CacheKey

T = TypeVar("T")
Pair = tuple[str, bytes]
"""A result's id and the digest of the key it answers here."""
log = logging.getLogger(__name__)

FILE_NAME = "vlm_cache.db"
FLUSH_HITS = 64
FLUSH_S = 5.0
OFF_S = 60.0
PRUNE_EVERY = 64  # puts
PRUNE_S = 3600.0
PRUNE_TO = 0.9  # of the size bound
KEY_BATCH = 500
ROW_BATCH = 32

_KEY = "scope = ? AND sha256 = ? AND model_version = ? AND pipeline_version = ? AND options_hash = ?"
_GET = f"SELECT result_id, result_json FROM vision_cache WHERE {_KEY} AND created_at >= ?"  # noqa: S608  # put together from constants
_PUT = "INSERT OR REPLACE INTO vision_cache VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)"
_HITS = f"UPDATE vision_cache SET hits = hits + ? WHERE {_KEY}"  # noqa: S608
_COUNT = f"SELECT hits FROM vision_cache WHERE {_KEY}"  # noqa: S608
_TAKE = "INSERT OR REPLACE INTO vision_cache VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
# What /readyz puts to see whether it can has no image.
_KEYS = f"""
SELECT rowid, result_id, scope, sha256, model_version, pipeline_version, options_hash
FROM vision_cache WHERE rowid > ? AND sha256 <> '' ORDER BY rowid LIMIT {KEY_BATCH}
"""  # noqa: S608
_ROWS = f"""
SELECT rowid, scope, sha256, model_version, pipeline_version, options_hash, result_id, result_json, created_at, hits
FROM vision_cache WHERE rowid > ? AND sha256 <> '' ORDER BY rowid LIMIT {ROW_BATCH}
"""  # noqa: S608
_DROP = "DELETE FROM vision_cache WHERE rowid = ? AND result_id = ?"  # not the one that has replaced it meanwhile
_DROP_ERASED = "DELETE FROM vision_cache WHERE result_id = ?"
_STATS = """
SELECT count(*), coalesce(sum(hits), 0), coalesce(sum(length(CAST(result_json AS BLOB))), 0),
       min(created_at), max(created_at) FROM vision_cache WHERE sha256 <> ''
"""
# The oldest go first; one that was hit counts as younger by an hour a hit.
_OLDEST = """
DELETE FROM vision_cache WHERE rowid IN (
    SELECT rowid FROM vision_cache ORDER BY created_at + 3600.0 * min(hits, 1000) LIMIT ?)
"""


class LocalResult(NamedTuple):
    """A result's JSON and the id it has in PostgreSQL."""

    result_id: str
    result_json: bytes


class LocalRow(NamedTuple):
    """A result as the file keeps it; the time is in seconds since 1970."""

    key: CacheKey
    result_id: str
    result_json: str
    created_at: float
    hits: int


class LocalStats(NamedTuple):
    """What the file holds: results, the hits they had, the bytes of their JSON, when the oldest and newest were put."""

    entries: int
    hits: int
    bytes: int
    oldest_at: float | None
    newest_at: float | None


class VisionCache:
    """Results by key. Safe between threads and between processes; no method raises for what the disk does."""

    def __init__(self, path: Path, *, max_bytes: int, max_age_s: float = float("inf")) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._hits: Counter[CacheKey] = Counter()
        self._told: deque[CacheKey] = deque()  # apart, so that nobody who counts waits for the disk
        self._flushed_at = time.monotonic()
        self._off_until = 0.0
        self._puts = 0
        self._journalled = False  # whether the journal may still hold what was dropped
        self._pruned_at = float("-inf")  # so that what a file holds too long goes when it is first used

    def get(self, key: CacheKey) -> LocalResult | None:
        """The result, or None."""
        found = self._attempt(lambda connection: self._get(connection, key))
        self._flush_in_time()
        self._prune_in_time()
        return found

    def put(self, key: CacheKey, result_id: str, result_json: bytes) -> None:
        """The key answers with this result from now on."""
        row = (*key.parts, result_id, result_json.decode(), time.time())
        self._attempt(lambda connection: connection.execute(_PUT, row))
        self._flush_in_time()
        self._puts += 1
        if self._puts % PRUNE_EVERY == 0:
            self.prune()
        self._prune_in_time()

    def take(self, rows: Sequence[LocalRow]) -> None:
        """The keys answer with these results, put at their own times and with the hits they had elsewhere."""
        values = [(*row.key.parts, *row[1:]) for row in rows]
        self._attempt(lambda connection: connection.executemany(_TAKE, values))
        self.prune()

    def count_hit(self, key: CacheKey) -> None:
        """A hit that was answered without the file counts too; it is written with the next ones."""
        self._told.append(key)

    def hits_of(self, keys: Sequence[CacheKey]) -> list[int]:
        """How often each key was hit, as far as this machine has written down."""

        def look(connection: sqlite3.Connection) -> list[int]:
            found = (connection.execute(_COUNT, key.parts).fetchone() for key in keys)
            return [0 if row is None else int(row[0]) for row in found]

        return self._attempt(look) or [0] * len(keys)

    def stats(self) -> LocalStats | None:
        """What the file holds, None while it can't be used."""
        self.flush()
        return self._attempt(lambda connection: LocalStats(*connection.execute(_STATS).fetchone()))

    def check(self) -> str | None:
        """What is wrong with the file as such, None if nothing."""
        found = self._attempt(lambda connection: connection.execute("PRAGMA integrity_check(1)").fetchone())
        return "the file can't be used; see the log" if found is None else None if found == ("ok",) else str(found[0])

    def rows(self) -> Iterator[list[LocalRow]]:
        """Everything the file holds, some results at a time."""
        last = -1
        while found := self._attempt(lambda connection, after=last: connection.execute(_ROWS, (after,)).fetchall()):  # type: ignore[misc]
            last = found[-1][0]
            yield [LocalRow(CacheKey(*row[1:6]), *row[6:]) for row in found]

    def drop_unless(self, alive: Callable[[list[Pair]], set[Pair]]) -> int:
        """Number of results dropped that are not `alive`, which is asked for many of them at a time."""
        dropped, last = 0, -1
        while found := self._keys_after(last):
            last = max(found)
            living = alive(list(found.values()))
            dropped += self._drop(_DROP, [(row, pair[0]) for row, pair in found.items() if pair not in living])
        self._empty_journal()
        return dropped

    def drop(self, result_ids: Collection[str]) -> int:
        """Number of rows dropped with these results; the file and its journal hold nothing of them any more."""
        dropped = self._drop(_DROP_ERASED, [(result_id,) for result_id in result_ids])
        self._empty_journal()
        return dropped

    def flush(self) -> None:
        """The hits counted in memory are in the file."""
        self._flushed_at = time.monotonic()
        while self._told:
            self._hits[self._told.popleft()] += 1
        if self._hits:
            self._attempt(self._flush)

    def prune(self) -> int:
        """Number of results dropped so that the file keeps within its size and age."""
        self._pruned_at = time.monotonic()
        return self._attempt(self._prune) or 0

    def close(self) -> None:
        """Write what is in memory and let go of the file; the next use opens it again."""
        self.flush()
        with self._lock:
            self._disconnect()

    def _keys_after(self, last: int) -> dict[int, Pair]:
        found = self._attempt(lambda connection: connection.execute(_KEYS, (last,)).fetchall())
        return {row[0]: (row[1], CacheKey(*row[2:]).digest) for row in found or ()}

    def _drop(self, statement: str, rows: Sequence[tuple[int | str, ...]]) -> int:
        dropped = self._attempt(lambda connection: connection.executemany(statement, rows).rowcount) if rows else 0
        self._journalled |= bool(dropped)
        return dropped or 0

    def _empty_journal(self) -> None:
        """Dropped rows are not in the journal either; where others read just now, after a later drop."""
        if self._journalled:
            done = self._attempt(lambda connection: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())
            self._journalled = done is None or done[0] != 0

    def _flush_in_time(self) -> None:
        many = len(self._hits) + len(self._told) >= FLUSH_HITS
        if many or time.monotonic() > self._flushed_at + FLUSH_S:
            self.flush()

    def _prune_in_time(self) -> None:
        if time.monotonic() > self._pruned_at + PRUNE_S:
            self.prune()

    def _get(self, connection: sqlite3.Connection, key: CacheKey) -> LocalResult | None:
        found = connection.execute(_GET, (*key.parts, time.time() - self._max_age_s)).fetchone()
        if found is None:
            return None
        self._hits[key] += 1
        return LocalResult(str(found[0]), str(found[1]).encode())

    def _flush(self, connection: sqlite3.Connection) -> None:
        connection.executemany(_HITS, [(number, *key.parts) for key, number in self._hits.items()])
        self._hits.clear()

    def _prune(self, connection: sqlite3.Connection) -> int:
        cutoff = time.time() - self._max_age_s
        dropped = connection.execute("DELETE FROM vision_cache WHERE created_at < ?", (cutoff,)).rowcount
        if used_bytes(connection) > self._max_bytes:
            rows = connection.execute("SELECT count(*) FROM vision_cache").fetchone()[0]
            share = 1 - PRUNE_TO * self._max_bytes / used_bytes(connection)
            dropped += connection.execute(_OLDEST, (max(1, int(rows * share)),)).rowcount
        connection.executescript("PRAGMA incremental_vacuum")  # `execute` would free one page and stop
        return int(dropped)

    def _attempt(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """What `work` gives, committed; None while the cache is off or the file can't be used."""
        with self._lock:
            if time.monotonic() < self._off_until:
                return None
            try:
                return self._run(work)
            except (sqlite3.DatabaseError, OSError) as error:
                self._mend(error)
            return None

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection is not None and identity(self._path) != self._file:
            self._disconnect()  # another process has put a sound file in the place of a damaged one
        if self._connection is None:
            self._connection = connect(self._path)
            self._file = identity(self._path)
        with self._connection:
            return work(self._connection)

    def _mend(self, error: Exception) -> None:
        if is_damage(error):
            self._rebuild(error)
        elif getattr(error, "sqlite_errorcode", None) not in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            self._turn_off(error)
        # While somebody else writes, one result is not worth the wait.

    def _turn_off(self, error: Exception) -> None:
        log.warning("the cache %s is off for %.0f s: %s", self._path, OFF_S, error)
        self._off_until = time.monotonic() + OFF_S
        self._disconnect()

    def _rebuild(self, error: Exception) -> None:
        log.warning("the cache %s is damaged and made anew: %s", self._path, error)
        self._disconnect()
        try:
            remove_damaged(self._path)
        except OSError as failure:
            self._turn_off(failure)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def open_cache(settings: Settings) -> VisionCache:
    """The cache of this machine, DATA_DIR/cache/vlm_cache.db."""
    return VisionCache(
        settings.data_dir / "cache" / FILE_NAME,
        max_bytes=settings.cache_max_bytes,
        max_age_s=settings.result_retention_s,
    )
