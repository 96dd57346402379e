"""Patterns that stand for files, as shells know them; `**/` goes down through folders, not through links to them."""

import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path

from arachne.client.folders import is_below
from arachne.client.sources import is_url

_DEEP = re.compile(r"(?:^|(?<=/))\*\*/")


def is_folder(name: str) -> bool:
    """Whether this names a folder."""
    return os.path.isdir(name)  # noqa: PTH112  # of what can't be looked at it says no


def is_pattern(name: str) -> bool:
    """Whether this is a pattern, and not a file whose name looks like one."""
    if not glob.has_magic(name) or is_url(name) or "\0" in name:
        return False
    return not os.path.lexists(name)  # of what can't be looked at it says no


def match(pattern: str, *, apart_from: Path | None = None) -> Iterator[str]:
    """The files and folders it stands for, without what lies in `apart_from`, unless the pattern begins there."""
    closed = apart_from if apart_from is not None and not is_below(beginning(pattern), apart_from) else None
    for one in _match(pattern):
        if closed is None or not is_below(Path(one), closed):
            yield one


def beginning(pattern: str) -> Path:
    """The folder below which all lies that the pattern stands for."""
    parts = Path(pattern).parts
    fixed = next((number for number, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return Path(*parts[:fixed])


def _match(pattern: str) -> Iterator[str]:
    before, *deep = _DEEP.split(pattern, 1)
    if not deep:
        yield from glob.glob(pattern)  # noqa: PTH207  # patterns may be absolute
        return
    for top in glob.glob(before) if before else [""]:  # noqa: PTH207
        for at, folders, _ in os.walk(top or "."):
            folders[:] = sorted(name for name in folders if name[0] != ".")
            place = at if top else at[1:].lstrip("/")
            yield from _match(os.path.join(glob.escape(place), deep[0]))  # noqa: PTH118  # it may be empty
