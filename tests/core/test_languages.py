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


@pytest.mark.parametrize(
    ("requested", "default", "resolved"),
    [
        (None, ["eng"], ("eng",)),
        (["tha", "tha"], ["eng"], ("tha",)),
        (["auto"], ["eng"], ("auto", "eng")),
        (None, ["auto"], ("auto", "eng")),
        (["tha", "auto"], ["eng"], ("tha", "auto", "eng")),
        (["auto", "tha"], ["eng"], ("auto", "tha")),
        (["auto", "auto"], ["tha", "auto", "eng"], ("auto", "tha", "eng")),
    ],
)
def test_resolving(requested: list[str] | None, default: list[str], resolved: tuple[str, ...]) -> None:
    """What is read where the script can't be told is spelled out, so that another default is another cache key."""
    assert languages.resolve(requested, default, ("eng", "tha")) == resolved
    assert languages.resolve(resolved, default, ("eng", "tha")) == resolved


def test_a_language_beside_auto_has_to_be_installed() -> None:
    for requested in (["auto", "jpn"], ["jpn", "auto"]):
        with pytest.raises(LanguageMissing, match="jpn"):
            languages.resolve(requested, ["eng"], ("eng", "tha"))


def test_the_merged_folder_tells_what_is_in_it(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "aaa.traineddata").write_bytes(b"another")
    assert languages.in_folder(languages.merge(own, tmp_path / "cache")) == languages.installed(own)
    assert languages.installed(own)[:2] == ("eng", "aaa")


def test_a_missing_language_is_named_with_those_there_are() -> None:
    with pytest.raises(LanguageMissing, match=r"jpn.*Installed: eng, tha.*ARACHNE_TESSDATA_DIR.*tesseract-ocr-jpn"):
        languages.resolve(["jpn"], ["eng"], ("eng", "tha"))
