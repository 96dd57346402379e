"""Language data: found, merged into one folder, and asked for."""

from pathlib import Path

import pytest

from arachne import languages
from arachne.errors import LanguageMissing


def test_packaged_english_is_installed_and_orientation_is_no_language() -> None:
    assert languages.installed()[0] == "eng"
    assert "osd" not in languages.installed()


def test_the_operators_folder_adds_and_wins(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "tha.traineddata").write_bytes(b"thai")
    (own / "eng.traineddata").write_bytes(b"own english")
    assert set(languages.installed(own)) >= {"eng", "tha"}
    merged = languages.merge(own, tmp_path / "cache")
    assert (merged / "eng.traineddata").read_bytes() == b"own english"
    assert (merged / "osd.traineddata").stat().st_size > 1_000_000
    assert languages.merge(own, tmp_path / "cache") == merged
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [merged.name]


def test_changed_data_is_another_folder(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "tha.traineddata").write_bytes(b"thai")
    before = languages.merge(own, tmp_path / "cache")
    (own / "tha.traineddata").write_bytes(b"better thai")
    assert languages.merge(own, tmp_path / "cache") != before


def test_resolving() -> None:
    assert languages.resolve(None, ["eng"], ("eng", "tha")) == ("eng",)
    assert languages.resolve(["auto"], ["eng"], ("eng", "tha")) == ("eng", "tha")
    assert languages.resolve(["tha", "auto"], ["eng"], ("eng", "tha")) == ("tha", "eng")


def test_a_missing_language_is_named_with_those_there_are() -> None:
    with pytest.raises(LanguageMissing, match=r"jpn.*Installed: eng, tha"):
        languages.resolve(["jpn"], ["eng"], ("eng", "tha"))
