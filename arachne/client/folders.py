"""Images in folders."""

import os
from collections.abc import Iterator
from pathlib import Path

# Of files in folders; a file that is named is read whatever it is called.
SUFFIXES = (
    *(".png", ".apng", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".gif", ".bmp", ".dib", ".tif", ".tiff"),
    *(".avif", ".heic", ".heif"),
)


def search(folder: Path, *, apart_from: Path | None = None) -> Iterator[Path | OSError]:
    """Images in the order of names, hidden ones and those below `apart_from` left out; and folders that are closed.

    An error's `filename` is the folder.
    """
    closed: list[OSError] = []
    apart = os.path.realpath(apart_from) if apart_from is not None else None
    for at, folders, files in os.walk(folder, onerror=closed.append):
        place = Path(at)
        folders[:] = sorted(
            name for name in folders if name[0] != "." and (apart is None or os.path.realpath(place / name) != apart)
        )
        for name in sorted(files):
            if name[0] != "." and Path(name).suffix.lower() in SUFFIXES:
                yield place / name
    yield from closed


def is_below(path: Path, folder: Path) -> bool:
    """Whether the path is the folder or lies in it, whatever links lead to either."""
    place, top = os.path.realpath(path), os.path.realpath(folder)
    return os.path.commonpath([place, top]) == top
