"""The cache into one portable file: every result that may answer, and every original that is kept."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Row, text

from arachne.bodies import decompress
from arachne.cache.entries import MAX_COUNT, ResultEntry, check_result
from arachne.cache.originals import Originals
from arachne.cache.portable import Advance, Writer, writing
from arachne.cache.stores import Stores
from arachne.database import Database, Transaction
from arachne.errors import FileRejected

PAGE = 32  # results read at a time, each page in a transaction of its own: one long snapshot would slow every claim

_NEWEST = text("SELECT max(result_id) FROM image_result")
_COUNT = text("SELECT count(*) FROM image_result WHERE cache_key IS NOT NULL OR reading_key IS NOT NULL")
_PAGE = text("""
SELECT result_id, account_id, cache_key, reading_key, scope, sha256, model_version, pipeline_version, options_hash,
       reading_hash, units, created_at, body
FROM image_result
WHERE result_id > :after AND result_id <= :newest AND (cache_key IS NOT NULL OR reading_key IS NOT NULL)
ORDER BY result_id LIMIT :page
""")


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file holds, and the results it was not given because they are damaged or too large for a line."""

    results: int = 0
    originals: int = 0
    left_out: int = 0


def export(stores: Stores, path: Path, advance: Advance = lambda _: None) -> Contents:
    """What the file at `path` was given: all that may answer, and all originals.

    Raises:
        SetupError: the file can't be written, and what was there before still is.
        Unavailable: the database can't be reached.
    """
    results = left_out = 0
    with writing(path) as writer:
        for row in read_results(stores.database):
            try:
                writer.add(_counted(stores, entry_of(row)))
                results += 1
            except FileRejected:
                left_out += 1
            advance(1)
        return Contents(results, _add_originals(writer, stores.originals, advance), left_out)


def export_originals(originals: Originals, path: Path, advance: Advance = lambda _: None) -> Contents:
    """What the file at `path` was given: the originals alone, which needs no database.

    Raises:
        SetupError: the file can't be written, and what was there before still is.
    """
    with writing(path) as writer:
        return Contents(originals=_add_originals(writer, originals, advance))


def count_entries(stores: Stores) -> int:
    """The number of entries an export made now would have."""
    results = stores.database.run(lambda transaction: transaction.session.scalar(_COUNT))
    return int(results or 0) + sum(stores.originals.by_model().values())


def read_results(database: Database) -> Iterator[Row[Any]]:
    """The rows of all results that answered a key when this began, and still do when they are reached."""
    newest = database.run(lambda transaction: transaction.session.scalar(_NEWEST))
    after = ""
    while newest and (rows := database.run(_read_page, after, newest)):
        after = rows[-1].result_id
        yield from rows


def entry_of(row: Row[Any]) -> ResultEntry:
    """The row's entry, with no hits yet.

    Raises:
        FileRejected: its body is damaged, or it is not of the image or the key it is filed under.
    """
    try:
        result = decompress(row.body).decode()
    except (zlib.error, UnicodeDecodeError):
        raise FileRejected("a body that is damaged") from None
    names = ("account_id", "scope", "sha256", "model_version", "pipeline_version", "options_hash", "reading_hash")
    try:
        entry = ResultEntry(
            **{name: getattr(row, name) for name in (*names, "units", "created_at")},
            complete=row.cache_key is not None,
            has_reading=row.reading_key is not None,
            hits=0,
            result=result,
        )
    except ValueError:
        raise FileRejected("a key that no image has") from None
    check_result(entry)
    _check_keys(row, entry)
    return entry


def _check_keys(row: Row[Any], entry: ResultEntry) -> None:
    reading = entry.key.reading
    if row.cache_key not in {None, entry.key.digest} or row.reading_key not in {None, reading and reading.digest}:
        raise FileRejected("a key that is not its own")


def _counted(stores: Stores, entry: ResultEntry) -> ResultEntry:
    (hits,) = stores.cache.hits_of([entry.key])
    return entry.model_copy(update={"hits": max(0, min(hits, MAX_COUNT))})


def _read_page(transaction: Transaction, after: str, newest: str) -> list[Row[Any]]:
    return list(transaction.session.execute(_PAGE, {"after": after, "newest": newest, "page": PAGE}).all())


def _add_originals(writer: Writer, originals: Originals, advance: Advance) -> int:
    number = 0
    for entry in originals.entries():
        writer.add(entry)
        number += 1
        advance(1)
    return number
