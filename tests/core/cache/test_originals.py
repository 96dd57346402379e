"""Rows of original-format files: kept exactly, carried on without loss, and never an answer."""

import os
import resource
import sqlite3
from pathlib import Path

import pytest

from arachne.cache import CacheKey, VisionCache
from arachne.cache.exporting import export_originals
from arachne.cache.importing import import_originals
from arachne.cache.originals import ORIGINAL_COLUMNS, Originals
from arachne.errors import FileRejected, SetupError

# What a column without strict typing may hold: text in any script, numbers as text, bytes, nothing at all.
ROWS = [
    ("aa" * 32, '{"text": "สวัสดี"}', "qwen2.5vl:7b", "2025-01-31 12:00:00", 7),
    ("bb" * 32, '{"text": "\x00"}', "qwen2.5vl:7b", 1738324800.25, 0),
    ("cc" * 32, b"\x78\x9c\x00\xff", None, 1738324800, None),
    (None, "", "llava", float("-inf"), 2**63 - 1),
]


@pytest.fixture
def originals(tmp_path: Path) -> Originals:
    return Originals(tmp_path / "cache" / "originals.db")


def stored(path: Path) -> list[tuple[object, ...]]:
    """The five columns as another program sees them, each with its type."""
    connection = sqlite3.connect(path)
    columns = ", ".join(f"{name}, typeof({name})" for name in ORIGINAL_COLUMNS)
    rows = connection.execute(f"SELECT {columns} FROM vision_cache").fetchall()
    connection.close()
    return sorted(rows, key=repr)


def test_rows_are_kept_as_they_were(originals: Originals, original_file, tmp_path: Path) -> None:
    """Every value and every type; the file they came from is as it was, byte for byte."""
    source = original_file(*ROWS)
    before = source.read_bytes()
    assert originals.take(source) == (4, 0)
    assert stored(tmp_path / "cache" / "originals.db") == stored(source)
    assert source.read_bytes() == before
    assert originals.by_model() == {"": 1, "llava": 1, "qwen2.5vl:7b": 2}


@pytest.mark.parametrize("name", ["kept.jsonl", "kept.jsonl.gz"])
def test_rows_are_carried_on_without_loss(originals: Originals, original_file, tmp_path: Path, name: str) -> None:
    """Into a portable file, and from there into another machine's cache."""
    source = original_file(*ROWS)
    originals.take(source)
    assert export_originals(originals, tmp_path / name).originals == 4
    there = Originals(tmp_path / "there" / "originals.db")
    assert import_originals(there, tmp_path / name).originals == 4
    assert stored(tmp_path / "there" / "originals.db") == stored(source)
    assert import_originals(there, tmp_path / name).originals_unchanged == 4
    assert originals.take(source) == (0, 4)


def test_text_that_is_no_utf8_is_kept(originals: Originals, original_file, tmp_path: Path) -> None:
    source = original_file(ROWS[0])
    connection = sqlite3.connect(source)
    connection.execute("UPDATE vision_cache SET result_json = CAST(x'ff41' AS TEXT)")
    connection.commit()
    connection.close()
    originals.take(source)
    export_originals(originals, tmp_path / "f")
    there = Originals(tmp_path / "there.db")
    import_originals(there, tmp_path / "f")
    connection = sqlite3.connect(tmp_path / "there.db")
    found = connection.execute("SELECT typeof(result_json), hex(result_json) FROM vision_cache").fetchall()
    connection.close()
    assert found == [("text", "FF41")]


def test_the_same_row_with_more_hits_is_one_row(originals: Originals, original_file) -> None:
    """Hits are the higher count; what differs otherwise is a row of its own."""
    first = original_file(ROWS[0])
    later = original_file((*ROWS[0][:4], 9), name="later/c.db")
    other = original_file((*ROWS[0][:3], "2025-02-01 12:00:00", 1), name="other/c.db")
    assert [originals.take(path) for path in (first, later, first, other)] == [(1, 0), (0, 1), (0, 1), (1, 0)]
    assert sorted(entry.hits for entry in originals.entries()) == [1, 9]


