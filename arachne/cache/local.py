"""The cache's first level: `vlm_cache.db`, one SQLite file a machine, read before PostgreSQL is asked for a body.

It only ever saves time. Whatever is wrong with the file, callers see a miss: a damaged file is made anew, a full disk
turns the cache off for a while. A hit counts only while the second level still has this very result under the key,
which the caller checks by the result's id.
"""

import fcntl
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import NamedTuple, TypeVar

from arachne.settings import Settings
from arachne.versions import CacheKey

T = TypeVar("T")
log = logging.getLogger(__name__)

FILE_NAME = "vlm_cache.db"
FLUSH_HITS = 64
FLUSH_S = 5.0
OFF_S = 60.0
PRUNE_EVERY = 64  # puts
PRUNE_S = 3600.0
PRUNE_TO = 0.9  # of the size bound
BUSY_S = 1.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS vision_cache (
    scope TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    model_version TEXT NOT NULL,
    pipeline_version TEXT NOT NULL,
    options_hash TEXT NOT NULL,
    result_id TEXT NOT NULL,
    result_json TEXT NOT NULL,
    created_at REAL NOT NULL,
    hits INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, sha256, model_version, pipeline_version, options_hash)
);
CREATE INDEX IF NOT EXISTS ix_vision_cache_created ON vision_cache (created_at);
"""
_KEY = "scope = ? AND sha256 = ? AND model_version = ? AND pipeline_version = ? AND options_hash = ?"
_GET = f"SELECT result_id, result_json FROM vision_cache WHERE {_KEY} AND created_at >= ?"  # noqa: S608  # put together from constants
_PUT = "INSERT OR REPLACE INTO vision_cache VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)"
_HITS = f"UPDATE vision_cache SET hits = hits + ? WHERE {_KEY}"  # noqa: S608
# The oldest go first; one that was hit counts as younger by an hour a hit.
_OLDEST = """
DELETE FROM vision_cache WHERE rowid IN (
    SELECT rowid FROM vision_cache ORDER BY created_at + 3600.0 * min(hits, 1000) LIMIT ?)
"""


class LocalResult(NamedTuple):
    """A result's JSON and the id it has in PostgreSQL."""

    result_id: str
    result_json: bytes


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
        self._flushed_at = time.monotonic()
        self._off_until = 0.0
        self._puts = 0
        self._pruned_at = float("-inf")  # so that what a file holds too long goes when it is first used

    def get(self, key: CacheKey) -> LocalResult | None:
        """The result, or None."""
        found = self._attempt(lambda connection: self._get(connection, key))
        if len(self._hits) >= FLUSH_HITS or time.monotonic() > self._flushed_at + FLUSH_S:
            self.flush()
        self._prune_in_time()
        return found

    def put(self, key: CacheKey, result_id: str, result_json: bytes) -> None:
        """The key answers with this result from now on."""
        row = (*key.parts, result_id, result_json.decode(), time.time())
        self._attempt(lambda connection: connection.execute(_PUT, row))
        self._puts += 1
        if self._puts % PRUNE_EVERY == 0:
            self.prune()
        self._prune_in_time()

    def flush(self) -> None:
        """The hits counted in memory are in the file."""
        self._flushed_at = time.monotonic()
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
        if _used_bytes(connection) > self._max_bytes:
            rows = connection.execute("SELECT count(*) FROM vision_cache").fetchone()[0]
            share = 1 - PRUNE_TO * self._max_bytes / _used_bytes(connection)
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
        if self._connection is not None and _identity(self._path) != self._file:
            self._disconnect()  # another process has put a sound file in the place of a damaged one
        if self._connection is None:
            self._connection = _connect(self._path)
            self._file = _identity(self._path)
        with self._connection:
            return work(self._connection)

    def _mend(self, error: Exception) -> None:
        if _is_damage(error):
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
            _remove_damaged(self._path)
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


def _connect(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=BUSY_S, check_same_thread=False)
    try:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.executescript(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file now at `path`."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _is_damage(error: Exception) -> bool:
    """Whether the file itself is at fault: torn, no database, or with other tables than ours."""
    if isinstance(error, sqlite3.OperationalError):
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    return isinstance(error, sqlite3.DatabaseError)


def _used_bytes(connection: sqlite3.Connection) -> int:
    size, pages, free = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
    )
    return int(size * (pages - free))


def _remove_damaged(path: Path) -> None:
    """The damaged file and its journals are gone, unless another process has replaced it already."""
    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_sound(path):
            return
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)


def _is_sound(path: Path) -> bool:
    try:
        connection = _connect(path)
        try:
            connection.execute(_GET, [*[""] * 5, 0.0])
            return bool(connection.execute("PRAGMA quick_check").fetchone() == ("ok",))
        finally:
            connection.close()
    except sqlite3.DatabaseError:
        return False
