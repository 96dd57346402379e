"""A portable file into the cache, merged entry by entry.

Of two results for one key the newer one answers, and of the same age the one that is there already. So importing
twice, or going on after an interruption, changes nothing twice. The whole file is verified before anything is written.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path

from sqlalchemy import text

from arachne.bodies import compress
from arachne.cache.entries import Entry, OriginalEntry, ResultEntry, now
from arachne.cache.exporting import Contents
from arachne.cache.local import LocalRow
from arachne.cache.originals import Originals
from arachne.cache.portable import Advance, PortableFile, reading
from arachne.cache.stores import Stores
from arachne.database import Transaction
from arachne.ids import new_id
from arachne.versions import SHARED

BATCH = 200  # entries merged in one transaction, with at most so many characters of results in all
BATCH_CHARACTERS = 8 * 1024 * 1024

_ACCOUNTS = text("SELECT account_id FROM account WHERE account_id = ANY(:account_ids)")
# Only what is older gives its key up, so that a result finished meanwhile keeps it.
_FREE_OLDER = text("""
UPDATE image_result r SET cache_key = NULL
FROM unnest(CAST(:keys AS bytea[]), CAST(:times AS timestamptz[])) AS coming(key, at)
WHERE r.cache_key = coming.key AND r.created_at < coming.at
""")
_INSERT = text("""
INSERT INTO image_result (result_id, account_id, cache_key, reading_key, scope, sha256, model_version,
                          pipeline_version, options_hash, reading_hash, units, body, created_at)
SELECT * FROM unnest(
    CAST(:result_ids AS text[]), CAST(:account_ids AS text[]), CAST(:keys AS bytea[]), CAST(:reading_keys AS bytea[]),
    CAST(:scopes AS text[]), CAST(:digests AS text[]), CAST(:model_versions AS text[]),
    CAST(:pipeline_versions AS text[]), CAST(:options_hashes AS text[]), CAST(:reading_hashes AS text[]),
    CAST(:units AS integer[]), CAST(:bodies AS bytea[]), CAST(:times AS timestamptz[]))
    AS coming(result_id, account_id, key, reading_key, scope, sha256, model_version, pipeline_version, options_hash,
              reading_hash, units, body, at)
WHERE key IS NOT NULL OR NOT EXISTS (
    SELECT 1 FROM image_result r WHERE r.reading_key = coming.reading_key AND r.created_at >= coming.at)
