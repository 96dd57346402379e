"""Full disks: uploads are refused before anything is written, workers finish images, the cache turns itself off."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.chaos.api_process import api_process
from tests.chaos.full_disks import SIZE_BYTES, may_mount, small_disks, small_files
from tests.chaos.test_killed_worker import assert_finished_once
from tests.http.pictures import png

pytestmark = pytest.mark.chaos
ONE = "/api/extract/image"
Small = Callable[..., Sequence[str]]


@pytest.fixture(params=["file system", "limit"])
def small(request: pytest.FixtureRequest) -> Small:
    """Makes folders small to a process: a file system of their own, or a limit on its files."""
    if request.param == "limit":
        return lambda *_: small_files()
    if not may_mount():
        pytest.skip("this user may mount nothing")
    return small_disks


def test_full_cache_costs_hits_alone(service, worker_process, eventually, small: Small, tmp_path: Path) -> None:
    """A worker whose cache can't grow finishes every image, and says what is wrong; repeats come from PostgreSQL."""
    cache, log = service.settings.data_dir / "cache", tmp_path / "log"
    cache.mkdir(exist_ok=True)
    with worker_process("wordy_image", within=small(cache), log=log):
        job_id = service.submit(*(f"image {n}" for n in range(10)))
        assert_finished_once(service, job_id, 10)
        assert service.await_finished(service.submit("image 0")).cached == 1
        eventually(lambda: "vlm_cache.db is off for" in log.read_text())


def test_full_store_refuses_before_anything_is_written(service, small: Small, tmp_path: Path) -> None:
    """503 `unavailable`, no row, no rest on the disk: what is small enough is accepted right after, by the same key."""
    storage, temporary = service.settings.data_dir / "storage", tmp_path / "temporary"
    temporary.mkdir()
    key = {"Idempotency-Key": "once"}
    with api_process(service, within=small(storage, temporary), TMPDIR=str(temporary)) as api:
        for size_bytes in (SIZE_BYTES, 5 * SIZE_BYTES):  # one that is kept in memory until then, one that is not
            image = png() + os.urandom(size_bytes)
            refused = api.client.post(ONE, files={"file": ("a.png", image)}, headers=key)
            assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
            assert int(refused.headers["retry-after"]) > 0
            for table in ("job", "image", "idempotency_key"):
                assert service.scalar(f"SELECT count(*) FROM {table}") == 0
        assert api.client.post(ONE, files={"file": ("a.png", png())}, headers=key).status_code == 202
        assert service.scalar("SELECT count(*) FROM job") == 1
