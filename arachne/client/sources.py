"""What images come from: files, folders, URLs and bytes, in the order given."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Union

from arachne.client.folders import search
from arachne.errors import ArachneError, SourceUnreadable
from arachne.schemas.submission import MAX_NAME


@dataclass(frozen=True)
class Upload:
    """An image with a name of the caller's choice: its bytes, or where its file is."""

    name: str
    data: bytes | None = None
    path: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if (self.data is None) == (self.path is None):
            raise ValueError("An Upload has either data or a path.")


Source = Union[str, "os.PathLike[str]", bytes, Upload]
"""A path of a file or folder, an https:// or http:// URL, an image's bytes, or an `Upload`."""


@dataclass(frozen=True)
class Item:
    """One image of a call: `index` is its place, `name` what the caller knows it by, `sent_name` what the service does.

    Of `url`, `data` and `path` one is set, or none where there is an `error`.
    """

    index: int
    name: str
    sent_name: str
    url: str | None = None
    data: bytes | None = None
    path: Path | None = None
    size_bytes: int = 0
    error: ArachneError | None = None

    def hash(self) -> str:
        """Hex digest of the image; call it in a thread.

        Raises:
            SourceUnreadable: the file can't be read.
        """
        if self.path is None:
            return hashlib.sha256(self.data or b"").hexdigest()
        try:
            with self.path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise _unreadable(self.name, error) from error


def find_items(sources: Iterable[Source]) -> list[Item]:
    """Every image that the sources stand for, folders searched in the order of names; call it in a thread."""
    if isinstance(sources, str | os.PathLike | bytes | Upload):
        sources = [sources]  # one alone, not its letters
    return [_number(index, item) for index, item in enumerate(one for source in sources for one in _expand(source))]


def _number(index: int, item: Item) -> Item:
    name = item.name or f"image-{index + 1}"
    return Item(
        index,
        name,
        _clip(item.sent_name) or _clip(name) or f"image-{index + 1}",
        item.url,
        item.data,
        item.path,
        item.size_bytes,
        item.error,
    )


def is_url(name: str) -> bool:
    """Whether this is where the service can fetch an image."""
    scheme, separator, _ = name.partition("://")
    return bool(separator) and scheme.lower() in {"http", "https"}


def _expand(source: Source) -> Iterator[Item]:
    if isinstance(source, bytes | bytearray | memoryview):
        yield Item(0, "", "", data=bytes(source), size_bytes=len(source))
    elif isinstance(source, Upload) and source.data is not None:
        yield Item(0, source.name, source.name, data=source.data, size_bytes=len(source.data))
    elif isinstance(source, Upload):
        yield _look_at(Path(source.path or ""), source.name, source.name)
    elif isinstance(source, str) and is_url(source):
        yield _look_at_url(source)
    elif source == "":
        yield Item(0, "", "", error=SourceUnreadable("An empty name is no image. Name a file, a folder or a URL."))
    elif _is_folder(path := Path(source)):
        yield from _search(path)
    else:
        yield _look_at(path, str(path), path.name)


def _look_at_url(url: str) -> Item:
    try:
        url.encode()
    except UnicodeEncodeError as error:
        return Item(0, url, url, error=_unreadable(url, error))
    return Item(0, url, url, url=url)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # why it can't be looked at is told where it is looked at
        return False


def _look_at(path: Path, name: str, sent_name: str) -> Item:
    try:
        if path.exists() and not path.is_file():
            return Item(0, name, sent_name, error=SourceUnreadable(f"{name} is neither a file nor a folder."))
        return Item(0, name, sent_name, path=path, size_bytes=path.stat().st_size)
    except (OSError, ValueError) as error:
        return Item(0, name, sent_name, error=_unreadable(name, error))


def _search(folder: Path) -> Iterator[Item]:
    found = False
    for one in search(folder):
        found = True
        if isinstance(one, OSError):
            name = os.fsdecode(one.filename)
            yield Item(0, name, Path(name).name, error=_unreadable(name, one))
        else:
            yield _look_at(one, str(one), one.name)
    if not found:
        yield Item(0, str(folder), folder.name, error=SourceUnreadable(f"{folder} holds no images."))


def _clip(name: str) -> str:
    """The name as the service takes it; its end tells more than its beginning."""
    return name.replace("\0", "").encode("utf-8", "replace").decode()[-MAX_NAME:]


def _unreadable(name: str, error: Exception) -> SourceUnreadable:
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return SourceUnreadable(f"{name} can't be read: {told}.")
