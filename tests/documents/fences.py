"""The fenced examples of the project's pages, and what stands before each in comments that readers don't see.

`<!-- not run: WHY -->` leaves an example out. `<!-- prints: PATTERN -->` is what it has to print, as a regular
expression. `<!-- stays: PORT -->`: it is a server at that port, left running until its page ends.
`<!-- is: NAME -->`: this JSON is a NAME of the API's description (`NAME without MEMBER`), or the value of that setting.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
_MARK = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
_COMMENT = re.compile(r"^<!-- (?P<word>not run|prints|stays|is): (?P<value>.+) -->$")


@dataclass(frozen=True)
class Fence:
    """One example: where it stands, its language and the words behind it, its text, and its comments."""

    page: str
    line: int
    language: str
    words: tuple[str, ...]
    text: str
    comments: tuple[tuple[str, str], ...]

    def told(self, word: str) -> tuple[str, ...]:
        """What the comments of this kind say."""
        return tuple(value for one, value in self.comments if one == word)

    @property
    def reason(self) -> str | None:
        """Why it is not run, if it says so."""
        return next(iter(self.told("not run")), None)

    @property
    def info(self) -> str:
        """The words behind the fence as they stand there."""
        return " ".join((self.language, *self.words))

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@cache
def all_fences() -> tuple[Fence, ...]:
    """Every fenced example of every page, in the order of the pages."""
    return tuple(fence for page in PAGES for fence in parse(page.read_text(), str(page.relative_to(ROOT))))


def of_page(page: str) -> tuple[Fence, ...]:
    """The examples of one page."""
    return tuple(fence for fence in all_fences() if fence.page == page)


def parse(text: str, page: str) -> Iterator[Fence]:
    """The examples in a page's text.

    Raises:
        ValueError: a fence is not closed, or a comment of ours stands before nothing.
    """
    lines = enumerate(text.splitlines(), start=1)
    comments: list[tuple[str, str]] = []
    for number, line in lines:
        if found := _COMMENT.match(line):
            comments.append((found["word"], found["value"]))
        elif found := _MARK.match(line):
            language, *words = found["info"].split() or [""]
            body = "".join(f"{one}\n" for one in _until(found["fence"], lines, f"{page}:{number}"))
            yield Fence(page, number, language, tuple(words), body, tuple(comments))
            comments = []
        elif comments:
            raise ValueError(f"{page}:{number}: a comment about an example stands before none")


def _until(mark: str, lines: Iterator[tuple[int, str]], where: str) -> Iterator[str]:
    for _, line in lines:
        if line.strip() == mark:
            return
        yield line
    raise ValueError(f"{where}: the fence is not closed")
