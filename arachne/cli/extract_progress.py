"""How far the reading of many images is, for the person at the terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from arachne.cli.extract_inputs import Input
from arachne.cli.output import shown
from arachne.errors import ArachneError, ImageError


class Display:
    """Bars on stderr where that is a terminal; complaints in any case."""

    def __init__(self, total: int, *kinds: str) -> None:
        console = Console(stderr=True, soft_wrap=True, highlight=False)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.bar = Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty())
        self._tasks: dict[str, TaskID] = {kind: self.bar.add_task(kind, total=total) for kind in kinds}

    def advance(self, kind: str, number: int = 1) -> None:
        """This many images more are done, where that is shown."""
        if kind in self._tasks:
            self.bar.advance(self._tasks[kind], number)

    def complain(self, one: Input, error: ArachneError) -> None:
        """Say which image failed and why."""
        stage = f" (stage {error.stage})" if isinstance(error, ImageError) and error.stage else ""
        self.say(shown(f"arachne: {one.name}: {error.code}: {error.message}{stage}"))

    def say(self, line: str) -> None:
        """A line that stays above the bars."""
        self.bar.console.print(escape(line))


@contextmanager
def display(total: int, *kinds: str) -> Iterator[Display]:
    """Bars of these kinds until the block ends."""
    shown = Display(total, *kinds)
    with shown.bar:
        yield shown
