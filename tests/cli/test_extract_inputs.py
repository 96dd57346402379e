"""What the names on a command line stand for."""

import os
from pathlib import Path

import pytest
import typer

from arachne.cli.extract import _check_folder
from arachne.cli.extract_inputs import find_images, is_alone, read_list


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()


def names(*given: str, apart_from: str | None = None) -> list[str]:
    return [one.name for one in find_images(given, apart_from=Path(apart_from) if apart_from else None)]


@pytest.mark.parametrize("name", ["n" * 300, "n" * 5000, "a\0b", "*\0", "a.png/b.png"])
def test_a_name_that_can_be_none_fails_alone(name: str) -> None:
    """Beside one that is read; as of lists that are none."""
    make("a.png")
    found = find_images([name, "a.png"])
    assert [one.error is None for one in found] == [False, True]
    assert is_alone([name]) is ("*" not in name or "\0" in name)


def test_what_may_not_be_looked_at_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in a folder that this user may not enter."""
    make("closed/a.png", "b.png")
    look = os.stat

    def refuse(path: str, **options: bool) -> os.stat_result:
        if os.fspath(path) == "closed/a.png":
            raise PermissionError(13, "Permission denied", path)
        return look(path, **options)

    monkeypatch.setattr(os, "stat", refuse)
    for given in (["closed/a.png", "b.png"], ["closed", "b.png"]):
        first, second = find_images(given)
        assert first.error is not None
        assert (first.error.code, "Permission denied" in first.error.message) == ("fetch_failed", True)
        assert second.error is None


def test_what_is_no_file_in_a_folder_is_told_beside_the_others() -> None:
    """A link that leads nowhere or round, and what is no file."""
    make("in/c.png")
    Path("in/a.png").symlink_to("nowhere.png")
    Path("in/b.png").symlink_to("b.png")
    os.mkfifo("in/d.png")
    codes = [one.error.code if one.error else None for one in find_images(["in"])]
    assert codes == ["not_found", "fetch_failed", None, "fetch_failed"]


@pytest.mark.parametrize(
    ("given", "out"),
    [("../in", "out"), (".", "../in/out"), (".", "link"), ("**/*.png", "out"), ("../in/**/*.png", "out")],
)
def test_what_was_written_is_not_read_the_next_time(given: str, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the folders are named."""
    make("in/a.png", "in/deep/b.png", "in/out/a.png", "in/out/deep/b.png")
    Path("in/link").symlink_to("out")
    monkeypatch.chdir("in")
    assert [os.path.relpath(name) for name in names(given, apart_from=out)] == ["a.png", "deep/b.png"]


def test_pictures_are_not_written_where_they_are_read() -> None:
    """The next time the same command would read what it wrote."""
    make("in/a.png")
    for given in ("in", "in/*.png", "./in/../in/**/*.png"):
        assert names(given, apart_from="in") != []
        _check_folder([given], "json", Path("in"))
        _check_folder([given], "png", Path("in/out"))
        with pytest.raises(typer.BadParameter):
            _check_folder([given], "png", Path("in"))


def test_patterns_end_where_links_lead_round() -> None:
    """Each image once, under the name it has without the links; two such links would never come to an end."""
    make("in/a.png", "in/deep/b.png", "in/.hidden/c.png")
    for name in ("in/one", "in/two", "in/deep/three"):
        Path(name).symlink_to(Path("in").absolute())
    assert names("in/**/*.png") == ["in/a.png", "in/deep/b.png"]
    assert names("**/b.png", "**/deep/**/*.png") == ["in/deep/b.png"]


def test_a_pattern_stands_for_files_alone() -> None:
    """A file that is called as stdin is."""
    make("-")
    [one] = find_images(["*"])
    assert (one.name, one.data, one.error) == ("-", None, None)


def test_lists_of_other_systems() -> None:
    """With a mark at the beginning, line ends of two characters, and empty lines."""
    Path("list").write_bytes(b"\xef\xbb\xbfa.png\r\n\r\nb\xff.png\n \n")
    assert read_list("list") == ["a.png", os.fsdecode(b"b\xff.png")]
