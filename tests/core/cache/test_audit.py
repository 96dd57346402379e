"""The cache looked over: what is wrong is found, what answers nobody goes, and what jobs show stays."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import text

from arachne.cache.audit import drop_stale, file_stats, prune, shared_stats, verify_stores
from arachne.schemas.tables import Image, Job


def test_sound_cache_has_no_faults(cache, original_file) -> None:
    cache.put("a", local=True)
    cache.put("b", reusable=False)
    cache.stores.originals.take(original_file(("x", "{}", "m", 1, 1)))
    report = verify_stores(cache.stores)
    assert (report.shared, report.local, report.stale, report.originals, report.faults) == (2, 1, 0, 1, [])


@pytest.mark.parametrize(
    "damage",
    [
        "body = 'x'",
        "sha256 = 'x'",
        "options_hash = 'other'",
        "model_version = 'small@2'",
        "pipeline_version = 'p2'",
        "scope = 'shared'",
        "reading_hash = 'r2'",
        "reading_key = 'x'",
    ],
)
def test_row_that_does_not_prove_its_key_is_a_fault(cache, damage: str) -> None:
    """A row carries all its key is made of, so that a wrong one can be told."""
    cache.put("sound")
    result_id = cache.put("a")
    cache.column(f"UPDATE image_result SET {damage} WHERE result_id = :it", it=result_id)
    (fault,) = verify_stores(cache.stores).faults
    assert fault.startswith(result_id)


def test_file_that_says_otherwise_than_the_record_is_a_fault(cache, tmp_path: Path) -> None:
    """What this machine would answer is compared with PostgreSQL; under another key it answers nobody."""
    for content in "abc":
        cache.put(content, local=True)
    path = tmp_path / "cache" / "vlm_cache.db"
    connection = sqlite3.connect(path)
    with connection:
        first, second = (row[0] for row in connection.execute("SELECT rowid FROM vision_cache LIMIT 2"))
        connection.execute("UPDATE vision_cache SET result_json = '{}' WHERE rowid = ?", (first,))
        connection.execute("UPDATE vision_cache SET options_hash = 'other' WHERE rowid = ?", (second,))
    connection.close()
    report = verify_stores(cache.stores)
    assert (len(report.faults), report.stale) == (1, 1)


def test_erased_and_replaced_results_leave_this_machine(cache) -> None:
    """Not only out of reach: the bytes go."""
    for content in "abc":
        cache.put(content, local=True)
    erased = cache.put("d", local=True)
    cache.column("DELETE FROM image_result WHERE result_id = :it", it=erased)
    cache.put("a", "newer")
    assert verify_stores(cache.stores).stale == 2
    assert drop_stale(cache.stores.database, cache.stores.cache) == 2
    assert cache.stores.cache.stats().entries == 2
    assert cache.stores.cache.get(cache.key("b")) is not None


def test_pruning_by_age_empties_the_cache_and_keeps_jobs_results(cache, original_file) -> None:
    """A result some job shows stays and answers nobody else; originals go on demand only."""
    shown, _, young = cache.put("a", age_s=100, local=True), cache.put("b", age_s=100), cache.put("c", local=True)
    with cache.stores.database.transaction() as transaction:
        now = transaction.session.scalar(text("SELECT now()"))
        transaction.session.add(
            Job(job_id="job_1", account_id=cache.account_id, subject="s", options={}, total=1, deadline_at=now)
        )
        transaction.session.flush()
        transaction.session.add(
            Image(
                image_id="img_1", job_id="job_1", account_id=cache.account_id, index=0, state="completed", due_at=now,
                result_id=shown,
            )
        )  # fmt: skip
    cache.stores.originals.take(original_file(("x", "{}", "m", 1, 1)))
    done = prune(cache.stores, 50)
    assert (done.shared, done.local, done.originals) == (2, 1, 0)
    assert sorted(cache.column("SELECT result_id FROM image_result")) == sorted([shown, young])
    assert set(cache.answers("a", "b", "c")) == {"c"}
    done = prune(cache.stores, 0, with_originals=True)
    assert (done.shared, done.local, done.originals) == (1, 1, 1)
    assert cache.column("SELECT result_id FROM image_result") == [shown]
    assert verify_stores(cache.stores).originals == 0


def test_stats_tell_both_levels(cache) -> None:
    """Results that answer, readings others build on, hits, bytes and ages."""
    cache.put("a", age_s=50, local=True)
    cache.put("b", reusable=False)
    cache.stores.cache.get(cache.key("a"))
    shared = shared_stats(cache.stores.database)
    assert (shared.results, shared.readings) == (1, 2)
    assert shared.bytes == sum(cache.column("SELECT octet_length(body) FROM image_result"))
    assert shared.newest_at > shared.oldest_at
    told = file_stats(cache.stores.cache, cache.stores.settings)
    assert (told["entries"], told["hits"], told["bytes"]) == (1, 1, len(cache.result_of("a")))
    assert told["max_bytes"] == cache.stores.settings.cache_max_bytes
