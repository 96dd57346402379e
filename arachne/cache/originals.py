"""Rows of original-format files: kept as they were, listed and exported again, and never an answer.

Such a file has a table `vision_cache` of just `sha256`, `result_json`, `model_version`, `created_at` and `hits`.
Nothing in it says which pipeline and options a result came from, so it can't prove a hit. Its rows therefore have a
file of their own, which the service never reads and no bound prunes.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from arachne.cache.entries import ORIGINAL_COLUMNS, OriginalEntry, SqlValue, original_values, wire_value
from arachne.errors import FileRejected, SetupError
from arachne.settings import Settings

FILE_NAME = "originals.db"
SQLITE_MAGIC = b"SQLite format 3\0"
BUSY_S = 30.0
MAX_ROW_BYTES = 10 * 1024 * 1024  # six times that, which is what escapes may make of it, fits into a cache file's line
MAX_VALUE_BYTES = 64 * 1024 * 1024

# No column has a type, so that every value keeps its own. The digest tells rows apart by all but their hits.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS vision_cache (
    digest BLOB PRIMARY KEY, sha256, result_json, model_version, created_at, hits)
"""
# Text goes through functions as bytes: it may be no UTF-8.
_BYTES = "CASE typeof({0}) WHEN 'text' THEN CAST({0} AS BLOB) ELSE {0} END"
_TELLING = ", ".join(f"typeof({name}), {_BYTES.format(name)}" for name in ORIGINAL_COLUMNS[:4])
_MORE_HITS = "ON CONFLICT (digest) DO UPDATE SET hits = excluded.hits WHERE excluded.hits > vision_cache.hits"
_TAKE = f"""
INSERT INTO main.vision_cache SELECT row_digest({_TELLING}), {", ".join(ORIGINAL_COLUMNS)}
FROM source.vision_cache WHERE true {_MORE_HITS}
"""  # noqa: S608  # put together from constants
_VALUE = "CASE WHEN ? THEN CAST(? AS TEXT) ELSE ? END"
_ADD = f"INSERT INTO vision_cache VALUES (?, {', '.join([_VALUE] * 5)}) {_MORE_HITS}"  # noqa: S608
_BYTE_SUM = " + ".join(f"coalesce(length(CAST({name} AS BLOB)), 0)" for name in ORIGINAL_COLUMNS)
_LARGEST = f"SELECT max({_BYTE_SUM}) FROM vision_cache"  # noqa: S608
_ROWS = f"""
SELECT {", ".join(f"typeof({name}), {_BYTES.format(name)}" for name in ORIGINAL_COLUMNS)}
FROM vision_cache ORDER BY digest
"""  # noqa: S608
_BY_MODEL = """
SELECT CASE typeof(model_version) WHEN 'text' THEN CAST(model_version AS BLOB) END AS model, count(*)
FROM vision_cache GROUP BY model ORDER BY model
"""


