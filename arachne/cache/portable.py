"""Cache files to keep and to carry: JSON lines with a digest each, an end that tells how many, and no other state.

The format is described in `docs/cache-format.md`. Files are written and read as streams, a line at a time.
"""

import gzip
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, BinaryIO, cast

from arachne import __version__
from arachne.cache.entries import Entry, dump_entry, now, parse_entry
from arachne.errors import FileRejected, SetupError

FORMAT = "arachne-vision-cache"
VERSION = 1
MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_HEADER_BYTES = 4096
GZIP_LEVEL = 3

_HEAD, _MIDDLE, _TAIL = b'{"sha256":"', b'","entry":', b"}\n"
_DIGEST_AT = len(_HEAD)
_MIDDLE_AT = _DIGEST_AT + 64
_PAYLOAD_AT = _MIDDLE_AT + len(_MIDDLE)
_END = b'{"end":'
_GZIP_MAGIC = b"\x1f\x8b"

Advance = Callable[[int], object]
"""Is told how many bytes of the file or entries were done since the last call."""


class Writer:
    """Writes entries after the header; `finish` writes the end that makes the file whole."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = sha256()
        self.entries = 0
        self._write(_json_line({"format": FORMAT, "version": VERSION, "created_at": _stamp(), "by": _by()}))

    def add(self, entry: Entry) -> None:
        """Write an entry.

        Raises:
            FileRejected: it is too large for a line.
        """
        payload = dump_entry(entry)
        if _PAYLOAD_AT + len(payload) + len(_TAIL) > MAX_LINE_BYTES:
            raise FileRejected(f"an entry of more than {MAX_LINE_BYTES} bytes")
        digest = sha256(payload).hexdigest().encode()
        self._write(b"".join((_HEAD, digest, _MIDDLE, payload, _TAIL)))
        self.entries += 1

    def finish(self) -> None:
        """Write the end."""
        self._file.write(_json_line({"end": {"entries": self.entries, "sha256": self._digest.hexdigest()}}))

    def _write(self, line: bytes) -> None:
        self._digest.update(line)
        self._file.write(line)


@contextmanager
def writing(path: Path) -> Iterator[Writer]:
    """A writer for the file at `path`, compressed if that ends in `.gz`; it takes the name when it is whole.

    Until then it has another name, and after any error none. Only its owner may read it.

    Raises:
        SetupError: the file can't be written; says why.
    """
    if path.exists() and not path.is_file():
        raise SetupError(f"{path} is no ordinary file. Name another one.")
    try:
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as raw:
                yield from _written(raw, compressed=path.suffix == ".gz")
                raw.flush()
                os.fsync(raw.fileno())
            Path(draft).replace(path)
            _sync_folder(path.parent)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SetupError(f"{path} can't be written: {error.strerror or error}.") from error


def _written(raw: BinaryIO, *, compressed: bool) -> Iterator[Writer]:
    if not compressed:
        writer = Writer(raw)
        yield writer
        writer.finish()
        return
    with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=GZIP_LEVEL, mtime=0) as packed:
        writer = Writer(cast("IO[bytes]", packed))
        yield writer
        writer.finish()


class PortableFile:
    """A file to read, as often as need be; it is held open, so that its name may go meanwhile."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self.size_bytes = os.fstat(file.fileno()).st_size

    def entries(self, advance: Advance = lambda _: None) -> Iterator[Entry]:
        """The entries in order; that the file was whole is known after the last one only.

        Raises:
            FileRejected: it is damaged, cut short, of another format or a newer version; names the line.
        """
        number = 0
        self._file.seek(0)
        try:
            for number, entry in self._checked(advance):  # noqa: B007  # told in the error
                if entry is not None:
                    yield entry
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise FileRejected(f"{self._name} is cut short or damaged after line {number}.") from None
        except FileRejected as error:
            raise FileRejected(f"{self._name}, line {number + 1}: {error.message}.") from None
        except OSError as error:
            raise FileRejected(f"{self._name} can't be read: {error.strerror or error}.") from error

    def _checked(self, advance: Advance) -> Iterator[tuple[int, Entry | None]]:
        compressed = self._file.read(2) == _GZIP_MAGIC
        self._file.seek(0)
        lines = cast("IO[bytes]", gzip.GzipFile(fileobj=self._file)) if compressed else self._file
        digest, number, done = sha256(), 1, 0
        header = lines.readline(MAX_HEADER_BYTES)
        _check_header(header)
        digest.update(header)
        yield number, None
        while not (line := lines.readline(MAX_LINE_BYTES)).startswith(_END):
            entry = parse_entry(_payload(line))
            digest.update(line)
            number += 1
            yield number, entry
            at = self._file.tell()
            advance(at - done)
            done = at
        if line != _json_line({"end": {"entries": number - 1, "sha256": digest.hexdigest()}}):
            raise FileRejected("an end that doesn't fit what is before it")
        if lines.read(1):
            raise FileRejected("something follows the end")


@contextmanager
def reading(path: Path) -> Iterator[PortableFile]:
    """The file at `path`.

    Raises:
        FileRejected: there is none, or it can't be read.
    """
    if not path.is_file():
        raise FileRejected(f"{path} is no file.")
    try:
        file = path.open("rb")
    except OSError as error:
        raise FileRejected(f"{path} can't be read: {error.strerror or error}.") from error
    with file:
        yield PortableFile(file, str(path))


def _check_header(line: bytes) -> None:
    try:
        header = json.loads(line)
        told = (header["format"], header["version"])
    except (ValueError, TypeError, KeyError, RecursionError):
        raise FileRejected("this is no cache file") from None
    if told[0] != FORMAT:
        raise FileRejected("this is no cache file")
    if told[1] != VERSION:
        raise FileRejected(f"format version {told[1]!r}; this program reads version {VERSION}")
    if not line.endswith(b"\n"):
        raise FileRejected("the file is cut short")


def _payload(line: bytes) -> bytes:
    """The entry's JSON in a line, undamaged."""
    if not line.endswith(b"\n"):
        too_long = len(line) >= MAX_LINE_BYTES
        raise FileRejected(f"a line of more than {MAX_LINE_BYTES} bytes" if too_long else "the file is cut short")
    payload = line[_PAYLOAD_AT : -len(_TAIL)]
    framed = line.startswith(_HEAD) and line[_MIDDLE_AT:_PAYLOAD_AT] == _MIDDLE and line.endswith(_TAIL)
    if not framed or sha256(payload).hexdigest().encode() != line[_DIGEST_AT:_MIDDLE_AT]:
        raise FileRejected("an entry that doesn't fit its digest")
    return payload


def _json_line(told: object) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


def _stamp() -> str:
    return now().isoformat(timespec="seconds").replace("+00:00", "Z")


def _by() -> str:
    return f"arachne {__version__}"


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
