"""The folders of the embedded servers: each has one holder, and sockets get short private ones."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from arachne.embedded import datadir
from arachne.embedded.process import ourselves, server_owner
from arachne.embedded.sockets import socket_dir
from arachne.errors import SetupError


def test_folder_has_one_holder(tmp_path: Path) -> None:
    """A second holder is refused at once with the pid of the first."""
    with (
        datadir.hold(tmp_path),
        pytest.raises(SetupError, match=f"in use by process {os.getpid()}"),
        datadir.hold(tmp_path),
    ):
        pass
    with datadir.hold(tmp_path):
        assert datadir.is_held(tmp_path)
    assert not datadir.is_held(tmp_path)


def test_sockets_are_short_and_private(tmp_path: Path) -> None:
    """However long the data folder's path, the socket's fits the kernel's limit; the folder is ours alone and goes."""
    data_dir = tmp_path / ("d" * 120) / "with space"
    owner = server_owner()
    with socket_dir(data_dir, owner) as sockets:
        assert len(os.fsencode(sockets / ".s.PGSQL.5432")) < 108
        status = sockets.stat()
        assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o700, owner.uid)
        with socket_dir(tmp_path, owner) as others:
            assert others != sockets
    assert not sockets.exists()


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, with a path short enough for sockets (a test's own folder may be too deep)."""
    with TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o711)
        monkeypatch.setattr("tempfile.tempdir", folder)
        yield Path(folder)


def test_folder_of_somebody_else_is_not_used(tmp_path: Path, temporary: Path) -> None:
    """A link planted where our socket folder would be is passed by."""
    with socket_dir(tmp_path, ourselves()) as sockets:
        assert sockets.parent == temporary
    sockets.symlink_to(tmp_path)
    with socket_dir(tmp_path, ourselves()) as elsewhere:
        assert elsewhere.parent != temporary
    assert tmp_path.is_dir()


def test_folders_of_the_killed_are_swept(tmp_path: Path, temporary: Path) -> None:
    """What a killed process left is removed some time later; what is in use, or just made, stays."""
    left, fresh = temporary / "arachne-0123456789ab", temporary / "arachne-ba9876543210"
    for folder in (left, fresh):
        folder.mkdir()
    os.utime(left, (0, 0))
    with socket_dir(tmp_path / "one", ourselves()) as used:
        os.utime(used, (0, 0))
        with socket_dir(tmp_path / "two", ourselves()):
            assert (left.exists(), fresh.exists(), used.exists()) == (False, True, True)
