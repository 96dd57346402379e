"""The images that files, folders and patterns on a command line stand for."""

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from arachne.errors import ArachneError, FetchFailed, ImageTooLarge, InvalidOptions, NotFound

# Of files in folders; a file that is named is read whatever it is called.
_SUFFIXES = (
    *(".png", ".apng", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".gif", ".bmp", ".dib", ".tif", ".tiff"),
    *(".avif", ".heic", ".heif"),
)


@dataclass(frozen=True)
class Input:
    """A file that is to be read, or what is wrong with what was named."""

    name: str
    error: ArachneError | None = None

    @property
    def path(self) -> Path:
        """Where it is."""
        return Path(self.name)

    def load(self, max_bytes: int) -> bytes:
        """The file's bytes.

        Raises:
            ArachneError: there are none, or too many.
        """
        if self.error is not None:
            raise self.error
        try:
            size = self.path.stat().st_size
            if size > max_bytes:
                raise ImageTooLarge(
                    f"The file has {size:,} bytes, {max_bytes:,} are allowed (ARACHNE_MAX_IMAGE_BYTES)."
                )
            return self.path.read_bytes()
        except OSError as error:
            raise FetchFailed(f"The file can't be read: {error.strerror}.") from error


def find_images(names: Sequence[str], *, apart_from: Path | None = None) -> list[Input]:
    """What is to be read, in order, each path once; folders are searched, but not the one results are written to."""
    found: dict[str, Input] = {}
    for name in names:
        for one in _expand(name, apart_from.absolute() if apart_from else None):
            found.setdefault(one.name, one)
    return list(found.values())


def _expand(name: str, apart_from: Path | None) -> Iterator[Input]:
    path = Path(name)
    if path.is_dir():
        yield from _search(path, apart_from)
    elif path.is_file():
        yield Input(name)
    elif path.exists():
        yield Input(name, FetchFailed("It is neither a file nor a folder."))
    elif "://" in name:
        yield Input(name, InvalidOptions("--local reads files. Download the image first."))
    elif is_pattern(name):
        matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207  # patterns may be absolute
        if not matches:
            yield Input(name, NotFound("No file matches this pattern."))
        for match in matches:
            yield from _expand(match, apart_from)
    else:
        yield Input(name, NotFound("There is no such file."))


def is_pattern(name: str) -> bool:
    """Whether this is a pattern, and not a file whose name looks like one."""
    return glob.has_magic(name) and not Path(name).exists()


def _search(folder: Path, apart_from: Path | None) -> Iterator[Input]:
    images = [str(path) for path in _walk(folder, apart_from)]
    if not images:
        yield Input(str(folder), NotFound("The folder holds no images."))
    yield from map(Input, images)


def _walk(folder: Path, apart_from: Path | None) -> Iterator[Path]:
    for at, folders, files in os.walk(folder):
        place = Path(at)
        folders[:] = sorted(name for name in folders if name[0] != "." and (place / name).absolute() != apart_from)
        for name in sorted(files):
            if name[0] != "." and Path(name).suffix.lower() in _SUFFIXES:
                yield place / name