ORDER BY at DESC, key
ON CONFLICT (cache_key) DO NOTHING RETURNING result_id
""")


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of a file's entries.

    `unchanged` were there already, or newer ones of their key; `expired` are older than results are kept, `foreign` of
    accounts that are unknown here.
    """

    imported: int = 0
    unchanged: int = 0
    expired: int = 0
    foreign: int = 0
    originals: int = 0
    originals_unchanged: int = 0

    def __add__(self, other: "Imported") -> "Imported":
        return Imported(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


def verify_file(path: Path, advance: Advance = lambda _: None) -> Contents:
    """What the file holds, which is whole.

    Raises:
        FileRejected: it is not; says where.
    """
    with reading(path) as file:
        return _verify(file, advance)


def import_file(
    stores: Stores, path: Path, account_id: str | None = None, advance: Advance = lambda _: None
) -> Imported:
    """What became of the file's entries; with `account_id` results of single accounts become that account's.

    Raises:
        FileRejected: the file is damaged or foreign, and nothing of it was taken.
        SetupError: originals can't be written.
        Unavailable: the database can't be reached; the same import goes on later.
    """
    total = Imported()
    with reading(path) as file:
        _verify(file, advance)
        for batch in _batches(file.entries(advance)):
            results = [_assigned(entry, account_id) for entry in batch if isinstance(entry, ResultEntry)]
            total += _take_results(stores, results)
            total += _take_originals(stores.originals, batch)
    return total


def import_originals(originals: Originals, path: Path, advance: Advance = lambda _: None) -> Imported:
    """What became of the entries of a file that holds originals alone, which needs no database.

    Raises:
        FileRejected: the file is damaged or foreign, and nothing of it was taken.
        SetupError: originals can't be written.
    """
    total = Imported()
    with reading(path) as file:
        _verify(file, advance)
        for batch in _batches(file.entries(advance)):
            total += _take_originals(originals, batch)
    return total


def _verify(file: PortableFile, advance: Advance) -> Contents:
    results = originals = 0
    for entry in file.entries(advance):
        results += isinstance(entry, ResultEntry)
        originals += isinstance(entry, OriginalEntry)
    return Contents(results, originals)


def _batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    characters = 0
    for entry in entries:
        batch.append(entry)
        told = entry.result if isinstance(entry, ResultEntry) else entry.result_json
        characters += len(told) if isinstance(told, str) else len(str(told))
        if len(batch) >= BATCH or characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _assigned(entry: ResultEntry, account_id: str | None) -> ResultEntry:
    if account_id is None or entry.scope == SHARED:
        return entry
    return entry.model_copy(update={"scope": account_id, "account_id": account_id})


def _take_originals(originals: Originals, batch: Sequence[Entry]) -> Imported:
    entries = [entry for entry in batch if isinstance(entry, OriginalEntry)]
    taken = originals.add(entries) if entries else 0
    return Imported(originals=taken, originals_unchanged=len(entries) - taken)


def _take_results(stores: Stores, entries: Sequence[ResultEntry]) -> Imported:
    if not entries:
        return Imported()
    earliest = now() - timedelta(seconds=stores.settings.result_retention_s)
    known = stores.database.run(_known_accounts, {entry.account_id for entry in entries})
    kept = [entry for entry in entries if entry.created_at > earliest]
    ours = {new_id("res"): entry for entry in kept if entry.scope == SHARED or entry.account_id in known}
    inserted = stores.database.run(_merge, ours) if ours else set()
    answers = [result_id for result_id in sorted(inserted) if ours[result_id].complete]
    stores.cache.take([_local(result_id, ours[result_id]) for result_id in answers])
    return Imported(
        imported=len(inserted),
        unchanged=len(ours) - len(inserted),
        expired=len(entries) - len(kept),
        foreign=len(kept) - len(ours),
    )


def _known_accounts(transaction: Transaction, account_ids: set[str]) -> set[str]:
    return set(transaction.session.scalars(_ACCOUNTS, {"account_ids": sorted(account_ids)}))


def _merge(transaction: Transaction, entries: Mapping[str, ResultEntry]) -> set[str]:
    """Of these entries by the ids they would have those that are results now."""
    values = _columns(entries)
    complete = {name: [value for value, key in zip(values[name], values["keys"], strict=True) if key is not None]
                for name in ("keys", "times")}  # fmt: skip
    transaction.session.execute(_FREE_OLDER, complete)
    return set(transaction.session.scalars(_INSERT, values))


def _columns(entries: Mapping[str, ResultEntry]) -> dict[str, list[object]]:
    latest = now()  # a clock that was wrong must not make a result the newest one for ever
    keys = [entry.key for entry in entries.values()]
    readings = [key.reading if entry.has_reading else None for key, entry in zip(keys, entries.values(), strict=True)]
    ones = list(entries.values())
    return {
        "result_ids": list(entries),
        "account_ids": [entry.account_id for entry in ones],
        "keys": [key.digest if entry.complete else None for key, entry in zip(keys, ones, strict=True)],
        "reading_keys": [reading.digest if reading else None for reading in readings],
        "scopes": [entry.scope for entry in ones],
        "digests": [entry.sha256 for entry in ones],
        "model_versions": [entry.model_version for entry in ones],
        "pipeline_versions": [entry.pipeline_version for entry in ones],
        "options_hashes": [entry.options_hash for entry in ones],
        "reading_hashes": [entry.reading_hash for entry in ones],
        "units": [entry.units for entry in ones],
        "bodies": [compress(entry.result.encode()) for entry in ones],
        "times": [min(entry.created_at, latest) for entry in ones],
    }


def _local(result_id: str, entry: ResultEntry) -> LocalRow:
    return LocalRow(entry.key, result_id, entry.result, min(entry.created_at, now()).timestamp(), entry.hits)
