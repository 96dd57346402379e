"""Originals are stored whole under their hash, and what is not there is told apart from a store that is away."""

import hashlib
from pathlib import Path

import pytest

from arachne.errors import Gone, SetupError, Unavailable
from arachne.settings import Settings
from arachne.storage import Storage, open_storage

DATA = b"the bytes of an image" * 1000
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(Settings(data_dir=tmp_path))


async def test_what_is_written_is_read_and_can_be_deleted(storage: Storage) -> None:
    assert not await storage.has_async(DIGEST)
    await storage.write_async(DIGEST, DATA)
    await storage.write_async(DIGEST, DATA)
    assert await storage.has_async(DIGEST)
    assert storage.read(DIGEST) == DATA == await storage.read_async(DIGEST)
    storage.delete(DIGEST)
    storage.delete(DIGEST)
    with pytest.raises(Gone):
        storage.read(DIGEST)
    with pytest.raises(Gone):
        await storage.read_async(DIGEST)


async def test_a_store_that_is_away_is_unavailable(tmp_path: Path) -> None:
    storage = open_storage(Settings(data_dir=tmp_path))
    await storage.check_async()
    (tmp_path / "storage" / "probe").unlink()
    (tmp_path / "storage").rmdir()
    (tmp_path / "storage").write_bytes(b"no folder")
    for call in (storage.check_async(), storage.write_async(DIGEST, DATA), storage.has_async(DIGEST)):
        with pytest.raises(Unavailable):
            await call


async def test_the_url_chooses_the_folder(tmp_path: Path) -> None:
    storage = open_storage(Settings(storage_url=f"file://{tmp_path}/with space/store"))
    await storage.write_async(DIGEST, DATA)
    assert (tmp_path / "with space" / "store" / "originals" / DIGEST[:2] / DIGEST).read_bytes() == DATA


@pytest.mark.parametrize("url", ["ftp://example.com/x", "nonsense", "file:///proc/nowhere"])
def test_urls_that_name_no_store_say_how_to_mend_it(url: str) -> None:
    with pytest.raises(SetupError, match="ARACHNE_STORAGE_URL"):
        open_storage(Settings(storage_url=url))