class Originals:
    """The kept rows of this machine. The file is made with the first one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def take(self, source: Path) -> tuple[int, int]:
        """How many rows of the original-format file were not kept yet, and how many were; all of them are now.

        Raises:
            FileRejected: it is damaged, or no original-format file; nothing of it was taken.
            SetupError: what is kept can't be written.
        """
        try:
            _check(source)
        except sqlite3.Error as error:
            raise FileRejected(f"{source} can't be read as a database: {error}.") from error
        with self._writing() as connection:
            connection.execute("ATTACH ? AS source", (_uri(source),))
            before = _count(connection)
            with connection:
                connection.execute(_TAKE)
                rows = int(connection.execute("SELECT count(*) FROM source.vision_cache").fetchone()[0])
            taken = _count(connection) - before
            return taken, rows - taken

    def add(self, entries: Iterable[OriginalEntry]) -> int:
        """Number of the entries that were not kept yet; all of them are now, or after an error none.

        Raises:
            SetupError: what is kept can't be written.
        """
        with self._writing() as connection:
            before = _count(connection)
            with connection:
                connection.executemany(_ADD, (_bound(entry) for entry in entries))
            return _count(connection) - before

    def entries(self) -> Iterator[OriginalEntry]:
        """What is kept, in an order of its own."""
        with self._reading() as connection:
            if connection is None:
                return
            for row in connection.execute(_ROWS):
                values = [wire_value(kind, value) for kind, value in zip(row[::2], row[1::2], strict=True)]
                yield OriginalEntry.model_validate(dict(zip(ORIGINAL_COLUMNS, values, strict=True)))

    def by_model(self) -> dict[str, int]:
        """The number of kept rows by their `model_version`."""
        with self._reading() as connection:
            rows = [] if connection is None else connection.execute(_BY_MODEL).fetchall()
        return {"" if model is None else model.decode(errors="replace"): number for model, number in rows}

    def drop(self) -> int:
        """Number of rows that were kept; now none is."""
        number = sum(self.by_model().values())
        for suffix in ("", "-journal"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        return number

    def check(self) -> str | None:
        """What is wrong with the file, None if nothing."""
        try:
            with self._reading() as connection:
                found = "ok" if connection is None else connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        except SetupError as error:
            return error.message
        return None if found == "ok" else str(found)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        if not self._path.exists():
            yield None
            return
        with self._connected() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._connected() as connection:
            connection.execute(_SCHEMA)
            yield connection

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(_uri(self._path, "rwc"), uri=True, timeout=BUSY_S)) as connection:
                _confine(connection)
                connection.create_function("row_digest", 8, row_digest, deterministic=True)
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise SetupError(f"{self._path} can't be used: {error}. Free some space, or set it aside.") from error


def open_originals(settings: Settings) -> Originals:
    """What this machine keeps, DATA_DIR/cache/originals.db."""
    return Originals(settings.data_dir / "cache" / FILE_NAME)


def is_database(path: Path) -> bool:
    """Whether the file is a SQLite database.

    Raises:
        FileRejected: it can't be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except OSError as error:
        raise FileRejected(f"{path} can't be read: {error.strerror or error}.") from error


def is_original(connection: sqlite3.Connection) -> bool:
    """Whether the database has the original format's table, with no more and no fewer columns."""
    found = connection.execute("SELECT type FROM sqlite_master WHERE name = 'vision_cache'").fetchone()
    columns = connection.execute("SELECT name FROM pragma_table_xinfo('vision_cache')").fetchall()
    return found == ("table",) and {name for (name,) in columns} == set(ORIGINAL_COLUMNS)


def row_digest(*telling: SqlValue) -> bytes:
    """What tells a row from others: the types and values of all but its hits, each with its length."""
    digest = sha256()
    for one in telling:
        told = one if isinstance(one, bytes) else repr(one).encode()
        digest.update(len(told).to_bytes(8) + told)
    return digest.digest()


def _check(source: Path) -> None:
    """Nothing, for a sound original-format file."""
    with closing(sqlite3.connect(_uri(source), uri=True, timeout=BUSY_S)) as connection:
        _confine(connection)
        if not is_original(connection):
            raise FileRejected(
                f"{source} is a database, but no original-format cache: that has a table `vision_cache` of the columns "
                f"{', '.join(ORIGINAL_COLUMNS)}. Arachne's own cache is carried by `arachne cache export`."
            )
        found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise FileRejected(f"{source} is damaged: {found}.")
        if (connection.execute(_LARGEST).fetchone()[0] or 0) > MAX_ROW_BYTES:
            raise FileRejected(f"{source} has a row of more than {MAX_ROW_BYTES} bytes.")


def _confine(connection: sqlite3.Connection) -> None:
    """A file from elsewhere runs no functions of its own choice, and makes no values beyond all measure."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)


def _uri(path: Path, mode: str = "ro") -> str:
    return f"file:{quote(str(path.absolute()))}?mode={mode}"


def _count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM main.vision_cache").fetchone()[0])


def _bound(entry: OriginalEntry) -> list[SqlValue]:
    values = original_values(entry)
    telling = [part for is_text, value in values[:4] for part in (_type(is_text, value), value)]
    return [row_digest(*telling), *(part for is_text, value in values for part in (is_text, value, value))]


def _type(is_text: bool, value: SqlValue) -> str:
    if is_text:
        return "text"
    kinds = {type(None): "null", int: "integer", float: "real", bytes: "blob"}
    return kinds[type(value)]
