"""A bucket that is missing, refused credentials and a store that is away are told apart, each with its cure."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from arachne.errors import SetupError, Unavailable
from arachne.settings import Settings
from arachne.storage import open_storage, start_storage
from tests.machines.object_store import ObjectStore, object_store

pytestmark = pytest.mark.processes
DIGEST = "ab" * 32


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A store the environment leads to."""
    with object_store(tmp_path) as running:
        for name, value in running.settings.items():
            monkeypatch.setenv(name if name.isupper() else f"ARACHNE_{name.upper()}", value)
        monkeypatch.setenv("ARACHNE_DATA_DIR", str(tmp_path / "data"))
        yield running


def look() -> dict[str, str]:
    """What `arachne doctor`, in a process of its own, finds of the store."""
    line = [sys.executable, "-P", "-m", "arachne", "doctor", "--json"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in {0, 1}, done.stderr
    found: dict[str, str] = next(check for check in json.loads(done.stdout) if check["name"] == "storage")
    return found


def test_a_bucket_that_takes_objects_is_well(store: ObjectStore) -> None:
    assert look() | {"mend": ""} == {
        "name": "storage",
        "state": "ok",
        "found": "s3://pictures/originals-of-tests",
        "mend": "",
    }
    assert store.names() == ["originals-of-tests/probe"]


@pytest.mark.usefixtures("store")
def test_a_bucket_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its images are not gone, either: nobody can know."""
    monkeypatch.setenv("ARACHNE_STORAGE_URL", "s3://elsewhere")
    check = look()
    assert check["state"] == "failed"
    assert "bucket" in check["mend"]
    assert "ARACHNE_STORAGE_URL" in check["mend"]
    with pytest.raises(SetupError, match="no such bucket"):
        asyncio.run(start_storage(Settings()))
    with pytest.raises(Unavailable):
        open_storage(Settings()).read(DIGEST)
    with pytest.raises(Unavailable):
        asyncio.run(open_storage(Settings()).read_async(DIGEST))


def test_credentials_that_are_refused_are_named(store: ObjectStore) -> None:
    store.demand_credentials()
    check = look()
    assert check["state"] == "failed"
    assert "AWS_ACCESS_KEY_ID" in check["mend"]
    with pytest.raises(SetupError, match="AWS_SECRET_ACCESS_KEY"):
        asyncio.run(start_storage(Settings()))


@pytest.mark.parametrize("how", ["frozen", "killed"])
def test_a_store_that_is_away_may_come_back(store: ObjectStore, how: str) -> None:
    """So parts start all the same; `arachne doctor` says what to check."""
    if how == "frozen":
        store.freeze()
    else:
        store.kill()
    check = look()
    assert check["state"] == "failed"
    assert "AWS_ENDPOINT_URL" in check["mend"]
    storage = asyncio.run(start_storage(Settings()))
    with pytest.raises(Unavailable):
        asyncio.run(storage.prove_async())


def test_a_folder_that_is_gone_is_not_one_that_is_empty(tmp_path: Path) -> None:
    """A disk that isn't mounted: what it holds is not gone, and nothing is written beside it."""
    storage = open_storage(Settings(data_dir=tmp_path))
    (tmp_path / "storage").rmdir()
    for call in (lambda: storage.read(DIGEST), lambda: storage.delete(DIGEST)):
        with pytest.raises(Unavailable):
            call()
    with pytest.raises(Unavailable):
        asyncio.run(storage.write_async(DIGEST, b"bytes"))
    with pytest.raises(SetupError, match="no such folder"):
        asyncio.run(storage.prove_async())
    assert not (tmp_path / "storage").exists()
