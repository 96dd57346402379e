"""The images that files, folders, patterns, URLs and `-` on a command line stand for."""

import codecs
import errno
import hashlib
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from arachne.cli.extract_patterns import is_folder, is_pattern, match
from arachne.client.folders import search
from arachne.client.sources import is_url
from arachne.errors import ArachneError, FetchFailed, ImageTooLarge, InvalidOptions, NotFound, SetupError

STDIN = "-"
MAX_STDIN_BYTES = 256 * 1024 * 1024  # what a request may have; a service takes less an image


@dataclass(frozen=True)
class Input:
    """An image that is to be read, or what is wrong with what was named. `data` is that of stdin."""

    name: str
    error: ArachneError | None = None
    data: bytes | None = None

    @property
    def path(self) -> Path:
        """Where it is, if it is a file."""
        return Path(self.name)

    @property
    def is_url(self) -> bool:
        """Whether it lies elsewhere."""
        return is_url(self.name)

    @property
    def stem(self) -> str:
        """What a file made of it is called, but for the ending."""
        if self.data is not None:
            return "stdin"
        if self.is_url:
            return _stem_of(self.name)
        return self.path.stem

    @property
    def size_bytes(self) -> int:
        """What of it is to be sent."""
        if self.data is not None:
            return len(self.data)
        try:
            return 0 if self.is_url else self.path.stat().st_size
        except OSError:
            return 0

    def identify(self) -> tuple[str, str] | None:
        """Where it is, and what changes when what is there changes; None where there is nothing."""
        if self.error is not None:
            return None
        if self.data is not None:
            return STDIN, hashlib.sha256(self.data).hexdigest()
        if self.is_url:
            return self.name, ""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return os.path.abspath(self.path), f"{found.st_size}-{found.st_mtime_ns}"  # noqa: PTH100  # `..` goes

    def load(self, max_bytes: int) -> bytes:
        """The image's bytes, which are here.

        Raises:
            ArachneError: there are none, or too many.
        """
        if self.error is not None:
            raise self.error
        if self.is_url:
            raise InvalidOptions("--local reads what is here. Download the image first, or let a service fetch it.")
        try:
            size = self.path.stat().st_size if self.data is None else len(self.data)
            if size > max_bytes:
                raise ImageTooLarge(
                    f"The image has {size:,} bytes, {max_bytes:,} are allowed (ARACHNE_MAX_IMAGE_BYTES)."
                )
            return self.path.read_bytes() if self.data is None else self.data
        except OSError as error:
            raise FetchFailed(f"The file can't be read: {error.strerror}.") from error


def find_images(names: Sequence[str], *, apart_from: Path | None = None) -> list[Input]:
    """What is to be read, in order, each once; folders are searched, but not the one results are written to.

    Raises:
        SetupError: stdin can't be read.
    """
    found: dict[str, Input] = {}
    for name in names:
        for one in _expand(name, apart_from):
            plain = one.is_url or one.data is not None
            found.setdefault(one.name if plain else os.path.abspath(one.name), one)  # noqa: PTH100  # `..` goes
    return list(found.values())


def read_list(file: str) -> list[str]:
    """What the lines of a file name; of stdin for `-`.

    Raises:
        SetupError: it can't be read.
    """
    try:
        data = _stdin().read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise SetupError(f"The list {file} can't be read: {error}.") from None
    lines = data.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n").split(b"\n")
    return [os.fsdecode(line) for line in lines if line.strip()]


def is_alone(names: Sequence[str]) -> bool:
    """Whether one image is named, and nothing that may stand for several."""
    return len(names) == 1 and not is_folder(names[0]) and not is_pattern(names[0])


def _stem_of(url: str) -> str:
    """The last part of a URL's path, or else its host, as the beginning of a file's name."""
    try:
        parts = urlsplit(url)
    except ValueError:  # what is wrong with it is the service's to say
        return "image"
    stem = PurePosixPath(unquote(parts.path)).stem
    printable = "".join(one if one.isprintable() else "_" for one in stem)
    return printable if printable not in {"", ".."} else parts.hostname or "image"


def _expand(name: str, apart_from: Path | None) -> Iterator[Input]:
    if name == STDIN:
        yield _read_stdin()
    elif is_url(name):
        yield Input(name)
    elif not name:
        yield Input(name, NotFound("An empty name is no image. Name a file, a folder or a URL."))
    elif is_pattern(name):
        matches = sorted(match(name, apart_from=apart_from))
        if not matches:
            yield Input(name, NotFound("No file matches this pattern."))
        for one in matches:
            yield from _look_at(one, apart_from)
    else:
        yield from _look_at(name, apart_from)


def _look_at(name: str, apart_from: Path | None) -> Iterator[Input]:
    """A folder's images, or a file, or why it is none."""
    if is_folder(name):
        yield from _search(Path(name), apart_from)
    else:
        yield Input(name, _fault_of(name))


def _fault_of(name: str) -> ArachneError | None:
    """Why this is no file that can be read, where it is none."""
    try:
        mode = Path(name).stat().st_mode
    except FileNotFoundError:
        return NotFound("There is no such file.")
    except OSError as error:
        return FetchFailed(f"The file can't be read: {error.strerror}.")
    except ValueError:  # a null byte
        return NotFound("There is no such file: no name is like this.")
    return None if stat.S_ISREG(mode) else FetchFailed("It is neither a file nor a folder.")


def _stdin() -> BinaryIO:
    """Standard input's bytes.

    Raises:
        OSError: it is closed.
    """
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    return sys.stdin.buffer


def _read_stdin() -> Input:
    try:
        data = _stdin().read(MAX_STDIN_BYTES + 1)
    except OSError as error:
        raise SetupError(f"Stdin can't be read: {error.strerror}. Pipe an image into it.") from None
    if not data:
        return Input(STDIN, FetchFailed("Nothing came on stdin. Pipe an image into it."))
    if len(data) > MAX_STDIN_BYTES:
        return Input(STDIN, ImageTooLarge(f"More than {MAX_STDIN_BYTES:,} bytes came on stdin."))
    return Input(STDIN, data=data)


def _search(folder: Path, apart_from: Path | None) -> Iterator[Input]:
    found = False
    for one in search(folder, apart_from=apart_from):
        found = True
        if isinstance(one, OSError):
            yield Input(os.fsdecode(one.filename), FetchFailed(f"The folder can't be read: {one.strerror}."))
        else:
            yield Input(str(one), _fault_of(str(one)))
    if not found:
        yield Input(str(folder), NotFound("The folder holds no images."))
