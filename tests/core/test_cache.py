"""The cache's file: what it keeps, and that nothing the disk does ever reaches a caller."""

import logging
import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from arachne.cache import CacheKey, VisionCache, open_cache, scope_of
from arachne.cache import local as local_cache
from arachne.cache.local import LocalRow
from arachne.settings import Settings

KEY = CacheKey("acc_1", "ab" * 32, "none", "p1", "o1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "vlm_cache.db"


@pytest.fixture
def cache(path: Path):
    cache = VisionCache(path, max_bytes=10 * 1024 * 1024)
    yield cache
    cache.close()


def rows(path: Path, statement: str) -> list[tuple]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


def test_what_was_put_is_got(cache: VisionCache) -> None:
    """Text in any script comes back byte for byte."""
    told = '{"text": "สวัสดี \\u0000"}'.encode()
    assert cache.get(KEY) is None
    cache.put(KEY, "res_1", told)
    assert cache.get(KEY) == ("res_1", told)
    cache.put(KEY, "res_2", b"{}")
    assert cache.get(KEY) == ("res_2", b"{}")


@pytest.mark.parametrize("part", ["scope", "sha256", "model_version", "pipeline_version", "options_hash"])
def test_every_part_of_the_key_counts(cache: VisionCache, part: str) -> None:
    """Another account, image, model, pipeline or option is another result, in the file and in PostgreSQL."""
    cache.put(KEY, "res_1", b"{}")
    other = replace(KEY, **{part: "other"})
    assert cache.get(other) is None
    assert other.digest != KEY.digest


def test_parts_of_the_key_do_not_run_into_each_other() -> None:
    """The digest tells `a`, `bc` from `ab`, `c`."""
    assert CacheKey("a", "bc", "", "", "").digest != CacheKey("ab", "c", "", "", "").digest
    assert len(KEY.digest) == 32


def test_scope_follows_the_setting() -> None:
    """Per account, unless the setting says that all share."""
    assert scope_of("account", "acc_1") == "acc_1"
    assert scope_of("shared", "acc_1") == scope_of("shared", "acc_2") == "shared"


def test_table_has_the_promised_columns(cache: VisionCache, path: Path) -> None:
    """Other tools may read the file: names, JSON as text, and a primary key over the whole key."""
    cache.put(KEY, "res_1", b'{"text": "x"}')
    columns = rows(path, "SELECT name, pk FROM pragma_table_info('vision_cache')")
    assert {name for name, _ in columns} >= {"sha256", "result_json", "model_version", "created_at", "hits"}
    assert [name for name, pk in columns if pk] == [
        "scope", "sha256", "model_version", "pipeline_version", "options_hash",
    ]  # fmt: skip
    assert rows(path, "SELECT result_json FROM vision_cache") == [('{"text": "x"}',)]
    assert rows(path, "PRAGMA journal_mode") == [("wal",)]


def test_hits_are_counted_in_memory_and_written_together(cache: VisionCache, path: Path) -> None:
    """Reading writes nothing until the counts are flushed."""
    cache.put(KEY, "res_1", b"{}")
    for _ in range(5):
        cache.get(KEY)
    assert rows(path, "SELECT hits FROM vision_cache") == [(0,)]
    cache.flush()
    assert rows(path, "SELECT hits FROM vision_cache") == [(5,)]


def test_hits_answered_without_the_file_are_counted_with_the_next_write(cache: VisionCache, path: Path) -> None:
    """They wait in memory for nobody's disk, and those of keys the file doesn't have are dropped."""
    cache.put(KEY, "res_1", b"{}")
    for _ in range(3):
        cache.count_hit(KEY)
    cache.count_hit(replace(KEY, sha256="other"))
    assert rows(path, "SELECT hits FROM vision_cache") == [(0,)]
    cache.flush()
    assert rows(path, "SELECT hits FROM vision_cache") == [(3,)]


def test_hits_are_written_when_they_are_many(cache: VisionCache, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty-four keys' at a time, so that a machine that only reads tells them too."""
    monkeypatch.setattr(local_cache, "FLUSH_S", float("inf"))
    keys = [replace(KEY, sha256=str(n)) for n in range(local_cache.FLUSH_HITS)]
    for key in keys:
        cache.put(key, "res_1", b"{}")
    for key in keys[:-1]:
        cache.get(key)
    assert rows(path, "SELECT sum(hits) FROM vision_cache") == [(0,)]
    cache.get(keys[-1])
    assert rows(path, "SELECT sum(hits) FROM vision_cache") == [(local_cache.FLUSH_HITS,)]


def test_file_keeps_within_its_size(path: Path) -> None:
    """Beyond the bound the oldest results go, and the file shrinks; what is often hit stays longer."""
    bound = 1024 * 1024
    cache = VisionCache(path, max_bytes=bound)
    often = replace(KEY, sha256="often")
    cache.put(often, "res_1", b"{}")
    for _ in range(100):
        cache.get(often)
    cache.flush()
    for n in range(400):
        cache.put(replace(KEY, sha256=f"{n:04d}"), "res_1", b"x" * 10_000)
    cache.prune()
    assert cache.get(often) == ("res_1", b"{}")
    assert cache.get(replace(KEY, sha256="0399")) is not None
    assert cache.get(replace(KEY, sha256="0000")) is None
    cache.close()
    assert path.stat().st_size <= bound * 1.1


def test_what_is_taken_over_keeps_the_file_within_its_size_and_age(path: Path) -> None:
    """However much comes at once, and with its own age and hits."""
    bound, now = 1024 * 1024, time.time()
    cache = VisionCache(path, max_bytes=bound, max_age_s=1000)
    for n in range(20):
        keys = [replace(KEY, sha256=f"{n} {m}") for m in range(20)]
        cache.take([LocalRow(key, "res_1", "x" * 10_000, now - 20 + n, 3) for key in keys])
    cache.take([LocalRow(replace(KEY, sha256="old"), "res_1", "{}", now - 1001, 0)])
    assert cache.get(replace(KEY, sha256="19 19")) is not None
    assert cache.get(replace(KEY, sha256="0 0")) is cache.get(replace(KEY, sha256="old")) is None
    assert rows(path, "SELECT DISTINCT hits FROM vision_cache") == [(3,)]
    cache.close()
    assert path.stat().st_size <= bound * 1.1


def age(path: Path, seconds: float) -> None:
    """Everything in the file is older by so much."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE vision_cache SET created_at = created_at - ?", (seconds,))
    connection.close()


def test_old_results_go(path: Path) -> None:
    """Nothing is kept past its age."""
    cache = VisionCache(path, max_bytes=10**9, max_age_s=1000)
    cache.put(KEY, "res_1", b"{}")
    assert cache.prune() == 0
    cache.close()
    age(path, 1001)
    assert cache.prune() == 1
    cache.close()


def test_old_results_answer_nobody_and_go_without_being_asked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They go when a process first uses the file, and hour by hour; until then they are misses."""
    cache = VisionCache(path, max_bytes=10**9, max_age_s=1000)
    cache.put(KEY, "res_1", b"{}")
    age(path, 1001)
    assert cache.get(KEY) is None
    assert rows(path, "SELECT count(*) FROM vision_cache") == [(1,)]
    later = VisionCache(path, max_bytes=10**9, max_age_s=1000)
    assert later.get(KEY) is None
    assert rows(path, "SELECT count(*) FROM vision_cache") == [(0,)]
    later.close()
    cache.put(KEY, "res_1", b"{}")
    age(path, 1001)
    an_hour_on = local_cache.time.monotonic() + local_cache.PRUNE_S + 1
    monkeypatch.setattr(local_cache.time, "monotonic", lambda: an_hour_on)
    cache.get(replace(KEY, sha256="other"))
    assert rows(path, "SELECT count(*) FROM vision_cache") == [(0,)]
    cache.close()


def test_a_file_made_anew_is_found_by_every_process(path: Path) -> None:
    """Whoever had the former file open goes on with the one that took its place."""
    first, second = (VisionCache(path, max_bytes=10**9) for _ in range(2))
    first.put(KEY, "res_1", b"{}")
    for name in (path, *path.parent.glob("*-wal"), *path.parent.glob("*-shm")):
        name.unlink()
    second.put(KEY, "res_2", b"[]")
    assert first.get(KEY) == ("res_2", b"[]")
    first.close()
    second.close()


@pytest.mark.parametrize("damage", ["garbage", "torn", "foreign"])
def test_damaged_file_is_made_anew(path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    """A file that is no database, is torn, or has another table is a miss, a warning, and then a working cache."""
    first = VisionCache(path, max_bytes=10**9)
    for n in range(200):
        first.put(replace(KEY, sha256=str(n)), "res_1", b"x" * 1000)
    first.close()
    if damage == "garbage":
        path.write_bytes(os.urandom(50_000))
    elif damage == "torn":
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(os.urandom(100_000))
    else:
        path.unlink()
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE vision_cache (sha256 TEXT PRIMARY KEY, result_json TEXT)")
        connection.close()
    cache = VisionCache(path, max_bytes=10**9)
    with caplog.at_level(logging.WARNING):
        for n in range(200):
            cache.get(replace(KEY, sha256=str(n)))
        cache.put(KEY, "res_1", b"{}")
        cache.put(KEY, "res_1", b"{}")
    assert cache.get(KEY) == ("res_1", b"{}")
    assert "made anew" in caplog.text
    cache.close()


def test_full_disk_turns_the_cache_off(cache: VisionCache, monkeypatch, caplog: pytest.LogCaptureFixture) -> None:
    """No error, one warning, misses for a while; then it is tried again."""
    cache.put(KEY, "res_1", b"{}")
    with caplog.at_level(logging.WARNING):
        pages = cache._connection.execute("PRAGMA page_count").fetchone()[0]
        cache._connection.execute(f"PRAGMA max_page_count = {pages}")
        cache.put(replace(KEY, sha256="big"), "res_1", b"x" * 1_000_000)
    assert "off for" in caplog.text
    assert cache.get(KEY) is None
    monkeypatch.setattr(local_cache.time, "monotonic", lambda: cache._off_until + 1)
    assert cache.get(KEY) == ("res_1", b"{}")


def test_unusable_folder_is_a_miss(tmp_path: Path) -> None:
    """A path that can't be made never raises."""
    (tmp_path / "file").write_text("")
    cache = VisionCache(tmp_path / "file" / "vlm_cache.db", max_bytes=10**9)
    cache.put(KEY, "res_1", b"{}")
    assert cache.get(KEY) is None


def test_threads_and_processes_share_the_file(path: Path) -> None:
    """Two caches on one file, eight threads: every result that was put is got."""
    caches = [VisionCache(path, max_bytes=10**9) for _ in range(2)]

    def put(n: int) -> None:
        caches[n % 2].put(replace(KEY, sha256=str(n)), "res_1", str(n).encode())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(200)))
    for cache in caches:
        assert [cache.get(replace(KEY, sha256=str(n))) for n in range(200)] == [
            ("res_1", str(n).encode()) for n in range(200)
        ]
        cache.close()


def test_cache_of_a_machine_is_where_the_settings_say(tmp_path: Path) -> None:
    """DATA_DIR/cache/vlm_cache.db."""
    cache = open_cache(Settings(data_dir=tmp_path))
    cache.put(KEY, "res_1", b"{}")
    cache.close()
    assert (tmp_path / "cache" / "vlm_cache.db").is_file()
