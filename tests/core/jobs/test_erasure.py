"""Jobs erased on request: nothing of them is left, whoever is at work on them, and nothing of others is lost."""

from pathlib import Path
from threading import Semaphore

import pytest

from arachne.cache import CacheKey, VisionCache, erased
from arachne.cache.erased import ErasureWatch
from arachne.complaints import Complaints
from arachne.database import Database
from arachne.errors import Gone, NotFound, OriginalsErased, Unavailable
from arachne.jobs.erasure import continue_erasures, erase_job, request_erasure
from arachne.jobs.finish import LOST
from arachne.jobs.retention import sweep_original
from arachne.jobs.submit import NewImage, NewJob, reserve_blobs, submit
from arachne.schemas.options import Options
from arachne.secretbox import SecretBox
from tests.core.jobs.erasing import TEXT, digest_of, erase, everything, finish

BOX = SecretBox([b"k" * 32])


async def test_nothing_of_an_erased_job_is_left(queue, storage, store) -> None:
    """No name, no URL, no word, no hash, no original; the ledger keeps the sum, and the tombstone its id."""
    await store("secret")
    job_id = finish(queue, "secret")
    before = everything(queue)
    traces = (digest_of("secret"), "tax.png", "hush", "divorce", TEXT)
    assert all(trace in before for trace in traces)
    erase(queue, storage, job_id)
    after = everything(queue)
    assert [trace for trace in traces if trace in after] == []
    with pytest.raises(Gone):
        storage.read(digest_of("secret"))
    assert queue.column("SELECT count(*) FROM image_result") == [0]
    assert queue.column("SELECT count(*) FROM usage_entry") == [1]
    job = queue.job(job_id)
    assert (job.state, job.erasing, job.deleted_at is not None) == ("completed", False, True)
    assert queue.column("SELECT count(*) FROM webhook_message WHERE NOT redacted") == [0]
    erase(queue, storage, job_id)
    with pytest.raises(NotFound):
        queue.database.run(request_erasure, queue.account("other"), job_id)


async def test_what_other_jobs_have_stays(queue, storage, store) -> None:
    """Another job of the account keeps result and original; so does another account; the last one takes them along."""
    await store("shared")
    first, second = finish(queue, "shared"), finish(queue, "shared")
    other = finish(queue, "shared", account="other")
    assert queue.column("SELECT count(*) FROM image_result") == [2]
    erase(queue, storage, first)
    assert queue.images(second)[0].result_id is not None
    assert queue.column("SELECT count(*) FROM image_result") == [2]
    erase(queue, storage, second)
    assert queue.column("SELECT account_id FROM image_result") == [queue.account("other")]
    assert storage.read(digest_of("shared")) == b"shared"
    assert queue.images(other)[0].result_id is not None
    erase(queue, storage, other, "other")
    assert queue.column("SELECT count(*) FROM image_result") == [0]
    assert queue.column("SELECT count(*) FROM blob") == [0]


def test_entries_of_no_job_go_with_the_last_one_of_the_image(queue, storage) -> None:
    """A result that was replaced, or came from a file, is of the same picture; those that a job has stay."""
    first = finish(queue, "again")
    plain = finish(queue, "again")
    queue.column("UPDATE image SET result_id = NULL WHERE job_id = :it", it=first)
    queue.column(
        "INSERT INTO image_result (result_id, account_id, scope, sha256, model_version, pipeline_version, "
        "options_hash, body) VALUES ('res_imported', :it, :it, :digest, 'none', 'p', 'o', '')",
        it=queue.account(), digest=digest_of("again"),
    )  # fmt: skip
    erase(queue, storage, first)
    [kept] = queue.column("SELECT result_id FROM image_result")
    assert kept == queue.images(plain)[0].result_id
    assert queue.column("SELECT result_id FROM erased_result") == ["res_imported"]


def test_a_worker_that_finishes_late_writes_nothing(queue, storage) -> None:
    """The job is cancelled first; what was being read finds no row, and leaves no result behind."""
    job_id = queue.submit("late", "waiting")
    late = queue.claim(queue.worker(), 1)[0]
    erase(queue, storage, job_id)
    assert queue.complete(late) == LOST
    assert queue.column("SELECT count(*) FROM image_result") == [0]
    assert queue.column("SELECT count(*) FROM usage_entry") == [0]
    assert (queue.job(job_id).state, queue.images(job_id)) == ("cancelled", [])
    assert queue.ends(job_id) == ["job.cancelled"]
    assert queue.column("SELECT count(*) FROM flight") == [0]


