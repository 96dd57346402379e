"""What images come from: one alone or many, and what is none."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from arachne.client import Upload
from arachne.client.sources import find_items
from arachne.client.terms import write_terms
from arachne.errors import InvalidOptions


def test_one_source_alone_is_one(tmp_path: Path) -> None:
    """A name is not taken for a list of its letters, nor bytes for numbers."""
    (tmp_path / "a.png").write_bytes(b"x")
    for source in (str(tmp_path / "a.png"), tmp_path / "a.png", b"x", Upload("a.png", data=b"x")):
        [item] = find_items(source)
        assert item.error is None
        assert item.size_bytes == 1


def test_an_empty_name_is_no_folder() -> None:
    """As of a variable that is not set: nothing of the working folder is sent."""
    [item] = find_items([""])
    assert item.error is not None
    assert item.path is None


def test_a_name_that_can_be_none_fails_alone(tmp_path: Path) -> None:
    """Beside one that is read."""
    (tmp_path / "a.png").write_bytes(b"x")
    items = find_items(["n" * 5000, "a\0b", "https://x.example/\udcff.png", tmp_path / "a.png"])
    assert [item.error is None for item in items] == [False, False, False, True]


def test_every_image_has_a_name_to_be_sent_under() -> None:
    """Without which the service would take it for a part of the form."""
    names = [item.sent_name for item in find_items([b"x", Upload("\0", data=b"x"), Upload("\0a", data=b"x")])]
    assert names == ["image-1", "image-2", "a"]


def test_a_closed_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside what lies in open ones, rather than left out in silence."""
    (tmp_path / "open.png").write_bytes(b"x")
    (tmp_path / "closed").mkdir()
    scan = os.scandir

    def refuse(path: str) -> object:
        if os.fspath(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    items = find_items([tmp_path])
    assert [(Path(item.name).name, item.error is None) for item in items] == [("open.png", True), ("closed", False)]


@pytest.mark.parametrize("terms", [{"webhook": ""}, {"metadata": ["a"]}, {"metadata": {"a": 1}}, {"languages": 5}])
def test_terms_that_can_be_none_are_invalid_options(terms: Any) -> None:
    """Before anything is sent."""
    with pytest.raises(InvalidOptions):
        write_terms(terms)
