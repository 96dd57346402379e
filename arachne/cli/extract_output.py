"""Where extracted documents go: one after the other to stdout, or each into a file of its own."""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from arachne.cli.extract_inputs import Input
from arachne.errors import ArachneError, ImageError, SetupError
from arachne.formats import Format

_FORM_FEED = b"\f"


class Sink(Protocol):
    """Takes what became of each input, by its number in the order given, as it is known."""

    def take(self, number: int, one: Input, document: bytes) -> None:
        """A document."""

    def miss(self, number: int, one: Input, error: ArachneError) -> None:
        """No document."""


class Printer:
    """Prints in the order given: what is done early waits for those before it."""

    def __init__(self, wanted: Format, *, alone: bool) -> None:
        self._format = wanted
        self._alone = alone
        self._waiting: dict[int, bytes] = {}
        self._next = 0
        self._printed = False

    def take(self, number: int, one: Input, document: bytes) -> None:
        """Print it when its turn has come."""
        if self._format == "json" and not self._alone:
            document = _line({"file": one.name, **json.loads(document)})
        elif self._format in {"json", "md", "txt"} and not document.endswith(b"\n"):
            document += b"\n"
        self._put(number, document)

    def miss(self, number: int, one: Input, error: ArachneError) -> None:
        """Keep its place: in JSON lines by its error, among texts by an empty one."""
        told = {"code": error.code, "message": error.message, "stage": _stage_of(error)}
        lines = self._format == "json" and not self._alone
        self._put(number, _line({"file": one.name, "error": told}) if lines else b"")

    def _put(self, number: int, data: bytes) -> None:
        self._waiting[number] = data
        while self._next in self._waiting:
            if self._printed and self._format in {"md", "txt"}:
                sys.stdout.buffer.write(_FORM_FEED)
            sys.stdout.buffer.write(self._waiting.pop(self._next))
            self._next += 1
            self._printed = True
        sys.stdout.buffer.flush()


class Folder:
    """Writes each document as soon as it is there. Inputs of one name get names of their own, in the order given."""

    def __init__(self, folder: Path, wanted: Format, inputs: Sequence[Input], *, overwrite: bool) -> None:
        self._folder = folder
        self._read = {one.path.absolute() for one in inputs}
        self._overwrite = overwrite
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(folder, error) from error
        taken: set[str] = set()
        self._targets = [self._choose(one.path.stem, wanted, taken) for one in inputs]

    def take(self, number: int, one: Input, document: bytes) -> None:
        """Write it, whole or not at all."""
        target = self._targets[number]
        try:
            handle, draft = tempfile.mkstemp(prefix=f".{one.path.stem[:50]}.", dir=self._folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(document)
                Path(draft).chmod(0o666 & ~_umask())
                Path(draft).replace(target)
            except BaseException:
                Path(draft).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise _unwritable(target, error) from error

    def miss(self, number: int, one: Input, error: ArachneError) -> None:
        """Write nothing."""

    def _choose(self, stem: str, wanted: Format, taken: set[str]) -> Path:
        """A name that no other input of this run has, even where case doesn't count."""
        number = 1
        while True:
            name = f"{stem}.{wanted}" if number == 1 else f"{stem}-{number}.{wanted}"
            target = self._folder / name
            if name.casefold() not in taken and not self._is_kept(target):
                taken.add(name.casefold())
                return target
            number += 1

    def _is_kept(self, target: Path) -> bool:
        return target.absolute() in self._read or (target.exists() and not (self._overwrite and target.is_file()))


def _line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def _stage_of(error: ArachneError) -> str | None:
    return error.stage if isinstance(error, ImageError) else None


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _unwritable(path: Path, error: OSError) -> SetupError:
    return SetupError(f"{path} can't be written: {error.strerror}. Choose another --out.")