def test_rows_still_in_the_journal_are_taken(originals: Originals, original_file) -> None:
    """The former system may still have the file open."""
    source = original_file(ROWS[0], wal=True)
    writer = sqlite3.connect(source)
    writer.execute("INSERT INTO vision_cache VALUES ('dd', '{}', 'm', 1, 1)")
    writer.commit()
    assert originals.take(source) == (2, 0)
    writer.close()


@pytest.mark.parametrize("damage", ["torn", "header only", "other columns", "own format", "no table", "view"])
def test_damaged_and_foreign_databases_change_nothing(
    originals: Originals, original_file, tmp_path: Path, damage: str
) -> None:
    originals.take(original_file(ROWS[0]))
    source = original_file(*((str(n), os.urandom(500), "m", n, n) for n in range(500)), name="bad.db")
    connection = sqlite3.connect(source)
    if damage == "torn":
        connection.close()
        with source.open("r+b") as file:
            file.seek(20_000)
            file.write(os.urandom(100_000))
    elif damage == "header only":
        connection.close()
        source.write_bytes(source.read_bytes()[:100])
    elif damage == "other columns":
        connection.execute("ALTER TABLE vision_cache ADD COLUMN prompt TEXT")
    elif damage == "own format":
        connection.close()
        source.unlink()
        own = VisionCache(source, max_bytes=10**8)
        own.put(CacheKey("acc_1", "ab" * 32, "none", "p1", "o1"), "res_1", b"{}")
        own.close()
    else:
        connection.execute("ALTER TABLE vision_cache RENAME TO former")
        if damage == "view":
            connection.execute("CREATE VIEW vision_cache AS SELECT * FROM former")
        connection.commit()
    connection.close()
    with pytest.raises(FileRejected):
        originals.take(source)
    assert len(list(originals.entries())) == 1


@pytest.mark.parametrize("value", ["zeroblob(20000000)", "zeroblob(900000000)"])
def test_rows_beyond_measure_are_refused(originals: Originals, tmp_path: Path, value: str) -> None:
    """Also where the file is small and its table makes them up."""
    source = tmp_path / "bomb.db"
    connection = sqlite3.connect(source)
    with connection:
        connection.execute(
            f"CREATE TABLE vision_cache (sha256, result_json AS ({value}), model_version, created_at, hits)"
        )
        connection.execute("INSERT INTO vision_cache (sha256) VALUES ('x')")
    connection.close()
    with pytest.raises(FileRejected):
        originals.take(source)
    assert list(originals.entries()) == []


def test_original_file_in_the_caches_place_is_set_aside(original_file, tmp_path: Path, caplog) -> None:
    """Whoever goes on with the former system's folder loses nothing: it is renamed, told, and can be taken."""
    path = original_file(*ROWS, name="cache/vlm_cache.db")
    content = path.read_bytes()
    cache = VisionCache(path, max_bytes=10**8)
    assert cache.stats() is None
    assert cache.stats().entries == 0
    cache.close()
    aside = tmp_path / "cache" / "vlm_cache.original.db"
    assert "arachne cache import" in caplog.text
    assert aside.read_bytes() == content
    assert Originals(tmp_path / "cache" / "originals.db").take(aside) == (4, 0)


def test_full_disk_keeps_none_of_them(originals: Originals, original_file, tmp_path: Path) -> None:
    """One transaction: all rows or no row."""
    originals.take(original_file(ROWS[0]))
    source = original_file(*((str(n), "x" * 1000, "m", n, n) for n in range(1000)), name="large.db")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
    try:
        with pytest.raises(SetupError, match="can't be used"):
            originals.take(source)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(list(originals.entries())) == 1
    assert originals.take(source) == (1000, 0)
