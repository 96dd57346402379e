"""Originals are stored whole under their hash, and what is not there is told apart from a store that is away."""

import asyncio
import hashlib
import socket
import subprocess
import sys
import time
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


def test_a_store_that_takes_empty_files_alone_is_unavailable(tmp_path: Path) -> None:
    """As a full disk does; here files may have no more than a kilobyte."""
    check = (
        "import asyncio, pathlib, sys; from obstore.store import LocalStore; from arachne.storage import Storage; "
        "folder = pathlib.Path(sys.argv[1]); asyncio.run(Storage(LocalStore(folder), folder=folder).check_async())"
    )
    for words, is_fine in (((), True), (("prlimit", "--fsize=1024"), False)):
        command = [*words, sys.executable, "-B", "-c", check, str(tmp_path)]
        tried = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (tried.returncode == 0) is is_fine, tried.stderr
    assert "Unavailable" in tried.stderr


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


async def test_an_original_is_read_in_pieces(storage: Storage) -> None:
    data = bytes(range(256)) * 4000
    digest = hashlib.sha256(data).hexdigest()
    await storage.write_async(digest, data)
    original = await storage.open_async(digest)
    pieces = [piece async for piece in original.chunks]
    assert original.size_bytes == len(data)
    assert b"".join(pieces) == data
    assert len(pieces) > 1
    with pytest.raises(Gone):
        await storage.open_async(DIGEST)


class _Hanging:
    """A store that never answers."""

    def __getattr__(self, _: str) -> object:
        async def hang(*_: object) -> None:
            await asyncio.Event().wait()

        return hang


async def test_a_store_that_never_answers_is_unavailable() -> None:
    storage = Storage(_Hanging(), timeout_s=0.01)  # type: ignore[arg-type]
    for call in (
        storage.write_async(DIGEST, DATA),
        storage.has_async(DIGEST),
        storage.read_async(DIGEST),
        storage.open_async(DIGEST),
        storage.check_async(),
    ):
        with pytest.raises(Unavailable):
            await asyncio.wait_for(call, 10)


def test_a_bucket_that_refuses_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten retries over three minutes, the library's own, would hold a worker's thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "x")
    storage, began_s = open_storage(Settings(storage_url="s3://bucket")), time.monotonic()
    with pytest.raises(Unavailable) as caught:
        storage.read(DIGEST)
    assert time.monotonic() - began_s < 15
    assert "builder error" not in str(caught.value.__cause__)  # http:// is allowed as the environment says
