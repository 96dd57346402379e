"""The file `vlm_cache.db` itself: its table, how it is opened, and what is done about a damaged one."""

import fcntl
import logging
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

from arachne.cache.originals import is_original

log = logging.getLogger(__name__)

BUSY_S = 1.0
_SUFFIXES = ("-wal", "-shm", "")  # the journal goes first: a file without it may be older, but is whole

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
CREATE INDEX IF NOT EXISTS ix_vision_cache_result ON vision_cache (result_id);
"""
_PROBE = """
SELECT scope, sha256, model_version, pipeline_version, options_hash, result_id, result_json, created_at, hits
FROM vision_cache LIMIT 0
"""


def connect(path: Path) -> sqlite3.Connection:
    """A connection to the file, which is made if need be."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=BUSY_S, check_same_thread=False)
    try:
        _refuse_original(connection)
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")  # what was erased is not to be found in the file's free pages
        connection.executescript(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file now at `path`."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def is_damage(error: Exception) -> bool:
    """Whether the file itself is at fault: torn, no database, or with other tables than ours."""
    if isinstance(error, sqlite3.OperationalError):
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    return isinstance(error, sqlite3.DatabaseError)


def used_bytes(connection: sqlite3.Connection) -> int:
    """Bytes of the file that hold anything."""
    size, pages, free = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
    )
    return int(size * (pages - free))


def remove_damaged(path: Path) -> None:
    """The damaged file and its journals are gone, unless another process has replaced it already.

    One of the original format is no damage but somebody's data: it is set aside under another name.
    """
    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_sound(path):
            return
        aside = _aside(path) if _holds_originals(path) else None
        for suffix in _SUFFIXES:
            part = path.with_name(path.name + suffix)
            if aside is None:
                part.unlink(missing_ok=True)
            elif part.exists():
                part.rename(aside.with_name(aside.name + suffix))
        if aside is not None:
            log.warning("%s was of the original format and is %s now; `arachne cache import` keeps it", path, aside)


def _refuse_original(connection: sqlite3.Connection) -> None:
    """Nothing of an original-format file is changed, not even its settings."""
    if is_original(connection):
        raise sqlite3.DatabaseError("it is of the original format")


def _is_sound(path: Path) -> bool:
    try:
        connection = connect(path)
        try:
            connection.execute(_PROBE)
            return bool(connection.execute("PRAGMA quick_check").fetchone() == ("ok",))
        finally:
            connection.close()
    except sqlite3.DatabaseError:
        return False


def _holds_originals(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_S)) as connection:
            return is_original(connection)
    except sqlite3.Error:
        return False


def _aside(path: Path) -> Path:
    """A name nobody has: `vlm_cache.original.db`, or that with a number."""
    names = (path.with_name(f"{path.stem}.original{number or ''}{path.suffix}") for number in count())
    return next(name for name in names if not name.exists())
