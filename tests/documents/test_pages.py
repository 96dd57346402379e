"""The pages hold together: links lead somewhere, pictures are those of their script, and what is named exists."""

import re
import runpy
from pathlib import Path
from urllib.parse import unquote

import pytest

from arachne.client import ClientSettings
from arachne.original_names import NAMES
from arachne.settings import Settings
from tests.documents.fences import PAGES, ROOT

PICTURES = ROOT / "docs" / "pictures"
_LINK = re.compile(r"(?P<shown>!?\[[^\]]*\])\((?P<target>[^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?:scripts|tests|docs|arachne)/[\w./-]*\w")
# Variables of ours that are no settings of a service or a client.
_OTHERS = {"ARACHNE_PYTHON", "ARACHNE_BROWSER"}


def prose(page: Path) -> str:
    """A page without its fenced examples and comments."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What a heading's link is called.

    Source: GitHub's rule: lower case, punctuation left out, spaces to hyphens.
    """
    headings = re.findall(r"^#{1,6} (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[tuple[str, str]]:
    """What each link of a page shows, and where it leads."""
    return [(found["shown"], found["target"]) for found in _LINK.finditer(_CODE.sub("", prose(page)))]


def name(page: Path) -> str:
    """A page's path in the checkout."""
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    """Files of the checkout, and headings in them; links to elsewhere are https."""
    for _, target in links(page):
        if "://" in target:
            assert target.startswith("https://"), target
            continue
        path, _, anchor = unquote(target).partition("#")
        led = (page.parent / path).resolve() if path else page
        assert led.exists(), f"{target} leads nowhere"
        assert led.is_relative_to(ROOT), target
        assert not anchor or anchor in anchors(led), f"{name(led)} has no heading #{anchor}"


def test_every_page_is_linked() -> None:
    """Nobody finds a page that no other leads to; decisions are found by their folder."""
    led = {(page.parent / target.partition("#")[0]).resolve() for page in PAGES for _, target in links(page)}
    lost = [page for page in PAGES if page not in led and page.parent not in led and page.parent != ROOT]
    assert lost == []


def test_pictures_are_those_that_their_script_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is shown by a page, with words for those who don't see it, and none is large."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    made = set(runpy.run_path(str(ROOT / "scripts" / "pictures"))["PICTURES"])
    shown = [
        (shown[2:-1], (page.parent / target).resolve())
        for page in PAGES
        for shown, target in links(page)
        if shown.startswith("!")
    ]
    assert {path.name for path in PICTURES.iterdir()} == made == {path.name for _, path in shown}
    assert all(len(words) > 20 for words, _ in shown)
    assert all(path.stat().st_size <= 200_000 for path in PICTURES.iterdir())


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_is_named_exists(page: Path) -> None:
    """Files of the checkout and settings, where a page names them in its text or its examples."""
    settings = {*Settings.model_fields, *ClientSettings.model_fields}
    for variable in set(re.findall(r"\bARACHNE_[A-Z][A-Z_]*[A-Z]\b", page.read_text())):
        assert variable in _OTHERS or variable.removeprefix("ARACHNE_").lower() in settings, variable
    for code in _CODE.findall(prose(page)):
        for path in _PATH.findall(code):
            assert any((ROOT / f"{path}{ending}").exists() for ending in ("", ".py")), path


def test_the_migration_page_tells_what_each_variable_is_read_as() -> None:
    """The table is the code's."""
    rows = re.findall(
        r"^\| `([A-Z_]+)` \| `ARACHNE_([A-Z_]+)` \|", (ROOT / "docs/migration.md").read_text(), re.MULTILINE
    )
    assert {theirs: ours.lower() for theirs, ours in rows} == NAMES