def test_an_erasure_that_was_cut_short_is_gone_on_with(queue, storage, store) -> None:
    """The wish is on record before anything else; a store that is down keeps neither words nor URL, only the hash."""
    job_id = finish(queue, "cut")
    queue.database.run(reserve_blobs, [NewImage(None, digest_of("cut"), "png", 3)])

    class Down:
        def delete(self, digest: str) -> None:
            raise Unavailable("The object store can't be reached.")

    queue.database.run(request_erasure, queue.account(), job_id)
    with pytest.raises(Unavailable):
        erase_job(queue.database, Down(), queue.settings, job_id)  # type: ignore[arg-type]
    assert continue_erasures(queue.database, Down(), queue.settings) == 1  # type: ignore[arg-type]
    assert "hush" not in everything(queue)
    assert TEXT not in everything(queue)
    assert queue.job(job_id).erasing
    assert continue_erasures(queue.database, storage, queue.settings) == 1
    assert continue_erasures(queue.database, storage, queue.settings) == 0
    assert digest_of("cut") not in everything(queue)


async def test_bytes_that_are_being_sent_are_stored_again(queue, storage, store) -> None:
    """Erasing doesn't wait for those who send the same picture; they are told that it went, and store it anew."""
    await store("twice")
    job_id = finish(queue, "twice")
    image = NewImage(None, digest_of("twice"), "png", 5)
    queue.database.run(reserve_blobs, [image])
    erase(queue, storage, job_id)
    new = NewJob(queue.account(), "tester", single=False, options=Options(), images=[image])
    with pytest.raises(OriginalsErased):
        queue.database.run(submit, new, queue.settings, BOX)
    assert queue.column("SELECT count(*) FROM job WHERE deleted_at IS NULL") == [0]
    await store("twice")
    made = queue.database.run(submit, new, queue.settings, BOX)
    assert sweep_original(queue.database, storage, queue.settings, digest_of("twice")) is False
    assert (made.finished, made.waiting) == (False, 1)


def test_erased_results_leave_every_file_and_its_free_pages(queue, storage, tmp_path: Path) -> None:
    """Each machine drops its copy by itself, also one put after the erasure; not a byte of it is left on the disk."""
    files = [VisionCache(tmp_path / name / "vlm_cache.db", max_bytes=10**7) for name in "ab"]
    watches = [ErasureWatch(queue.database, cache) for cache in files]
    assert [watch.look() for watch in watches] == [0, 0]
    job_id = queue.submit("copied")
    [image] = queue.claim(queue.worker())
    result_id = queue.complete(image).result_id
    for cache in files:
        cache.put(image.key, result_id, TEXT.encode())
    erase(queue, storage, job_id)
    assert [watch.look() for watch in watches] == [1, 1]
    files[1].put(image.key, result_id, TEXT.encode())
    assert [watch.look() for watch in watches] == [0, 1]
    assert files[0].get(image.key) is None
    for path in tmp_path.glob("*/vlm_cache.db*"):
        assert TEXT.encode() not in path.read_bytes()
        assert image.sha256.encode() not in path.read_bytes()
    for cache in files:
        cache.close()


def test_a_file_that_was_away_for_long_is_looked_through(queue, tmp_path: Path) -> None:
    """A process that starts knows of no erasure, and compares all it has."""
    cache = VisionCache(tmp_path / "vlm_cache.db", max_bytes=10**7)
    cache.put(CacheKey(queue.account(), "ab" * 32, "none", "p", "o"), "res_long_gone", b"{}")
    assert ErasureWatch(queue.database, cache).look() == 1
    cache.close()


def test_an_outage_of_the_database_is_told_once(tmp_path: Path, monkeypatch, caplog) -> None:
    """However often it is looked meanwhile; the log has room for the rest."""
    monkeypatch.setattr(erased, "_complaints", Complaints(erased.log))
    database, cache = Database("postgresql://127.0.0.1:1/nothing"), VisionCache(tmp_path / "c.db", max_bytes=10**7)
    watch, looks = ErasureWatch(database, cache, tick_s=0.001), Semaphore(0)
    look = watch.look
    monkeypatch.setattr(watch, "look", lambda: looks.release() or look())
    watch.start()
    for _ in range(4):
        assert looks.acquire(timeout=60)
    watch.stop()
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "erased results leave the cache later for a Unavailable"
    ]
    cache.close()
    database.close()
